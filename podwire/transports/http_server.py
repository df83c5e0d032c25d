"""The HTTP server: listens, accepts connections up to a limit, passes requests to a handler.

HTTP/1.1 only. Everything about one exchange is in `http_exchange`, about one connection in `http_connection`.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.server_side import Handler
from podwire.transports.http_connection import Connection, HttpLimits
from podwire.transports.http_connections import Connections
from podwire.transports.http_exchange import Exchanges
from podwire.transports.tapped_http import tapped_handler
from podwire.transports.tls import ServingContext

log = logging.getLogger(__name__)

KEPT_FILES = 256
"""Open files that are reserved for the rest of the program."""

BACKLOG = 1024

EVICT_SECONDS = 0.25
"""How often the server looks for an idle connection to close while a new one waits."""


async def serve(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ssl_context: ssl.SSLContext | ServingContext | None = None,
    limits: HttpLimits | None = None,
    tap: Tap | None = None,
    callee: str = "podwire",
) -> "HttpServer":
    """Listens on host and port (0: a free one) and answers with `handler` until closed.

    A tap receives every request; its caller is the user agent.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return HttpServer(tapped_handler(handler, tap, callee), listener, ssl_context, limits or HttpLimits())


class HttpServer:
    """A listening server. The owner closes it."""

    def __init__(
        self,
        handler: Handler,
        listener: socket.socket,
        ssl_context: ssl.SSLContext | ServingContext | None,
        limits: HttpLimits,
    ) -> None:
        self._listener = listener
        self._ssl = ssl_context
        self._limits = limits
        self._exchanges = Exchanges(handler, limits)
        slots = connection_slots(limits.connections)
        self._connections = Connections(
            limits.unauthenticated_per_address or max(1, slots // 4), limits.unauthenticated_idle_seconds
        )
        self._front = _Front(self._exchanges.answer, self._connections, slots=slots)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(), name="http accept")
        self._sweeping = asyncio.create_task(self._sweep(), name="http idle connections")

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    async def close(self, grace: float = 5.0) -> None:
        """Shuts down gracefully.

        1. Stop accepting.   2. End the streams, cleanly.   3. Wait up to `grace` for requests in flight.
        4. Abort the remaining connections.
        """
        stopping = [self._accepting, self._sweeping, *self._handshakes]
        for task in stopping:
            task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)
        self._listener.close()
        self._exchanges.end_streams()
        self._front.pre_shutdown()
        await self._front.shutdown(grace)
        self._front.drop_all()

    @property
    def connections(self) -> Connections:
        return self._connections

    async def _accept(self) -> None:
        """Accepts connections; for one above the limit, an idle one is closed or the next busy one that ends counts."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, address = await loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("cannot accept HTTP connection", extra={"error": str(error)})
                self._connections.evict_one()
                await asyncio.sleep(0.1)  # memory or files become available only when other connections close
                continue
            with contextlib.ExitStack() as undo:
                undo.callback(peer.close)
                await self._slot()
                undo.pop_all()
            self._begin(peer, address[0])
            del peer, address

    def _begin(self, peer: socket.socket, address: str) -> None:
        """Starts the handshake; apart from the loop above, whose variables would keep a closed connection."""
        connection = Connection(self._front, self._connections, self._limits, address)
        self._connections.add(connection)
        task = asyncio.create_task(self._handshake(connection, peer), name="http handshake")
        connection.handshake = task
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _slot(self) -> None:
        """Waits for a slot; a connection that becomes idle meanwhile has to go."""
        slots = self._front.slots
        while slots.locked():
            self._connections.evict_one()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVICT_SECONDS):
                    await slots.acquire()
                    return
        await slots.acquire()

    async def _sweep(self) -> None:
        pause = min(1.0, self._limits.unauthenticated_idle_seconds / 2)
        while True:
            await asyncio.sleep(pause)
            self._connections.sweep(asyncio.get_running_loop().time())

    async def _handshake(self, connection: Connection, peer: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                peer,
                ssl=self._ssl.current() if isinstance(self._ssl, ServingContext) else self._ssl,
                ssl_handshake_timeout=self._limits.head_seconds if self._ssl else None,
            )
        except OSError as error:  # ssl.SSLError and the handshake's time-out are OSErrors too
            log.debug("TLS handshake failed", extra={"error": str(error)})
        finally:
            connection.handshake = None
            if connection.wire is None:
                self._connections.remove(connection)
                self._front.slots.release()
                peer.close()


class _Front(web.Server):
    """Tracks the open connections; each holds a slot from before it is accepted until it is closed."""

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        connections: Connections,
        *,
        slots: int,
    ) -> None:
        super().__init__(answer, handler_cancellation=True)
        self._open = connections
        self.slots = asyncio.Semaphore(slots)
        self._wires: dict[web.RequestHandler, asyncio.Transport] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._wires[handler] = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        del self._wires[handler]
        if isinstance(handler, Connection):
            self._open.remove(handler)
        self.slots.release()

    def drop_all(self) -> None:
        """Aborts the remaining connections; unsent bytes are lost."""
        for wire in tuple(self._wires.values()):
            wire.abort()


def connection_slots(requested: int) -> int:
    """Returns as many connections as the open-files limit allows beside the program's own files.

    Raises that limit as far as this process may: 1024, the usual one, is for programs that use select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return requested if soft == resource.RLIM_INFINITY else max(1, min(requested, soft - KEPT_FILES))
