"""Port-forward: connections to ports inside a pod's network namespace, as many as a client opens over SPDY.

Each connection is a pair of streams with the same request id: one for its bytes, one for what went wrong.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from podwire.linux.errors import LinuxError
from podwire.linux.namespaces import visit
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.protocols.streaming import spdy
from podwire.protocols.streaming.upgrading import PORT_FORWARD
from podwire.runtime.offers import Gone, Offer, Offers
from podwire.runtime.sandbox import Sandbox
from podwire.seams import ByteStream
from podwire.transports.spdy_server import Frames

PAIR_SECONDS = 30.0
"""From one stream of a pair to the other."""
WAITING = 64
"""Pieces that may wait for a port which reads slowly; then its client's whole connection waits."""
CHUNK = 32 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Reach = Callable[[int], Awaitable[Streams]]


class Forwardings:
    """Offers ways to the ports of pods."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    def offer(self, sandbox: Sandbox) -> str:
        """PortForward: a URL that is good for one client within a minute."""
        sandbox.check_ready()

        def check() -> None:
            if not sandbox.ready:
                raise Gone("the pod has ended")

        async def forward(wire: ByteStream, _version: str) -> None:
            with contextlib.suppress(FailedPrecondition):  # the pod is stopped, and its connections with it
                await sandbox.unless_stopped(forwarded(wire, sandbox))

        return self._offers.add("portforward", Offer(check=check, versions=(PORT_FORWARD,), over_spdy=forward))


async def forwarded(wire: ByteStream, sandbox: Sandbox) -> None:
    async def reach(port: int) -> Streams:
        return await connected(sandbox.record.network, port)

    await Forwarding(Frames(wire), sandbox.id, reach).run()


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
    made = await asyncio.to_thread(_socket, netns, family)
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


def _socket(netns: str, family: socket.AddressFamily) -> socket.socket:
    """A socket belongs to the namespace in which it was made, wherever it is used."""
    with visit(netns) if netns else contextlib.nullcontext():
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


@dataclass(slots=True)
class _Pair:
    """One connection, of which either stream may come first."""

    port: int
    streams: dict[str, int] = field(default_factory=dict)
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    pieces: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(WAITING))
    """What the client sends; None at the end."""
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    """By the client, or because it is over."""

    async def put(self, piece: bytes | None) -> None:
        """Waits while the port is slow, but not for one that has ended."""
        if not self.given_up.is_set():
            await self.pieces.put(piece)

    def give_up(self) -> None:
        self.given_up.set()
        while not self.pieces.empty():
            self.pieces.get_nowait()  # lets go of who waits to put one more, which nobody will take
        with contextlib.suppress(asyncio.QueueFull):
            self.pieces.put_nowait(None)


class Forwarding:
    """One client."""

    def __init__(self, frames: Frames, pod: str, reach: Reach) -> None:
        self._frames = frames
        self._pod = pod
        self._reach = reach
        self._pairs: dict[str, _Pair] = {}
        self._by_stream: dict[int, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the client goes; its connections go with it."""
        try:
            async with asyncio.TaskGroup() as connections:
                while (event := await self._frames.next()) is not None:
                    match event:
                        case spdy.Opened():
                            await self._open(event, connections)
                        case spdy.Data(stream, data, end):
                            await self._put(stream, data, end=end)
                        case spdy.Reset(stream):
                            self._reset(stream)
                for each in self._tasks:
                    each.cancel()
        finally:
            await self._frames.finish()

    async def _open(self, opened: spdy.Opened, connections: asyncio.TaskGroup) -> None:
        kind, port = opened.headers.get("streamtype", ""), _port(opened.headers.get("port", ""))
        key = _request(opened, kind)
        pair = self._pairs.get(key)
        if kind not in ("data", "error") or not port or (pair and (kind in pair.streams or pair.port != port)):
            await self._frames.refuse(opened.stream)
            return
        if pair is None:
            pair = self._pairs[key] = _Pair(port)
            task = connections.create_task(self._connection(key, pair), name=f"forward to port {port}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pair.streams[kind] = opened.stream
        self._by_stream[opened.stream] = pair
        await self._frames.accept(opened.stream)
        if opened.end and kind == "data":
            await pair.put(None)
        if len(pair.streams) == 2:
            pair.whole.set()

    async def _put(self, stream: int, data: bytes, *, end: bool) -> None:
        pair = self._by_stream.get(stream)
        if pair is None or pair.streams.get("data") != stream:
            return
        if data:
            await pair.put(data)
        if end:
            await pair.put(None)

    def _reset(self, stream: int) -> None:
        pair = self._by_stream.get(stream)
        if pair is not None and pair.streams.get("data") == stream:
            pair.give_up()

    async def _connection(self, key: str, pair: _Pair) -> None:
        """From the first of the two streams to the end of both; what goes wrong ends this one alone."""
        try:
            async with asyncio.timeout(PAIR_SECONDS):
                await pair.whole.wait()
            await self._carry(pair)
        except (OSError, TimeoutError) as error:  # TimeoutError: the other stream did not come
            await self._tell(pair, error)
        finally:
            pair.give_up()
            del self._pairs[key]
            for stream in pair.streams.values():
                self._by_stream.pop(stream, None)

    async def _tell(self, pair: _Pair, error: OSError) -> None:
        text = f"error forwarding port {pair.port} to pod {self._pod}, uid : {error or 'timed out waiting for streams'}"
        with contextlib.suppress(OSError):
            if "error" in pair.streams:
                await self._frames.send(pair.streams["error"], text.encode(), end=True)
            if "data" in pair.streams:
                await self._frames.send(pair.streams["data"], b"", end=True)

    async def _carry(self, pair: _Pair) -> None:
        """Bytes both ways until both have ended, or the client gives up.

        kubectl waits for the other stream as soon as the port has ended, whatever it still could send itself.
        """
        reader, writer = await self._reach(pair.port)
        feeding = asyncio.create_task(_feed(pair, writer), name="to the port")
        draining = asyncio.create_task(self._drain(pair, reader), name="from the port")
        given_up = asyncio.create_task(pair.given_up.wait(), name="given up")
        try:
            await asyncio.wait((draining, given_up), return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                draining.result()
                await self._frames.send(pair.streams["data"], b"", end=True)
                await self._frames.send(pair.streams["error"], b"", end=True)
                await asyncio.wait((feeding, given_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (feeding, draining, given_up):
                each.cancel()
            await asyncio.gather(feeding, draining, given_up, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _drain(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            await self._frames.send(pair.streams["data"], data)


async def _feed(pair: _Pair, writer: asyncio.StreamWriter) -> None:
    """What the client sends, to its end; a port that reads no more may still have something to say."""
    with contextlib.suppress(OSError):
        while (piece := await pair.pieces.get()) is not None:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


def _port(text: str) -> int:
    """0 when it is none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    return number if number < 65536 else 0


def _request(opened: spdy.Opened, kind: str) -> str:
    """What pairs two streams: the id that clients give, or, before they did, the number of the first of the two."""
    return opened.headers.get("requestid") or f"stream {opened.stream if kind == 'error' else opened.stream - 2}"
