"""Server-side WebSockets, on aiohttp: the handshake, and the socket that a handler works with."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from aiohttp import WSCloseCode, WSMsgType, web

from podwire.protocols.k8sapi.server_side import Request, Socket, Upgrade
from podwire.protocols.k8sapi.status import bad_request
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.dialects import Dialect

log = logging.getLogger(__name__)

_DATA = frozenset({WSMsgType.BINARY, WSMsgType.TEXT})
_Response = web.WebSocketResponse[Literal[True]]


class WebSocket:
    """Implements podwire.protocols.k8sapi.server_side.Socket."""

    def __init__(self, response: _Response, protocol: str) -> None:
        self.response = response
        self._dialect = Dialect(protocol)

    @property
    def protocol(self) -> str:
        return self._dialect.protocol

    async def receive(self) -> bytes | str | None:
        if self.response.closed:
            return None
        message = await self.response.receive()
        if message.type not in _DATA:
            return None
        try:
            return self._dialect.decode(message.data)
        except Violation as error:
            log.debug("WebSocket peer violated its subprotocol", extra={"error": str(error)})
            await self.close(WSCloseCode.UNSUPPORTED_DATA)
            return None

    async def send(self, data: bytes) -> None:
        message = self._dialect.encode(data)
        if isinstance(message, str):
            await self.response.send_str(message)
        elif message is not None:
            await self.response.send_bytes(message)

    async def close(self, code: int = WSCloseCode.OK) -> None:
        with contextlib.suppress(ConnectionError):
            await self.response.close(code=code)


def offered(request: web.BaseRequest, asked: Request, upgrade: Upgrade, *, close_seconds: float) -> WebSocket:
    """Returns the socket that the client requests, before the handshake is answered. Raises ApiError."""
    if "websocket" not in asked.headers.get("upgrade", "").lower():
        raise bad_request("this is served over a WebSocket only: an upgrade to one is required")
    protocol = choose(asked.headers, upgrade.protocols)
    response: _Response = web.WebSocketResponse(
        protocols=(protocol,),
        timeout=close_seconds,
        max_msg_size=upgrade.max_message,
        compress=False,  # terminals do not profit, and a small message could decompress into a huge one
    )
    if not response.can_prepare(request).ok:
        raise bad_request("the WebSocket handshake violates RFC 6455")
    response.headers["Server"] = "podwire"
    if protocol:
        response.headers["Sec-WebSocket-Protocol"] = protocol
    return WebSocket(response, protocol)


def choose(headers: Mapping[str, str], protocols: tuple[str, ...]) -> str:
    """Returns the first subprotocol of the client that is served. Raises ApiError."""
    requested = [protocol.strip() for protocol in headers.get("sec-websocket-protocol", "").split(",")]
    for protocol in requested:
        if protocol in protocols:
            return protocol
    served = ", ".join(filter(None, protocols)) or "none"
    raise bad_request(f"no subprotocol of {', '.join(requested) or 'none'} is served here, but {served}")


async def converse(socket: WebSocket, run: Callable[[Socket], Awaitable[None]]) -> None:
    """Runs the handler; the close code reports success or failure to the peer."""
    try:
        await run(socket)
    except ConnectionError as error:
        log.debug("WebSocket peer disconnected early", extra={"error": str(error)})
    except Exception:
        log.exception("WebSocket handler failed unexpectedly", extra={"protocol": socket.protocol})
        await socket.close(WSCloseCode.INTERNAL_ERROR)
    else:
        await socket.close()
