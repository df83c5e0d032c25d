"""Where a collector of OpenTelemetry listens, as people write it. Pure."""

from urllib.parse import urlsplit, urlunsplit

PATH = "/v1/traces"


class BadEndpoint(ValueError):
    """A URL to which nothing can be sent."""


def endpoint(url: str) -> str:
    """Where spans are posted to; a URL without a path gets the usual one. Raises BadEndpoint."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise BadEndpoint(f"{url!r}: {error}") from error
    if not named or not url.isprintable() or " " in url:
        raise BadEndpoint(f"{url!r} is no http://HOST[:PORT][/PATH] of a collector")
    return urlunsplit(parts._replace(path=parts.path if parts.path not in ("", "/") else PATH, fragment=""))


def shown(url: str) -> str:
    """An endpoint without the password that may be in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
