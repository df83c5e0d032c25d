"""Attach: a client at the streams of a container's own process, which its shim holds; the container goes on without it.

The shim sends output as frames on one connection and takes input on another; see shim/README.md, Control socket.
"""

import contextlib
import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Streams, Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime.containers.shim import ShimClient
from podwire.runtime.ports import ShimConnection
from podwire.runtime.streaming.exec_session import run_duplex

_log = logging.getLogger("podwire.runtime.streaming")

FRAME = struct.Struct(">III")
"""Channel, bytes lost before this frame, length."""
STDOUT, STDERR, END = 1, 2, 3


@dataclass(frozen=True, slots=True)
class AttachSession:
    """One client of a running container. Its end does not end the container."""

    shim: ShimClient
    state: Path
    streams: Streams

    async def run(self, socket: Socket) -> None:
        """Copies until the container ends or the client leaves.

        1. Ask the shim for the streams.  2. Open the session: from now on nothing is missed.  3. Copy both ways.
        """
        side = ServerSide(socket.protocol, self.streams)
        with contextlib.ExitStack() as stack:
            try:
                output = await self.shim.open_stream(self.state, "attach")
                stack.callback(output.close)
                input_ = None
                if self.streams.stdin:
                    input_ = await self.shim.open_stream(self.state, "stdin")
                    stack.callback(input_.close)
            except OSError as error:
                await socket.send(side.ended(Failed(str(error))))
                return
            await socket.send(side.opening())
            if await run_duplex(self._send_output(socket, side, output), self._receive(socket, side, input_)):
                await socket.send(side.ended(Exited(0)))  # as containerd does, whatever the container's exit code is

    async def _send_output(self, socket: Socket, side: ServerSide, output: ShimConnection) -> None:
        """Sends output until the shim reports the end, or is gone."""
        encoders: dict[int, Callable[[bytes], Iterator[bytes]]] = {STDOUT: side.stdout, STDERR: side.stderr}
        while header := await output.receive_exactly(FRAME.size):
            channel, lost, length = FRAME.unpack(header)
            if lost:
                fields = {"bytes": lost, "container": self.state.parent.name}
                _log.warning("attached client is slow, output was dropped", extra=fields)
            data = await output.receive_exactly(length)
            if channel == END:
                return
            for message in encoders[channel](data):
                await socket.send(message)

    async def _receive(self, socket: Socket, side: ServerSide, input_: ShimConnection | None) -> None:
        """Takes input, its end and window sizes from the client, until it leaves or violates the protocol."""
        with contextlib.suppress(Violation):
            while (message := await socket.receive()) is not None:
                for event in side.receive(message):
                    match event:
                        case Stdin(data) if input_ is not None:
                            with contextlib.suppress(OSError):  # the container has closed its input
                                await input_.send(data)
                        case StdinEnded() if input_ is not None:
                            input_.finish()
                        case Size(width, height):
                            await self.shim.resize(self.state, width, height)
