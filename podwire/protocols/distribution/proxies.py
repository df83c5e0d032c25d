"""Proxies by the environment of the process, by the rules of Go's programs and so of containerd (pure).

    HTTP_PROXY, HTTPS_PROXY   the proxy for URLs of this scheme: http://[USER:PASSWORD@]HOST[:PORT], or HOST:PORT
    NO_PROXY                  hosts that are asked directly, separated by commas: `*` for all, an address, a network,
                              a name with those below it, `.NAME` for those below it alone; but for networks, a
                              `:PORT` may follow

Names of variables may be in lower case, too; upper case comes first. `localhost` and loopback addresses are always
asked directly. Names are not resolved: an address in NO_PROXY counts for URLs with that address.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


class BadProxy(ValueError):
    """A variable of the environment is not the URL of a proxy; names the variable, never its password."""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxy of each scheme, and hosts that need none."""

    by_scheme: Mapping[str, str] = field(default_factory=dict, repr=False)
    direct: tuple[str, ...] = ()

    def find(self, url: str) -> str:
        """Returns the proxy for a URL; empty if its host is asked directly."""
        parts = urlsplit(url)
        proxy = self.by_scheme.get(parts.scheme, "")
        if not proxy or self._is_direct((parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]):
            return ""
        return proxy

    def _is_direct(self, host: str, port: int) -> bool:
        if host == "localhost":
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return any(_names(entry, host, port) for entry in self.direct)
        return address.is_loopback or any(_covers(entry, address, port) for entry in self.direct)


def parse_proxies(environ: Mapping[str, str]) -> Proxies:
    """Raises BadProxy."""
    urls = {scheme: _parse_url(environ, f"{scheme.upper()}_PROXY") for scheme in _PORTS}
    entries = (entry.strip().lower() for entry in _variable(environ, "NO_PROXY").split(","))
    return Proxies({scheme: url for scheme, url in urls.items() if url}, tuple(filter(None, entries)))


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _parse_url(environ: Mapping[str, str], name: str) -> str:
    text = _variable(environ, name).strip()
    if not text:
        return ""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        known = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise BadProxy(f"{name}: is not the URL of a proxy that is supported, which is http://HOST:PORT")
    return url


def _split_port(entry: str) -> tuple[str, int | None]:
    """`[::1]:80` and `name:80` to name and port; a bare IPv6 address has none."""
    host, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return entry.strip("[]"), None


def _names(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, only = _split_port(entry)
    if only not in (None, port):
        return False
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _covers(entry: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> bool:
    if entry == "*":
        return True
    try:
        if "/" in entry:
            return address in ipaddress.ip_network(entry, strict=False)
        text, only = _split_port(entry)
        return ipaddress.ip_address(text) == address and only in (None, port)
    except ValueError:
        return False
