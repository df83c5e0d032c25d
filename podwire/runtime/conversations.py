"""One exec as a conversation: a process with pipes or a terminal on one side, a WebSocket on the other."""

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from podwire.linux import processes
from podwire.linux.errors import LinuxError
from podwire.linux.processes import Child
from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.remote_command import Streams
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime import descriptors


@dataclass(slots=True)
class _Ends:
    """Our ends of the process's files; -1 for none."""

    stdin: int
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Runs `argv` for one client; `ended` is called whatever happens."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    streams: Streams
    ended: Callable[[], None]

    async def run(self, socket: Socket) -> None:
        """1. Start the process.  2. Carry bytes both ways until it ends.  3. Tell how it ended."""
        chair = ServerSide(socket.protocol, self.streams)
        try:
            await socket.send(chair.opening())
            try:
                child, ends = await asyncio.to_thread(self._start)
            except LinuxError as error:
                await socket.send(chair.ended(Failed(str(error))))
                return
            try:
                await self._carry(socket, chair, child, ends)
            finally:
                await asyncio.to_thread(_finish, child, ends)
        finally:
            await asyncio.to_thread(self.ended)

    def _start(self) -> tuple[Child, _Ends]:
        if self.streams.tty:
            ours, theirs = pty.openpty()
            try:
                child = processes.spawn(self.argv, env=self.environment, files=(theirs, theirs, theirs), session=True)
            finally:
                os.close(theirs)
            os.set_blocking(ours, False)
            return child, _Ends(ours, ours, -1)
        (their_in, in_), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            child = processes.spawn(self.argv, env=self.environment, files=(their_in, their_out, their_err))
        finally:
            for each in (their_in, their_out, their_err):
                os.close(each)
        for each in (in_, out, err):
            os.set_blocking(each, False)
        if not self.streams.stdin:
            os.close(in_)
            in_ = -1
        return child, _Ends(in_, out, err)

    async def _carry(self, socket: Socket, chair: ServerSide, child: Child, ends: _Ends) -> None:
        listening = asyncio.create_task(self._listen(socket, chair, ends))
        try:
            async with asyncio.TaskGroup() as outputs:
                outputs.create_task(_pump(ends.stdout, chair.stdout, socket))
                if ends.stderr >= 0:
                    outputs.create_task(_pump(ends.stderr, chair.stderr, socket))
            await descriptors.readable(child.pidfd)
            code = processes.reap(child)
            await socket.send(chair.ended(Exited(code if code >= 0 else 128 - code)))
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _listen(self, socket: Socket, chair: ServerSide, ends: _Ends) -> None:
        """What the client says: input, its end, sizes. A client that goes, or breaks the rules, ends the input."""
        with contextlib.suppress(Violation, OSError):
            while (message := await socket.receive()) is not None:
                for event in chair.receive(message):
                    match event:
                        case Stdin(data) if ends.stdin >= 0:
                            await descriptors.write(ends.stdin, data)
                        case StdinEnded():
                            self._end_input(ends)
                        case Size(width, height):
                            fcntl.ioctl(ends.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._end_input(ends)

    def _end_input(self, ends: _Ends) -> None:
        if ends.stdin >= 0 and not self.streams.tty:
            os.close(ends.stdin)
            ends.stdin = -1


async def _pump(source: int, encode: Callable[[bytes], Iterator[bytes]], socket: Socket) -> None:
    """Carry output until its end."""
    while data := await descriptors.read(source):
        for message in encode(data):
            await socket.send(message)


def _finish(child: Child, ends: _Ends) -> None:
    for each in {ends.stdin, ends.stdout, ends.stderr} - {-1}:
        os.close(each)
    os.close(child.pidfd)
