"""Parses etcd URLs: `etcd://HOST:PORT[,HOST:PORT…][?prefix=/registry&ca=FILE&cert=FILE&key=FILE]`. Pure."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from podwire.store.errors import BadUrl

SCHEME = "etcd://"
PREFIX = "/registry"
PORT = 2379
_OPTIONS = ("ca", "cert", "key", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Endpoints as HOST:PORT; TLS if `ca` is set; `cert` and `key` for client certificates."""

    endpoints: tuple[str, ...]
    prefix: str = PREFIX
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def parse(url: str) -> Address:
    """Parses a URL; raises BadUrl."""
    if not url.startswith(SCHEME):
        raise BadUrl(f"{url}: does not begin with {SCHEME}")
    hosts, _, query = url.removeprefix(SCHEME).partition("?")  # urlsplit does not support a list of hosts
    hosts, _, path = hosts.partition("/")
    if path:
        raise BadUrl(f"{url}: a path is given as ?prefix=/…")
    options = _options(url, query)
    if bool(options.get("cert")) != bool(options.get("key")):
        raise BadUrl(f"{url}: cert and key must be given together")
    if options.get("cert") and not options.get("ca"):
        raise BadUrl(f"{url}: cert and key need ca")
    prefix = options.get("prefix", PREFIX)
    if not prefix.startswith("/") or prefix.endswith("/"):
        raise BadUrl(f"{url}: prefix={prefix} must begin with '/' and not end in it")
    return Address(
        endpoints=tuple(_endpoint(url, part) for part in hosts.split(",")),
        prefix=prefix,
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )


def _options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise BadUrl(f"{url}: unknown option {name!r} (known: {', '.join(_OPTIONS)})")
        if not value:
            raise BadUrl(f"{url}: option {name} is empty")
        options[name] = value
    return options


def _endpoint(url: str, text: str) -> str:
    try:
        one = urlsplit(f"//{text}")
        host, port = one.hostname, one.port
    except ValueError as error:
        raise BadUrl(f"{url}: {text!r} is not HOST:PORT: {error}") from error
    if not host or one.username is not None:
        raise BadUrl(f"{url}: {text!r} is not HOST:PORT")
    return f"[{host}]:{port or PORT}" if ":" in host else f"{host}:{port or PORT}"
