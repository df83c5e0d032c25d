"""The URL of an OpenTelemetry collector, as users write it. Pure."""

from urllib.parse import urlsplit, urlunsplit

PATH = "/v1/traces"


class BadEndpoint(ValueError):
    """The URL cannot be used."""


def endpoint(url: str) -> str:
    """Returns the URL for spans; a URL without a path gets /v1/traces. Raises BadEndpoint."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise BadEndpoint(f"{url!r}: {error}") from error
    if not named or not url.isprintable() or " " in url:
        raise BadEndpoint(f"{url!r} is not a collector URL; expected http://HOST[:PORT][/PATH]")
    return urlunsplit(parts._replace(path=parts.path if parts.path not in ("", "/") else PATH, fragment=""))


def shown(url: str) -> str:
    """Returns an endpoint without its password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
