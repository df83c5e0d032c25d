"""One connection to a port inside a pod's network namespace, and a client's bytes on their way to it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

from podwire.linux.errors import LinuxError
from podwire.linux.proc.namespaces import visit

WAITING = 64
"""Pieces that may wait for a port which reads slowly; then its client's whole connection waits."""
CHUNK = 32 * 1024
CLOSE_SECONDS = 30.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Reach = Callable[[int], Awaitable[Streams]]
"""Connects to a port. Raises OSError, which says what there is to be told."""


async def connected(netns: str, port: int) -> Streams:
    """A connection to a port of the loopback in a network namespace; empty is the host's. Raises OSError."""
    failed = []
    for family, name, host in ((socket.AF_INET, "tcp4", "127.0.0.1"), (socket.AF_INET6, "tcp6", "::1")):
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return await asyncio.open_connection(sock=await _dialled(netns, family, host, port))
        except (OSError, LinuxError) as error:
            why = os.strerror(error.errno).lower() if error.errno else str(error)
            failed.append(f"dial {name} {where}: connect: {why}")
    raise OSError(f"failed to connect to localhost:{port} inside the pod: {', '.join(failed)}")


async def _dialled(netns: str, family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    making = asyncio.create_task(asyncio.to_thread(_socket, netns, family))
    try:
        made = await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_discard)  # a thread that has begun cannot be stopped
        raise
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


def _discard(made: "asyncio.Task[socket.socket]") -> None:
    if not made.cancelled() and made.exception() is None:
        made.result().close()


def _socket(netns: str, family: socket.AddressFamily) -> socket.socket:
    """A socket belongs to the namespace in which it was made, wherever it is used."""
    with visit(netns) if netns else contextlib.nullcontext():
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class InputQueue:
    """What a client sends to one port, until its end or until it gives up."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(WAITING)
        self.given_up = asyncio.Event()

    async def put(self, piece: bytes) -> None:
        """Empty for the end. Waits while the port is slow, but not for one that has ended."""
        if not self.given_up.is_set():
            await self._pieces.put(piece)

    def give_up(self) -> None:
        """The client does, or it is over: who waits to put one more is let go, and nobody will take it."""
        self.given_up.set()
        while not self._pieces.empty():
            self._pieces.get_nowait()

    async def feed(self, writer: asyncio.StreamWriter) -> None:
        """To its end; a port that reads no more may still have something to say."""
        with contextlib.suppress(OSError):
            while piece := await self._pieces.get():
                writer.write(piece)
                await writer.drain()
            writer.write_eof()


async def carry(
    streams: Streams, inflow: InputQueue, send: Callable[[bytes], Awaitable[None]], ended: Callable[[], Awaitable[None]]
) -> None:
    """Bytes both ways until both have ended, or the client gives up. `ended` tells the client of the port's end.

    Raises OSError when the port breaks off.
    """
    reader, writer = streams
    feeding = asyncio.create_task(inflow.feed(writer), name="to the port")
    draining = asyncio.create_task(_drain(reader, send), name="from the port")
    given_up = asyncio.create_task(inflow.given_up.wait(), name="given up")
    try:
        await asyncio.wait((draining, given_up), return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            draining.result()
            await ended()
            await asyncio.wait((feeding, given_up), return_when=asyncio.FIRST_COMPLETED)
            await _close(writer)
    finally:
        for each in (feeding, draining, given_up):
            each.cancel()
        await asyncio.gather(feeding, draining, given_up, return_exceptions=True)
        writer.transport.abort()  # a port that reads nothing would keep what was not sent, and us, for ever
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _close(writer: asyncio.StreamWriter) -> None:
    """With time for the port to take what it was sent last."""
    writer.close()
    with contextlib.suppress(OSError):  # TimeoutError is one
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()


async def _drain(reader: asyncio.StreamReader, send: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await reader.read(CHUNK):
        await send(data)
