"""One HTTP exchange: a request for the handler, and its answer on the wire.

Every exception of a handler becomes a Status, never a traceback.
"""

import asyncio
import gzip
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qs

from aiohttp import WSCloseCode, web
from aiohttp.web_protocol import RequestPayloadError

from podwire.protocols.k8sapi.server_side import (
    Answer,
    BodyTooLarge,
    Handler,
    Request,
    Response,
    Stream,
    Tunnel,
    Upgrade,
)
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request
from podwire.transports import http_tunnel
from podwire.transports.http_connection import (
    INTERNAL_ERROR,
    Connection,
    HttpLimits,
    closing,
    connection_of,
    head_too_large,
    status_body,
)
from podwire.transports.http_reply import WholeReply
from podwire.transports.http_websocket import WebSocket, converse, offered

log = logging.getLogger(__name__)

GZIP_FROM = 128 * 1024
"""Bodies from this size on are compressed for clients that accept it; for smaller ones time matters more than bytes."""

MAX_QUERY_FIELDS = 1000

_NO_QUERY: Mapping[str, list[str]] = {}


class Exchanges:
    """Answers requests with a handler; tracks open streams so that shutdown can end them."""

    def __init__(self, handler: Handler, limits: HttpLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._streams: set[asyncio.Timeout] = set()
        self._ending = False

    def end_streams(self) -> None:
        """Ends every open stream, and every stream that is opened later, as if its chunks had run out."""
        self._ending = True
        now = asyncio.get_running_loop().time()
        for stream in tuple(self._streams):
            stream.reschedule(now)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.used()
        if connection.certificate_end < time.time():  # as upstream: checked with every request, not only once
            return closing(ApiError(Reason.UNAUTHORIZED, "Unauthorized"))
        try:
            asked = self._read_head(request, connection)
        except ApiError as error:
            return closing(error)
        answer = await self._ask(asked)
        if isinstance(answer, Stream):
            return await self._stream(request, compressed(asked, answer) if answer.whole else answer)
        if isinstance(answer, Upgrade):
            return await self._upgrade(request, asked, answer)
        if isinstance(answer, Tunnel):
            return await self._tunnel(request, asked, answer)
        return await _whole(asked, answer, last=self._ending or _last(request))

    async def _ask(self, asked: Request) -> Answer:
        try:
            return await self._handler(asked)
        except ApiError as error:
            return Response(status=error.code, body=status_body(error), headers=error.headers)
        except BodyTooLarge as error:
            return _refused(ApiError(Reason.TOO_LARGE, str(error)))
        except RequestPayloadError:
            return _refused(bad_request("the request body could not be read"))
        except Exception:
            log.exception("HTTP handler failed unexpectedly", extra={"method": asked.method, "path": asked.path})
            return _refused(INTERNAL_ERROR)

    def _read_head(self, request: web.BaseRequest, connection: Connection) -> Request:
        target = request.raw_path
        if not target.startswith("/"):
            raise bad_request("the request target must be a path")
        path, _, query = target.partition("?")
        headers: dict[str, str] = {}
        size = len(target)
        for name, value in request.headers.items():
            size += len(name) + len(value) + 4
            lower = name.lower()
            if not value.isascii() and not _is_text(value):
                raise bad_request(f"the header {name} is not UTF-8")
            headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
        if size > self._limits.head_bytes:
            raise head_too_large(self._limits)
        if "expect" in headers and headers["expect"].lower() != "100-continue":
            raise ApiError(Reason.BAD_REQUEST, "only 100-continue can be expected", code=HTTPStatus.EXPECTATION_FAILED)
        return Request(
            method=request.method,
            path=path,
            query=_parse_query(query) if query else _NO_QUERY,
            headers=headers,
            certificate=connection.certificate,
            peer=connection.address,
            trust=connection.trust,
            read=self._reader(request, headers),
            raw_query=query,
            chunks=lambda: _body(request),
        )

    def _reader(self, request: web.BaseRequest, headers: Mapping[str, str]) -> Callable[[int], Awaitable[bytes]]:
        async def read(limit: int) -> bytes:
            declared = headers.get("content-length")
            if declared is not None and int(declared) > limit:
                raise BodyTooLarge(limit)
            if not request.body_exists:
                return b""
            if request.content.is_eof():  # all of it came with the head, as of almost every request
                data = request.content.read_nowait()
                if len(data) > limit:
                    raise BodyTooLarge(limit)
                return data
            if "expect" in headers:
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    parts: list[bytes] = []
                    size = 0
                    while part := await request.content.readany():
                        size += len(part)
                        if size > limit:
                            raise BodyTooLarge(limit)
                        parts.append(part)
                    return b"".join(parts)
            except TimeoutError as error:
                raise ApiError(
                    Reason.TIMEOUT, "the request body took too long", code=HTTPStatus.REQUEST_TIMEOUT
                ) from error

        return read

    async def _stream(self, request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
        """Sends the headers at once, then each chunk as it comes; closes the chunks however it ends.

        A shutdown ends a stream of events, but not a long body: half a list is not an answer.
        """
        headers = [("Content-Type", stream.content_type)] if stream.content_type else []
        if not any(name.lower() == "server" for name, _ in stream.headers):
            headers.append(("Server", "podwire"))
        response = web.StreamResponse(status=stream.status, headers=[*headers, *stream.headers])
        if stream.length is not None:
            response.content_length = stream.length
        elif request.version >= (1, 1):
            response.enable_chunked_encoding()
        try:
            async with asyncio.timeout(0 if self._ending and not stream.whole else None) as until:
                if not stream.whole:
                    self._streams.add(until)
                try:
                    await response.prepare(request)
                except ConnectionError:  # the client disconnected before the stream began
                    return response
                async for chunk in stream.chunks:
                    if not await _written(request, response, chunk):
                        break
        except TimeoutError:
            if not until.expired():
                raise
            response.force_close()
        finally:
            self._streams.discard(until)
            await _close(stream)
        return response

    async def _upgrade(self, request: web.BaseRequest, asked: Request, upgrade: Upgrade) -> web.StreamResponse:
        """Answers the handshake and runs the WebSocket until either side closes; always releases the upgrade."""
        try:
            socket = offered(request, asked, upgrade, close_seconds=self._limits.linger_seconds)
            return await self._converse(request, socket, upgrade)
        except ApiError as error:
            return await _whole(asked, _refused(error), last=True)
        finally:
            await upgrade.release()

    async def _converse(self, request: web.BaseRequest, socket: WebSocket, upgrade: Upgrade) -> web.StreamResponse:
        await socket.response.prepare(request)
        try:
            async with asyncio.timeout(0 if self._ending else None) as until:
                self._streams.add(until)
                await converse(socket, upgrade.run)
        except TimeoutError:
            await socket.close(WSCloseCode.GOING_AWAY)
        finally:
            self._streams.discard(until)
        return socket.response

    async def _tunnel(self, request: web.BaseRequest, asked: Request, tunnel: Tunnel) -> web.StreamResponse:
        """Hands the bytes of the connection to the tunnel until either side closes; always releases it."""
        try:
            http_tunnel.check(asked, tunnel)
            async with asyncio.timeout(0 if self._ending else None) as until:
                self._streams.add(until)
                try:
                    await http_tunnel.converse(connection_of(request).take(), tunnel)
                finally:
                    self._streams.discard(until)
        except ApiError as error:
            return await _whole(asked, _refused(error), last=True)
        except (TimeoutError, ConnectionError) as error:
            log.debug("tunnel closed by its peer", extra={"path": asked.path, "error": repr(error)})
        finally:
            await tunnel.release()
        return http_tunnel.Taken()


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """Yields the body as it comes."""
    if "Expect" in request.headers and not request.content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    while chunk := await request.content.readany():
        yield chunk


def _is_text(value: str) -> bool:
    """Returns False for bytes that are not UTF-8: the parser decoded them to lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


async def _written(request: web.BaseRequest, response: web.StreamResponse, chunk: bytes) -> bool:
    """Returns False when the client has disconnected."""
    try:
        await response.write(chunk)
        await request.writer.drain()
    except ConnectionError:
        return False
    return True


async def _close(stream: Stream) -> None:
    close = getattr(stream.chunks, "aclose", None)
    if close is not None:
        await close()


def _last(request: web.BaseRequest) -> bool:
    """A connection cannot be reused after an unread body or a rejected protocol switch."""
    return "Upgrade" in request.headers or (request.body_exists and not request.content.is_eof())


def _parse_query(query: str) -> Mapping[str, list[str]]:
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        raise bad_request(f"the query has more than {MAX_QUERY_FIELDS} fields") from error


def _refused(error: ApiError) -> Response:
    return Response(status=error.code, body=status_body(error), headers=(*error.headers, _CLOSE))


_CLOSE = ("Connection", "close")


async def _whole(asked: Request, answer: Response, *, last: bool) -> web.StreamResponse:
    body, headers = answer.body, answer.headers
    if _CLOSE in headers:
        headers, last = tuple(header for header in headers if header != _CLOSE), True
    if len(body) >= GZIP_FROM and not any(name.lower() == "content-encoding" for name, _ in headers):
        headers = (*headers, ("Vary", "Accept-Encoding"))
        if takes_gzip(asked.headers.get("accept-encoding", "")):
            headers = (*headers, ("Content-Encoding", "gzip"))
            body = await asyncio.to_thread(gzip.compress, body, 1)
    return WholeReply(answer.status, (("Content-Type", answer.content_type), *headers), body, last=last)


def compressed(asked: Request, stream: Stream) -> Stream:
    """Compresses a long body for a client that accepts it, in a thread, chunk by chunk."""
    headers = (*stream.headers, ("Vary", "Accept-Encoding"))
    if not takes_gzip(asked.headers.get("accept-encoding", "")):
        return replace(stream, headers=headers)
    return replace(stream, headers=(*headers, ("Content-Encoding", "gzip")), chunks=_gzipped(stream.chunks))


async def _gzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16)
    try:
        async for chunk in chunks:
            if part := await asyncio.to_thread(compressor.compress, chunk):
                yield part
        yield compressor.flush()
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


def takes_gzip(accepted: str) -> bool:
    """Returns whether an Accept-Encoding value names gzip with a weight other than zero."""
    for coding in accepted.split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
