"""Logins of Docker's `config.json`, as files and as Secrets have them, and which of them fit a repository."""

import base64
import binascii
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from podwire.protocols.distribution.hosts import HUB
from podwire.protocols.distribution.tokens import Login

T = TypeVar("T")
HUB_ALIAS = "index.docker.io"
"""The name of the default registry in old files."""


class BadConfig(ValueError):
    """A file or Secret without valid logins; never has their content."""


def parse_config(data: bytes) -> Mapping[str, Mapping[str, Any]]:
    """Returns the logins of a `config.json` by registry. Raises BadConfig."""
    return _logins(data, "auths")


def parse_old_config(data: bytes) -> Mapping[str, Mapping[str, Any]]:
    """Returns the logins of a `.dockercfg`, which has them at its top. Raises BadConfig."""
    return _logins(data, "")


def matching(repository: str, logins: Iterable[tuple[str, Mapping[str, Any]]]) -> Sequence[Login]:
    """Returns the logins for a repository, the most specific first: those of a path before those of its registry.

    Raises BadConfig for a login that fits and cannot be read.
    """
    return [read_login(login) for login in fitting(repository, logins)]


def fitting(repository: str, logins: Iterable[tuple[str, T]]) -> Sequence[T]:
    """Returns those of anything by registry that are for a repository, in the same order."""
    scoped = [(_scope(key), login) for key, login in logins]
    found = [pair for pair in scoped if _matches(pair[0], repository)]
    if not found and repository.partition("/")[0] == HUB:
        found = [pair for pair in scoped if pair[0] == HUB_ALIAS]
    return [login for _, login in sorted(found, key=lambda pair: pair[0], reverse=True)]


def matches(pattern: str, repository: str) -> bool:
    """Whether a pattern such as *.registry.example:5000/team is for a repository."""
    return _matches(_scope(pattern), repository)


def _logins(data: bytes, key: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        document = msgspec.json.decode(data)
        logins = document.get(key, {}) if key else document
        return {scope: dict(login) for scope, login in logins.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadConfig("is not a list of logins") from error


def _scope(key: str) -> str:
    """HOST[:PORT][/PATH]; the API version that Docker appends to the host is ignored."""
    url = urlsplit(key if key.startswith(("http://", "https://")) else f"https://{key}")
    path = url.path[3:] if url.path.startswith(("/v1/", "/v2/")) else url.path
    return url.netloc + ("" if path == "/" else path)


def _matches(scope: str, repository: str) -> bool:
    """Hosts are compared label by label, so that * matches within one; paths by prefix."""
    (host, _, path), (wanted_host, _, wanted) = scope.partition("/"), repository.partition("/")
    (name, _, port), (wanted_name, _, wanted_port) = host.partition(":"), wanted_host.partition(":")
    parts, wanted_parts = name.split("."), wanted_name.split(".")
    return (
        port == wanted_port
        and len(parts) == len(wanted_parts)
        and all(map(fnmatch.fnmatchcase, wanted_parts, parts))
        and wanted.startswith(path)
    )


def read_login(login: Mapping[str, Any]) -> Login:
    """Raises BadConfig."""
    identity, registry = str(login.get("identitytoken", "")), str(login.get("registrytoken", ""))
    if not login.get("auth"):
        return Login(str(login.get("username", "")), str(login.get("password", "")), identity, registry)
    try:
        name, colon, password = base64.b64decode(login["auth"]).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, TypeError, ValueError) as error:
        raise BadConfig("auth: must be base64") from error
    if not colon:
        raise BadConfig("auth: must be formatted as base64(username:password)")
    return Login(name, password.rstrip("\0"), identity, registry)
