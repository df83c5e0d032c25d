"""Credential provider plugins: programs of the node that know logins of registries (`--image-credential-provider-*`).

A provider is asked for repositories that its `matchImages` name. Its answer is cached for the image, the registry or
all, as it says; requests for the same repository at the same time share one call.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from podwire.interfaces import Clock
from podwire.linux.errors import LinuxError
from podwire.linux.fs.regular_files import read_head
from podwire.linux.proc import processes
from podwire.protocols.distribution import docker_config
from podwire.tasks.keyed_locks import KeyedLocks

log = logging.getLogger(__name__)

CONFIG_GROUP, CONFIG_KIND = "kubelet.config.k8s.io", "CredentialProviderConfig"
CONFIG_VERSIONS = ("v1", "v1beta1", "v1alpha1")
API_GROUP = "credentialprovider.kubelet.k8s.io"
API_VERSIONS = tuple(f"{API_GROUP}/{version}" for version in ("v1", "v1alpha1", "v1beta1"))
SUFFIXES = (".json", ".yaml", ".yml")
_FIELDS = {"name", "matchImages", "defaultCacheDuration", "apiVersion", "args", "env", "tokenAttributes"}
_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?|0")
_GLOBAL = "<global>"

Logins = Sequence[tuple[str, Mapping[str, Any]]]
"""Registries, and the login of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLimits:
    """Seconds and bytes."""

    call: float = 60.0
    """For one call of a provider, as upstream."""
    answer: int = 1 << 20
    config: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider of the configuration; the program has its name."""

    name: str
    match_images: tuple[str, ...]
    default_cache: float
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def matches(self, repository: str) -> bool:
        return any(docker_config.matches(pattern, repository) for pattern in self.match_images)


class _Login(msgspec.Struct):
    username: str = ""
    password: str = ""


class _Response(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: dict[str, _Login] | None = None


class BadProviders(ValueError):
    """The configuration of providers is invalid; names the field."""


class ProviderFailed(Exception):
    """A provider gave no login; the text never has one."""


@dataclass(frozen=True, slots=True)
class _Cached:
    logins: Logins
    until: float


@dataclass(slots=True)
class CredentialProviders:
    """`run` runs a program to its end, as `processes.run` does."""

    providers: Sequence[Provider]
    directory: Path
    clock: Clock
    limits: ProviderLimits = field(default_factory=ProviderLimits)
    run: Callable[..., processes.Finished] = processes.run
    _cache: dict[tuple[str, str], _Cached] = field(default_factory=dict)
    _calls: KeyedLocks = field(default_factory=KeyedLocks)

    async def logins(self, repository: str) -> Logins:
        """Returns the logins of all providers that match. One that fails is logged, and the pull goes on without it."""
        logins: list[tuple[str, Mapping[str, Any]]] = []
        for provider in self.providers:
            if provider.matches(repository):
                try:
                    logins += await self._provided(provider, repository)
                except ProviderFailed as error:
                    fields = {"provider": provider.name, "image": repository, "error": str(error)}
                    log.warning("cannot get credentials from provider", extra=fields)
        return logins

    async def _provided(self, provider: Provider, repository: str) -> Logins:
        async with self._calls.hold(f"{provider.name} {repository}"):
            now = self.clock.monotonic()
            self._cache = {key: cached for key, cached in self._cache.items() if cached.until > now}
            for scope in (repository, repository.partition("/")[0], _GLOBAL):
                if (cached := self._cache.get((provider.name, scope))) is not None:
                    return cached.logins
            response = await asyncio.to_thread(self._call, provider, repository)
            scopes = {"Image": repository, "Registry": repository.partition("/")[0], "Global": _GLOBAL}
            if response.cache_key_type not in scopes:
                raise ProviderFailed(
                    "credential provider plugin did not return a valid cacheKeyType: "
                    f"{response.cache_key_type[:40]}"  # not a secret: it is one of three words
                )
            auth = response.auth or {}
            logins = [(scope, {"username": each.username, "password": each.password}) for scope, each in auth.items()]
            kept = provider.default_cache
            if response.cache_duration is not None:
                kept = parse_duration(response.cache_duration) or 0.0
            if kept > 0:
                key = provider.name, scopes[response.cache_key_type]
                self._cache[key] = _Cached(logins, self.clock.monotonic() + kept)
            return logins

    def _call(self, provider: Provider, repository: str) -> _Response:
        request = {"kind": "CredentialProviderRequest", "apiVersion": provider.api_version, "image": repository}
        what = f"error execing credential provider plugin {provider.name} for image {repository}"
        try:
            done = self.run(
                [str(self.directory / provider.name), *provider.arguments],
                env={**os.environ, **dict(provider.environment)},
                stdin=json.dumps(request).encode(),
                deadline=self.limits.call,
                limit=self.limits.answer,
                kill_group=True,
            )
        except LinuxError as error:
            raise ProviderFailed(f"{what}: {error}") from error
        if done.code:
            raise ProviderFailed(f"{what}: exit status {done.code}: {done.stderr[:500].decode('utf-8', 'replace')}")
        try:
            response = msgspec.json.decode(done.stdout, type=_Response)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # without the decoder's words, which may quote a password
            raise ProviderFailed("error decoding credential provider plugin response from stdout") from None
        if response.api_version != provider.api_version:
            raise ProviderFailed(
                "apiVersion from credential plugin response did not match expected apiVersion:"
                f"{provider.api_version}, actual apiVersion:{response.api_version[:80]}"
            )
        if response.kind != "CredentialProviderResponse":
            raise ProviderFailed("error decoding credential provider plugin response from stdout")
        if response.cache_duration is not None and parse_duration(response.cache_duration) is None:
            raise ProviderFailed("error decoding credential provider plugin response from stdout")
        return response


def parse_duration(text: str) -> float | None:
    """Returns the seconds of a duration such as 1h30m; None if it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def load_providers(config: Path, directory: Path, limits: ProviderLimits | None = None) -> list[Provider]:
    """Reads the configuration, a file or a directory of files. Raises BadProviders, OSError."""
    from podwire.protocols.settings import parsed  # noqa: PLC0415 - YAML is loaded where a file is configured

    limits = limits or ProviderLimits()
    if not directory.is_dir():
        raise BadProviders(f"plugin binary directory {directory} did not exist")
    files = [config]
    if config.is_dir():
        files = sorted(path for path in config.iterdir() if path.suffix in SUFFIXES and path.is_file())
        if not files:
            raise BadProviders(f'no configuration files found in directory "{config}"')
    providers: list[Provider] = []
    for file in files:
        data = read_head(file, limits.config + 1, follow=True)
        if len(data) > limits.config:
            raise BadProviders(f"{file}: has more than {limits.config} bytes")
        try:
            providers += _parse_config(parsed(data, "it"))
        except ValueError as error:
            raise BadProviders(f"{file}: {error}") from error
    names = [provider.name for provider in providers]
    for name in names:
        if names.count(name) > 1:
            raise BadProviders(f'duplicate provider name "{name}" found in configuration file(s)')
        if not os.access(directory / name, os.X_OK) or not (directory / name).is_file():
            raise BadProviders(f"plugin binary executable {directory / name} did not exist")
    return providers


def _bad(key: str, reason: str) -> BadProviders:
    return BadProviders(f"{key}: {reason}")


def _parse_config(document: object) -> list[Provider]:
    if not isinstance(document, dict):
        raise BadProviders(f"must be an object of kind {CONFIG_KIND}")
    group, _, version = str(document.get("apiVersion", "")).partition("/")
    if document.get("kind") != CONFIG_KIND or group != CONFIG_GROUP or version not in CONFIG_VERSIONS:
        raise BadProviders(f"must be {CONFIG_KIND} of {CONFIG_GROUP}/{CONFIG_VERSIONS[0]}")
    rows = document.get("providers")
    if not isinstance(rows, list) or not rows:
        raise _bad("providers", "Required value: at least 1 item in plugins is required")
    return [_parse_provider(row, f"providers[{number}]") for number, row in enumerate(rows)]


def _parse_provider(row: object, key: str) -> Provider:
    if not isinstance(row, dict):
        raise _bad(key, "must be an object")
    if unknown := sorted(set(map(str, row)) - _FIELDS):
        raise _bad(f"{key}.{unknown[0]}", "unknown field")
    name = _name(row, key)
    version = _text(row, "apiVersion", key)
    if version not in API_VERSIONS:
        supported = ", ".join(f'"{api_version}"' for api_version in API_VERSIONS)
        raise _bad(f"{key}.apiVersion", f'Unsupported value: "{version}": supported values: {supported}')
    patterns = row.get("matchImages")
    if (
        not isinstance(patterns, list)
        or not patterns
        or not all(isinstance(pattern, str) and pattern for pattern in patterns)
    ):
        raise _bad(f"{key}.matchImages", "Required value: at least 1 item in matchImages is required")
    duration = parse_duration(_text(row, "defaultCacheDuration", key))
    if duration is None:
        raise _bad(f"{key}.defaultCacheDuration", "Invalid value: must be a duration such as 12h or 0s")
    if row.get("tokenAttributes") is not None:
        raise _bad(f"{key}.tokenAttributes", "tokens of service accounts are not supported for providers")
    return Provider(
        name=name,
        match_images=tuple(patterns),
        default_cache=duration,
        api_version=version,
        arguments=_arguments(row.get("args") or [], f"{key}.args"),
        environment=_environment(row.get("env") or [], f"{key}.env"),
    )


def _name(row: Mapping[str, Any], key: str) -> str:
    name = _text(row, "name", key)
    for wrong, reason in (("/", "cannot contain '/'"), (" ", "cannot contain spaces")):
        if wrong in name:
            raise _bad(f"{key}.name", f'Invalid value: "{name}": provider name {reason}')
    if name in ("", ".", ".."):
        raise _bad(f"{key}.name", f"Invalid value: \"{name}\": provider name cannot be '{name}'")
    return name


def _arguments(value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise _bad(key, "must be a list of texts")
    return tuple(value)


def _environment(value: object, key: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, dict) for pair in value):
        raise _bad(key, "must be a list of name and value")
    return tuple((str(pair.get("name", "")), str(pair.get("value", ""))) for pair in value)


def _text(row: Mapping[str, Any], name: str, key: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise _bad(f"{key}.{name}", "Required value")
    return value
