"""Attach: a client at the streams of a container's own process, which its shim holds; the container goes on without it.

The shim gives output as frames on one connection and takes input on another; see shim/README.md, Control socket.
"""

import contextlib
import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.remote_command import Streams
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime.containers.shim import ShimClient, ShimConnection
from podwire.runtime.streaming.duplex import carried

_log = logging.getLogger(__name__)

FRAME = struct.Struct(">III")
"""Channel, bytes lost before this frame, length."""
STDOUT, STDERR, END = 1, 2, 3


@dataclass(frozen=True, slots=True)
class AttachSession:
    """One client at a container that runs. Nothing of the container is ended with it."""

    shims: ShimClient
    state: Path
    streams: Streams

    async def run(self, socket: Socket) -> None:
        """Until the container ends or the client goes.

        1. Ask the shim for the streams.  2. Greet: from now on nothing is missed.  3. Carry bytes both ways.
        """
        chair = ServerSide(socket.protocol, self.streams)
        with contextlib.ExitStack() as stack:
            try:
                output = stack.enter_context(await self.shims.line(self.state, "attach"))
                feed = await self._feed(stack)
            except OSError as error:
                await socket.send(chair.ended(Failed(str(error))))
                return
            await socket.send(chair.opening())
            if await carried(self._speak(socket, chair, output), self._listen(socket, chair, feed)):
                await socket.send(chair.ended(Exited(0)))  # upstream's answer, whatever the container's exit code is

    async def _feed(self, stack: contextlib.ExitStack) -> ShimConnection | None:
        if not self.streams.stdin:
            return None
        return stack.enter_context(await self.shims.line(self.state, "stdin"))

    async def _speak(self, socket: Socket, chair: ServerSide, output: ShimConnection) -> None:
        """Carry output until the shim tells the end, or is gone."""
        encoders: dict[int, Callable[[bytes], Iterator[bytes]]] = {STDOUT: chair.stdout, STDERR: chair.stderr}
        while head := await output.exactly(FRAME.size):
            channel, lost, length = FRAME.unpack(head)
            if lost:
                _log.warning("a slow client missed output", extra={"bytes": lost, "container": self.state.parent.name})
            data = await output.exactly(length)
            if channel == END:
                return
            for message in encoders[channel](data):
                await socket.send(message)

    async def _listen(self, socket: Socket, chair: ServerSide, feed: ShimConnection | None) -> None:
        """What the client says: input, its end, sizes; until it goes or breaks the rules."""
        with contextlib.suppress(Violation):
            while (message := await socket.receive()) is not None:
                for event in chair.receive(message):
                    match event:
                        case Stdin(data) if feed is not None:
                            with contextlib.suppress(OSError):  # the container reads no more; its output may go on
                                await feed.send(data)
                        case StdinEnded() if feed is not None:
                            feed.finish()
                        case Size(width, height):
                            await self.shims.resize(self.state, width, height)
