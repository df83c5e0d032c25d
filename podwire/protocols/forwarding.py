"""Rules of a reverse proxy, as upstream's API server applies them to pods, services and nodes. Pure.

Headers that belong to one connection stay there (RFC 9110, section 7.6.1). A backend does not know the path under which
clients see it, so its redirects and the links of its HTML pages that are absolute paths get the prefix of the proxy.
"""

import html
import posixpath
import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit, urlunsplit

Headers = list[tuple[str, str]]

HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
                        "te", "trailer", "transfer-encoding", "upgrade"})  # fmt: skip
_CREDENTIALS = re.compile("authorization|impersonate-.*|x-remote-(user|uid|group|extra-.*)")
"""Headers for the API server itself."""
_CORS = frozenset({"access-control-allow-credentials", "access-control-allow-headers",
                   "access-control-allow-methods", "access-control-allow-origin"})  # fmt: skip


def request_headers(headers: Mapping[str, str], peer: str) -> Headers:
    """Returns the headers for the backend, without credentials; names are in lower case."""
    named = _named_by_connection(headers.get("connection", ""))
    forwarded = headers.get("x-forwarded-for", "")
    kept = [
        (name, value)
        for name, value in headers.items()
        if name not in HOP_BY_HOP and name not in named and not _CREDENTIALS.fullmatch(name)
    ]
    if not peer:
        return kept
    kept = [(name, value) for name, value in kept if name != "x-forwarded-for"]
    return [*kept, ("x-forwarded-for", f"{forwarded}, {peer}" if forwarded else peer)]


def response_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """Returns the headers for the client."""
    headers = list(headers)
    named = _named_by_connection(", ".join(value for name, value in headers if name.lower() == "connection"))
    dropped = HOP_BY_HOP | _CORS | named
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def _named_by_connection(connection: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in connection.split(",") if name.strip())


class Links:
    """Rewrites URLs of one backend so that they lead through the proxy."""

    def __init__(self, *, backend: str, host: str, prefix: str) -> None:
        """`backend` is the backend's host and port, `host` the request's Host header, `prefix` the proxy's path."""
        self._backend = backend
        self._host = host
        self._prefix = prefix

    def rewrite(self, url: str) -> str:
        """Returns the URL through the proxy; URLs of other hosts, relative and invalid ones stay as they are."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return url
        host = parts.netloc.rpartition("@")[2]
        if (host and host not in (self._backend, self._host)) or not parts.path.startswith("/"):
            return url
        if host != self._host or not host:
            parts = parts._replace(scheme="", netloc="")
        return urlunsplit(self._below_prefix(parts))

    def _below_prefix(self, parts: SplitResult) -> SplitResult:
        if parts.path.startswith(self._prefix):
            return parts
        path = posixpath.normpath(f"{self._prefix}/{parts.path}")
        return parts._replace(path=f"{path}/" if parts.path.endswith("/") else path)


LINKS: Mapping[bytes, frozenset[bytes]] = {
    tag: frozenset(attributes.split())
    for tag, attributes in {
        b"a": b"href", b"applet": b"codebase", b"area": b"href", b"audio": b"src", b"base": b"href",
        b"blockquote": b"cite", b"body": b"background", b"button": b"formaction", b"command": b"icon", b"del": b"cite",
        b"embed": b"src", b"form": b"action", b"frame": b"longdesc src", b"head": b"profile", b"html": b"manifest",
        b"iframe": b"longdesc src", b"img": b"longdesc src usemap", b"input": b"src usemap formaction", b"ins": b"cite",
        b"link": b"href", b"object": b"classid codebase data usemap", b"q": b"cite", b"script": b"src",
        b"source": b"src", b"video": b"poster src",
    }.items()
}  # fmt: skip
"""Attributes that are URLs, by tag."""
MAX_TAG = 64 * 1024
"""Bytes of a tag that are looked at; a longer one passes as it is."""
_RAW = frozenset({b"iframe", b"noembed", b"noframes", b"plaintext", b"script", b"style", b"textarea", b"title", b"xmp"})
"""Elements whose content is text, whatever it looks like."""
_TAG = re.compile(
    rb"""<([a-zA-Z][^\s/>]*+)"""
    rb"""((?>\s++|/|=|[^\s/>="'][^\s/>=]*+(?>\s*+=\s*+(?>"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+)*+)>"""
)
_ATTRIBUTE = re.compile(rb"""([^\s/>="'][^\s/>=]*+)(\s*+=\s*+)("[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)""")


class HtmlRewriter:
    """Rewrites the links of an HTML page that comes in pieces; keeps at most one unfinished tag.

    Everything but the value of a rewritten attribute passes byte for byte.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._rest = b""
        self._end: re.Pattern[bytes] | None = None
        """The end of the comment or of the raw text in which the page is at present."""

    def feed(self, data: bytes) -> bytes:
        page, position, output = self._rest + data, 0, []
        while True:
            if self._end is not None:
                found = self._end.search(page, position)
                stop = found.end() if found else max(position, len(page) - 16)
                output.append(page[position:stop])
                position = stop
                if not found:
                    break
                self._end = None
            start = page.find(b"<", position)
            output.append(page[position : start if start >= 0 else len(page)])
            position = start if start >= 0 else len(page)
            if start < 0 or len(page) - start < 4:
                break
            text = self._markup(page, start)
            if text is None:
                if len(page) - start <= MAX_TAG:
                    break
                text = b"<", start + 1
            output.append(text[0])
            position = text[1]
        self._rest = page[position:]
        return b"".join(output)

    def close(self) -> bytes:
        """Returns what is left."""
        rest, self._rest = self._rest, b""
        tag = _TAG.fullmatch(rest) if self._end is None else None
        return self._tag(tag) if tag else rest

    def _markup(self, page: bytes, start: int) -> tuple[bytes, int] | None:
        """Returns what replaces the markup at this position, and where it ends; None for an unfinished tag."""
        if page.startswith(b"<!--", start):
            self._end = re.compile(b"-->")
            return b"<!--", start + 4
        if not page[start + 1 : start + 2].isalpha():
            return b"<", start + 1
        tag = _TAG.match(page, start)
        if tag is None:
            return None
        if (name := tag[1].lower()) in _RAW:
            self._end = re.compile(rb"</" + name + rb"(?=[\s/>])", re.IGNORECASE)
        return self._tag(tag), tag.end()

    def _tag(self, tag: re.Match[bytes]) -> bytes:
        urls = LINKS.get(tag[1].lower())
        if urls is None:
            return tag[0]

        def attribute(found: re.Match[bytes]) -> bytes:
            if found[1].lower() not in urls:
                return found[0]
            old = html.unescape(found[3].strip(b"\"'").decode("utf-8", "surrogateescape"))
            new = self._links.rewrite(old)
            if new == old:
                return found[0]
            return b'%b%b"%b"' % (found[1], found[2], html.escape(new).encode("utf-8", "surrogateescape"))

        return b"<%b%b>" % (tag[1], _ATTRIBUTE.sub(attribute, tag[2]))
