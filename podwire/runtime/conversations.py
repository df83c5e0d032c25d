"""One exec as a conversation: a process with pipes or a terminal on one side, a WebSocket on the other."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.remote_command import Streams
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime import descriptors
from podwire.runtime.inside import Inside

Files = tuple[int, int, int]


@dataclass(slots=True)
class _Ends:
    """Our ends of the process's files; -1 for none."""

    stdin: int
    stdout: int
    stderr: int

    def end_input(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


@dataclass(frozen=True, slots=True)
class Conversation:
    """Runs what `start` starts for one client, and no longer than that client stays."""

    streams: Streams
    start: Callable[[Files], Inside]

    async def run(self, socket: Socket) -> None:
        """1. Start the process.  2. Carry bytes both ways until it ends or the client goes.  3. Tell how it ended."""
        chair = ServerSide(socket.protocol, self.streams)
        await socket.send(chair.opening())
        try:
            inside, ends = await asyncio.to_thread(self._start)
        except OSError as error:
            await socket.send(chair.ended(Failed(str(error))))
            return
        try:
            if await self._carry(socket, chair, inside, ends):
                await socket.send(chair.ended(Exited(inside.code())))
        finally:
            await inside.finish()
            for each in {ends.stdin, ends.stdout, ends.stderr} - {-1}:
                os.close(each)

    def _start(self) -> tuple[Inside, _Ends]:
        if self.streams.tty:
            ours, theirs = pty.openpty()
            return self._started(_Ends(ours, ours, -1), (theirs, theirs, theirs))
        (their_in, in_), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
        inside, ends = self._started(_Ends(in_, out, err), (their_in, their_out, their_err))
        if not self.streams.stdin:
            ends.end_input()
        return inside, ends

    def _started(self, ends: _Ends, files: Files) -> tuple[Inside, _Ends]:
        ours = {ends.stdin, ends.stdout, ends.stderr} - {-1}
        try:
            inside = self.start(files)
        except BaseException:
            for each in ours:
                os.close(each)
            raise
        finally:
            for each in set(files):
                os.close(each)
        for each in ours:
            os.set_blocking(each, False)
        return inside, ends

    async def _carry(self, socket: Socket, chair: ServerSide, inside: Inside, ends: _Ends) -> bool:
        """Whether the process ended by itself; not when its client went first."""
        speaking = asyncio.create_task(_speak(socket, chair, inside, ends))
        listening = asyncio.create_task(self._listen(socket, chair, inside, ends))
        try:
            await asyncio.wait((speaking, listening), return_when=asyncio.FIRST_COMPLETED)
            if speaking.done():
                speaking.result()
            return speaking.done()
        finally:
            for each in (speaking, listening):
                each.cancel()
            await asyncio.gather(speaking, listening, return_exceptions=True)

    async def _listen(self, socket: Socket, chair: ServerSide, inside: Inside, ends: _Ends) -> None:
        """What the client says: input, its end, sizes; until it goes or breaks the rules."""
        with contextlib.suppress(Violation):
            while (message := await socket.receive()) is not None:
                for event in chair.receive(message):
                    match event:
                        case Stdin(data) if ends.stdin >= 0:
                            await self._feed(ends, data)
                        case StdinEnded() if not self.streams.tty:
                            ends.end_input()
                        case Size(width, height) if self.streams.tty:
                            size = struct.pack("HHHH", height, width, 0, 0)
                            fcntl.ioctl(ends.stdout, termios.TIOCSWINSZ, size)
                            inside.signal(signal.SIGWINCH)  # the terminal controls nobody here, so nobody else says it

    async def _feed(self, ends: _Ends, data: bytes) -> None:
        try:
            await descriptors.write(ends.stdin, data)
        except OSError:  # the process reads no more
            if not self.streams.tty:
                ends.end_input()


async def _speak(socket: Socket, chair: ServerSide, inside: Inside, ends: _Ends) -> None:
    """Carry output until its end, then wait for the process's."""
    async with asyncio.TaskGroup() as outputs:
        outputs.create_task(_pump(ends.stdout, chair.stdout, socket))
        if ends.stderr >= 0:
            outputs.create_task(_pump(ends.stderr, chair.stderr, socket))
    await inside.exited()


async def _pump(source: int, encode: Callable[[bytes], Iterator[bytes]], socket: Socket) -> None:
    while data := await descriptors.read(source):
        for message in encode(data):
            await socket.send(message)
