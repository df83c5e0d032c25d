"""Hosts that serve a registry's images, by containerd's `certs.d/REGISTRY/hosts.toml`.

    server = "https://registry.example"          where images are asked for last

    [host."https://mirror.example"]              mirrors, asked first, in this order
      capabilities = ["pull", "resolve"]
      ca = "mirror.crt"                           and client, skip_verify, header, override_path

`resolve` asks what a tag means: a mirror that may be behind lacks it. `pull` reads what has a digest.

`server` is the registry, whatever its name, and gets the login for it. A mirror gets none; containerd would send it the
registry's password if it asked.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

RESOLVE, PULL = "resolve", "pull"
_CAPABILITIES = (RESOLVE, PULL, "push", "referrers")
HUB, HUB_HOST = "docker.io", "registry-1.docker.io"
"""The default registry's name in references, and the host that serves it."""


class BadHosts(ValueError):
    """A `hosts.toml` is invalid; names the field."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of certificates; `client` are pairs of a certificate and its key, which may be one file."""

    ca: tuple[str, ...] = ()
    client: tuple[tuple[str, str], ...] = ()
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of a registry. `base` is a URL up to and including `/v2`, without the last slash."""

    base: str
    resolves: bool = True
    pulls: bool = True
    tls: Tls = Tls()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    mirrors: bool = False
    """Has another name than the registry, and may serve several: the parameter `ns` of a request names it."""
    gets_login: bool = True
    """Whether the credentials for the registry may be sent to it."""
    plain_fallback: bool = False
    """Speaks plain HTTP if it does not speak TLS: loopback only."""

    @property
    def name(self) -> str:
        return urlsplit(self.base).netloc


def default_hosts(registry: str, tls: Tls | None = None) -> list[Host]:
    """Returns the host of a registry that has no configuration; one on loopback may speak plain HTTP."""
    host = HUB_HOST if registry == HUB else registry
    return [Host(base=f"https://{host}/v2", tls=tls or Tls(), plain_fallback=_is_loopback(registry))]


def directories(registry: str) -> list[str]:
    """Returns the names of a registry's directory in `certs.d`, best first."""
    name, colon, port = registry.rpartition(":")
    underscored = [f"{name}_{port}_"] if colon and port.isdigit() else []
    return [*underscored, registry, "_default"]


def parse_hosts(text: str, registry: str, directory: str) -> list[Host]:
    """Returns the hosts of a `hosts.toml`, in the order in which they are asked. Raises BadHosts.

    Relative paths of certificates are below `directory`.
    """
    import tomllib  # noqa: PLC0415 - its patterns take 7 ms to compile, and few nodes have such a file

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadHosts(f"is not TOML: {error}") from error
    tables = document.pop("host", {})
    if not isinstance(tables, dict):
        raise BadHosts('host: must be tables such as [host."https://mirror"]')
    hosts = [_host(_table(table, f'host."{url}"'), url, f'host."{url}"', directory) for url, table in tables.items()]
    url = _text(document.pop("server", ""), "server")
    fallback = default_hosts(registry)[0]
    if url:
        server = _host(document, url, "server", directory)
    else:
        server = _host(document, fallback.base, "server", directory, override=True)
        server = replace(server, plain_fallback=fallback.plain_fallback)
    own = {fallback.name, registry}
    trusted = own | {server.name}
    return [replace(host, mirrors=host.name not in own, gets_login=host.name in trusted) for host in (*hosts, server)]


def _host(table: Mapping[str, Any], url: str, where: str, directory: str, *, override: bool = False) -> Host:
    known = {"capabilities", "ca", "client", "skip_verify", "header", "override_path", "dial_timeout"}
    if unknown := sorted(set(table) - known):
        raise BadHosts(f"{where}.{unknown[0]}: unknown field; known are {', '.join(sorted(known))}")
    capabilities = _texts(table.get("capabilities", [RESOLVE, PULL]), f"{where}.capabilities")
    if wrong := [name for name in capabilities if name not in _CAPABILITIES]:
        raise BadHosts(f"{where}.capabilities: {wrong[0]!r} is not one of {', '.join(_CAPABILITIES)}")
    paths = _Paths(directory)
    tls = Tls(
        ca=tuple(map(paths.whole, _texts(table.get("ca", []), f"{where}.ca"))),
        client=tuple(_clients(table.get("client", []), f"{where}.client", paths)),
        verify=not _flag(table.get("skip_verify", False), f"{where}.skip_verify"),
    )
    header = _table(table.get("header", {}), f"{where}.header")
    headers = [(name, text) for name, value in header.items() for text in _texts(value, f"{where}.header.{name}")]
    return Host(
        base=_base(url, where, override or _flag(table.get("override_path", False), f"{where}.override_path")),
        resolves=RESOLVE in capabilities,
        pulls=PULL in capabilities,
        tls=tls,
        headers=tuple(headers),
    )


@dataclass(frozen=True, slots=True)
class _Paths:
    directory: str

    def whole(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.directory}/{path}"


def _clients(value: object, where: str, paths: _Paths) -> Iterable[tuple[str, str]]:
    """A file with both, several of them, or pairs of a certificate and a key."""
    rows = value if isinstance(value, list) else [value]
    for number, row in enumerate(rows):
        files = _texts(row, f"{where}[{number}]")
        if len(files) not in (1, 2):
            raise BadHosts(f"{where}[{number}]: must be a certificate, or a certificate and its key")
        yield paths.whole(files[0]), paths.whole(files[-1] or files[0])


def _base(url: str, where: str, override: bool) -> str:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise BadHosts(f"{where}: {url[:200]!r} is not the URL of a registry")
    path = parts.path.rstrip("/")
    if not override and not path.endswith("/v2"):
        path += "/v2"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadHosts(f"{where}: must be text")
    return value


def _texts(value: object, where: str) -> Sequence[str]:
    """One text, or a list of texts."""
    return [_text(item, where) for item in (value if isinstance(value, list) else [value])]


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadHosts(f"{where}: must be true or false")
    return value


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadHosts(f"{where}: must be a table")
    return value


def _is_loopback(registry: str) -> bool:
    name = urlsplit(f"//{registry}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
