"""The URL library: absolute URLs and absolute paths, as Go's ParseRequestURI takes them."""

import re
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from podwire.protocols.cel.types import BOOL, STRING, URL, Function, Opaque, list_of, map_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_SAFE = "/!$&'()*+,;=:@%-._~"


def parse_url(text: str) -> SplitResult:
    words = f'URL parse error during conversion from string: parse "{text}"'
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise ValueError(f"{words}: net/url: invalid control character in URL")
    if not text.startswith("/") and not _SCHEME.match(text):
        raise ValueError(f"{words}: invalid URI for request")
    if bad := _ESCAPE.search(text):
        raise ValueError(f'{words}: invalid URL escape "{text[bad.start() : bad.start() + 3]}"')
    try:
        split = urlsplit(text, allow_fragments=False)
        _ = split.port
    except ValueError as error:
        raise ValueError(f"{words}: {error}") from None
    if " " in split.netloc:
        raise ValueError(f'{words}: invalid character " " in host name')
    return split


def is_url(text: str) -> bool:
    try:
        parse_url(text)
    except ValueError:
        return False
    return True


def host(url: SplitResult) -> str:
    """With the port, without the user."""
    return url.netloc.rpartition("@")[2]


def hostname(url: SplitResult) -> str:
    found = host(url)
    if found.startswith("["):
        return found[1:].partition("]")[0]
    return found.partition(":")[0]


def port(url: SplitResult) -> str:
    return "" if url.port is None else str(url.port)


def query(url: SplitResult) -> dict[str, list[str]]:
    return parse_qs(url.query, keep_blank_values=True)


OPAQUE = Opaque(URL, (SplitResult,), SplitResult.geturl, parse_url)

FUNCTIONS = (
    Function("url", (STRING,), URL, parse_url, member=False),
    Function("isURL", (STRING,), BOOL, is_url, member=False),
    Function("getScheme", (URL,), STRING, lambda url: url.scheme),
    Function("getHost", (URL,), STRING, host),
    Function("getHostname", (URL,), STRING, hostname),
    Function("getPort", (URL,), STRING, port),
    Function("getEscapedPath", (URL,), STRING, lambda url: quote(url.path, safe=_PATH_SAFE)),
    Function("getQuery", (URL,), map_of(STRING, list_of(STRING)), query),
)
