"""Forwards requests to backends as a reverse proxy: from the API server to pods, services and nodes.

Method, query, headers and body reach the backend as the client sent them, and the answer comes back in the same way;
both are streamed, so no body is ever held whole. A request to switch protocols (WebSocket, SPDY or any other) becomes a
tunnel of bytes once the backend has switched. `protocols/forwarding.py` says what is changed on the way.
"""

import contextlib
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from podwire.protocols.forwarding import HtmlRewriter, Links, request_headers, response_headers
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream, Tunnel
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports import http_upgrade_client
from podwire.transports.http_client import keepalive_socket
from podwire.transports.http_relay import backend_chunks, carry_bytes, reason_of
from podwire.transports.http_websocket_client import HandshakeRefused
from podwire.transports.tls_reading import WholeResponse

_AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that the HTTP client would add by itself."""
_GZIP, _DEFLATE = zlib.MAX_WBITS | 16, -zlib.MAX_WBITS
_ENCODINGS = {"": 0, "identity": 0, "gzip": _GZIP, "deflate": _DEFLATE}
PIECE = 64 * 1024
"""Bytes of a compressed page that are decompressed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardLimits:
    """Limits of connections to backends, in seconds and bytes."""

    connect_seconds: float = 10.0
    upgrade_seconds: float = 30.0
    """From the connection to the backend's answer to a request to switch protocols."""
    head_bytes: int = 64 * 1024


@contextlib.asynccontextmanager
async def forwarder(limits: ForwardLimits | None = None) -> AsyncIterator["Forwarder"]:
    """Yields a forwarder; its connections are closed at the end."""
    limits = limits or ForwardLimits()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=keepalive_socket),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_AUTOMATIC,
        max_line_size=limits.head_bytes,
        max_field_size=limits.head_bytes,
        response_class=WholeResponse,
    ) as session:
        yield Forwarder(session, limits)


class Forwarder:
    """Sends requests to backends and rewrites what leads back to them."""

    def __init__(self, session: aiohttp.ClientSession, limits: ForwardLimits) -> None:
        self._session = session
        self._limits = limits

    async def forward(
        self,
        url: str,
        request: Request,
        *,
        prefix: str,
        context: ssl.SSLContext | None = None,
        server_name: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """Returns the backend's answer to the request at this URL. Raises ApiError when there is none.

        `prefix` is the path under which the client sees the backend; `context` is for https; `server_name` is the name
        in the backend's certificate, where it is not the URL's host; `headers` are set besides the client's.
        """
        own = {name.lower() for name, _ in headers}
        sent = [(name, value) for name, value in request_headers(request.headers, request.peer) if name not in own]
        path = urlsplit(url).path
        sent += [*headers, ("x-forwarded-uri", f"{prefix}{path}" if path else prefix)]
        if "upgrade" in request.headers.get("connection", "").lower() and request.headers.get("upgrade"):
            return await self._upgrade(url, request, sent, context, server_name)
        return await self._answer(url, request, sent, prefix, context, server_name)

    async def _answer(
        self,
        url: str,
        request: Request,
        headers: list[tuple[str, str]],
        prefix: str,
        context: ssl.SSLContext | None,
        server_name: str,
    ) -> Stream:
        if has_body(request):
            body = request.body()
        else:
            body, headers = None, [(name, value) for name, value in headers if name != "content-length"]
        try:
            response = await self._session.request(
                request.method,
                URL(url, encoded=True),
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=context or True,
                server_hostname=server_name or None,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an answer that is not HTTP
            reason = reason_of(error, url, self._limits.connect_seconds)
            raise ApiError(Reason.SERVICE_UNAVAILABLE, f"error trying to reach service: {reason}") from error
        links = Links(backend=urlsplit(url).netloc, host=request.headers.get("host", ""), prefix=prefix)
        return _as_stream(response, request, links)

    async def _upgrade(
        self,
        url: str,
        request: Request,
        headers: list[tuple[str, str]],
        context: ssl.SSLContext | None,
        server_name: str,
    ) -> Tunnel | Response:
        protocol = request.headers["upgrade"]
        try:
            far, fields = await http_upgrade_client.switch(
                url,
                request.method,
                [*headers, ("connection", "Upgrade"), ("upgrade", protocol)],
                seconds=self._limits.upgrade_seconds,
                context=context,
                server_name=server_name,
            )
        except HandshakeRefused as refusal:
            if refusal.status < HTTPStatus.BAD_REQUEST:
                message = f"invalid upgrade response: status code {refusal.status}"
                raise ApiError(Reason.UNKNOWN, message, code=500) from refusal
            return Response(status=refusal.status, body=refusal.body, content_type=refusal.content_type)
        except OSError as error:  # TimeoutError is one, too
            reason = reason_of(error, url, self._limits.upgrade_seconds)
            raise ApiError(Reason.UNKNOWN, f"error dialing backend: {reason}", code=500) from error
        return Tunnel(
            protocol=protocol,
            headers=tuple(header for header in response_headers(fields) if header[0].lower() != "server"),
            run=lambda near: carry_bytes(near, far),
            release=far.close,
        )


def has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _as_stream(response: aiohttp.ClientResponse, request: Request, links: Links) -> Stream:
    """Returns the answer of a backend: its Location rewritten, and the links of a page in HTML."""
    fields = [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in response.raw_headers]
    headers = response_headers(fields)
    length = response.content_length
    chunks = backend_chunks(response)
    if location := response.headers.get("Location"):
        headers = [(name, links.rewrite(location) if name.lower() == "location" else value) for name, value in headers]
    elif response.content_type == "text/html" and "Content-Type" in response.headers and request.method != "HEAD":
        encoding = _ENCODINGS.get(response.headers.get("Content-Encoding", "").lower())
        if encoding is not None:  # a page in another encoding passes as it is
            length, chunks = None, rewritten(chunks, HtmlRewriter(links), encoding)
    return Stream(
        chunks=chunks,
        status=response.status,
        content_type=response.headers.get("Content-Type", ""),
        headers=tuple((name, value) for name, value in headers if name.lower() not in _OWN_FIELDS),
        length=length,
    )


_OWN_FIELDS = frozenset({"content-type", "content-length"})
"""Fields of a Stream."""


async def rewritten(
    chunks: AsyncGenerator[bytes, None], page: HtmlRewriter, encoding: int
) -> AsyncGenerator[bytes, None]:
    """Yields a page with its links rewritten, in the same encoding (zlib's `wbits`; 0 for none)."""
    opened = zlib.decompressobj(encoding) if encoding else None
    packed = zlib.compressobj(wbits=encoding) if encoding else None
    try:
        async for chunk in chunks:
            data = chunk
            while data:
                if opened is None:
                    text, data = data, b""
                else:
                    text = opened.decompress(data, PIECE)
                    data = opened.unconsumed_tail
                text = page.feed(text)
                if part := packed.compress(text) if packed else text:
                    yield part
        text = page.feed(opened.flush() if opened else b"") + page.close()
        if part := packed.compress(text) + packed.flush() if packed else text:
            yield part
    except zlib.error as error:
        raise ConnectionResetError(f"the backend sent a page that cannot be decompressed: {error}") from error
    finally:
        await chunks.aclose()
