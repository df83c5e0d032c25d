"""Sockets of DNS: listeners for UDP and TCP, and queries to other servers.

Listeners can be bound by one process and served by another that it forks: while the server restarts, datagrams and
connections wait in the kernel instead of being refused.
"""

import asyncio
import contextlib
import errno
import inspect
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

_log = logging.getLogger("podwire.dns")

Handler = Callable[[bytes, str], bytes | Awaitable[bytes | None] | None]

LARGEST_QUERY = 4096
"""A longer query is malformed; the largest valid one has a name of 255 bytes and some options."""
LARGEST_ANSWER = 65535
BATCH = 64
"""Datagrams that are answered before other work of the event loop."""
RECEIVE_BUFFER = 4 << 20
BACKLOG = 512
_SO_RCVBUFFORCE = 33
_IP_FREEBIND, _IPV6_FREEBIND = 15, 78
_LENGTH = struct.Struct("!H")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    waiting: int = 2_000
    """Queries that are not answered yet; further ones are dropped."""
    connections: int = 512
    connections_per_address: int = 128
    idle: float = 10.0
    """Seconds without a query after which a connection is closed."""


@dataclass(slots=True)
class Listeners:
    """Bound sockets of one server: the same addresses and port for UDP and TCP."""

    port: int
    udp: list[socket.socket] = field(default_factory=list)
    tcp: list[socket.socket] = field(default_factory=list)

    def filenos(self) -> list[int]:
        return [sock.fileno() for sock in (*self.udp, *self.tcp)]

    def close(self) -> None:
        for sock in (*self.udp, *self.tcp):
            sock.close()


def bind(addresses: Sequence[str], port: int) -> Listeners:
    """Binds a port (0: a free one) for both protocols on all addresses. Raises OSError."""
    for _ in range(10):
        with contextlib.ExitStack() as undo:
            listeners = Listeners(port)
            undo.callback(listeners.close)
            try:
                for address in addresses:
                    family = socket.AF_INET6 if ":" in address else socket.AF_INET
                    tcp = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
                    listeners.tcp.append(tcp)
                    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    _bind(tcp, address, listeners.port)
                    listeners.port = tcp.getsockname()[1]
                    tcp.listen(BACKLOG)
                    udp = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                    listeners.udp.append(udp)
                    _grow_buffer(udp)
                    _bind(udp, address, listeners.port)
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE:  # a free port for TCP may be in use for UDP
                    raise
                continue
            undo.pop_all()
            return listeners
    raise OSError(errno.EADDRINUSE, "no port is free for both UDP and TCP")


def _bind(sock: socket.socket, address: str, port: int) -> None:
    """Binds an address that need not be usable yet, such as one of IPv6 whose uniqueness is being checked."""
    six = sock.family == socket.AF_INET6
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, _IPV6_FREEBIND if six else _IP_FREEBIND, 1)
    if six:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.setblocking(False)
    sock.bind((address, port))


def _grow_buffer(sock: socket.socket) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


@contextlib.asynccontextmanager
async def serving(
    listeners: Listeners, udp: Handler, tcp: Handler, limits: SocketLimits | None = None
) -> AsyncIterator[None]:
    """Answers while the context is open. The listeners stay open: their owner closes them."""
    server = _Server(udp, tcp, limits or SocketLimits())
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        for sock in listeners.udp:
            loop.add_reader(sock.fileno(), server.on_datagrams, sock)
            stack.callback(loop.remove_reader, sock.fileno())
        for sock in listeners.tcp:
            task = asyncio.create_task(server.accept(sock), name="dns accept")
            stack.callback(task.cancel)
        yield


class _Server:
    def __init__(self, udp: Handler, tcp: Handler, limits: SocketLimits) -> None:
        self._udp = udp
        self._tcp = tcp
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[str, int] = {}

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_datagrams(self, sock: socket.socket) -> None:
        receive, handle, send = sock.recvfrom, self._udp, sock.sendto
        for _ in range(BATCH):
            try:
                data, address = receive(LARGEST_QUERY)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # an ICMP error about an earlier answer
                _log.debug("cannot receive a DNS query", extra={"error": str(error)})
                continue
            reply = handle(data, address[0])
            if reply is None:
                continue
            if isinstance(reply, bytes):
                try:
                    send(reply, address)
                except OSError as error:  # the client is gone, or the queue is full: it asks again
                    _log.debug("cannot send a DNS answer", extra={"error": str(error)})
            elif len(self._tasks) < self._limits.waiting:
                self._start(self._send_later(sock, reply, address))
            elif inspect.iscoroutine(reply):
                reply.close()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_later(self, sock: socket.socket, reply: Awaitable[bytes | None], address: tuple[str, int]) -> None:
        data = await reply
        if data is not None:
            with contextlib.suppress(OSError):
                sock.sendto(data, address)

    async def accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, address = await loop.sock_accept(listener)
            except OSError as error:
                _log.warning("cannot accept DNS connection", extra={"error": str(error)})
                await asyncio.sleep(0.1)
                continue
            host = address[0]
            own = self._connections.get(host, 0)
            if sum(self._connections.values()) >= self._limits.connections or (
                own >= self._limits.connections_per_address
            ):
                peer.close()
                continue
            self._connections[host] = own + 1
            self._start(self._converse(peer, host))

    async def _converse(self, peer: socket.socket, host: str) -> None:
        """Answers the queries of one connection, one after the other."""
        try:
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    async with asyncio.timeout(self._limits.idle):
                        head = await _receive_exactly(peer, 2)
                        (length,) = _LENGTH.unpack(head)
                        if length > LARGEST_QUERY:
                            return
                        data = await _receive_exactly(peer, length)
                    reply = self._tcp(data, host)
                    if reply is not None and not isinstance(reply, bytes):
                        reply = await reply
                    if reply is None:
                        return
                    async with asyncio.timeout(self._limits.idle):
                        await asyncio.get_running_loop().sock_sendall(peer, _LENGTH.pack(len(reply)) + reply)
        except (OSError, EOFError, TimeoutError):
            return
        finally:
            self._connections[host] -= 1
            if not self._connections[host]:
                del self._connections[host]


async def _receive_exactly(sock: socket.socket, length: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < length:
        part = await loop.sock_recv(sock, length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class UpstreamSockets:
    """Asks other servers, each query from a socket of its own with a random port."""

    async def udp(self, host: str, port: int, message: bytes, seconds: float, accept: Callable[[bytes], bool]) -> bytes:
        """Raises OSError, TimeoutError. The kernel delivers only datagrams of that server; of these, forged ones are
        ignored, not taken for an answer."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.connect((host, port))
            sock.send(message)
            async with asyncio.timeout(seconds):
                while True:
                    data = await loop.sock_recv(sock, LARGEST_ANSWER)
                    if accept(data):
                        return data

    async def tcp(self, host: str, port: int, message: bytes, seconds: float) -> bytes:
        """Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            async with asyncio.timeout(seconds):
                try:
                    await loop.sock_connect(sock, (host, port))
                    await loop.sock_sendall(sock, _LENGTH.pack(len(message)) + message)
                    (length,) = _LENGTH.unpack(await _receive_exactly(sock, 2))
                    return await _receive_exactly(sock, length)
                except EOFError as error:
                    raise ConnectionResetError(f"{host}: closed the connection") from error
