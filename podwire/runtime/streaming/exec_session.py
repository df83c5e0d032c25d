"""One exec as a conversation: a process with pipes or a terminal on one side, a WebSocket on the other."""

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.remote_command import Streams
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime.streaming.console_socket import ConsoleSocket
from podwire.runtime.streaming.duplex import carried
from podwire.runtime.streaming.exec_process import ExecProcess
from podwire.tasks import descriptors

Files = tuple[int, int, int]


@dataclass(slots=True)
class _Ends:
    """Our ends of the process's files; -1 for none."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        for each in {self.stdin, self.stdout, self.stderr} - {-1}:
            os.close(each)

    def end_input(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


@dataclass(frozen=True, slots=True)
class ExecSession:
    """Runs what `start` starts for one client, and no longer than that client stays."""

    work: Path
    streams: Streams
    start: Callable[[Files, str], ExecProcess]
    """With three files, and where a terminal is to be handed over; empty for none."""

    async def run(self, socket: Socket) -> None:
        """1. Start the process.  2. Carry bytes both ways until it ends or the client goes.  3. Tell how it ended."""
        chair = ServerSide(socket.protocol, self.streams)
        await socket.send(chair.opening())
        try:
            inside, ends = await (self._with_terminal() if self.streams.tty else asyncio.to_thread(self._with_pipes))
        except OSError as error:
            await socket.send(chair.ended(Failed(str(error))))
            return
        try:
            if await carried(_speak(socket, chair, inside, ends), self._listen(socket, chair, ends)):
                await socket.send(chair.ended(Exited(inside.code())))
        finally:
            await inside.finish()
            ends.close()

    def _with_pipes(self) -> tuple[ExecProcess, _Ends]:
        (their_in, in_), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
        ends = _Ends(in_, out, err)
        try:
            inside = self.start((their_in, their_out, their_err), "")
        except BaseException:
            ends.close()
            raise
        finally:
            for each in (their_in, their_out, their_err):
                os.close(each)
        for each in (in_, out, err):
            os.set_blocking(each, False)
        if not self.streams.stdin:
            ends.end_input()
        return inside, ends

    async def _with_terminal(self) -> tuple[ExecProcess, _Ends]:
        """When no terminal can be made, the OCI runtime says why, and that is the output."""
        (words, their_words), nothing = os.pipe(), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.set_blocking(words, False)
        ends, inside = _Ends(-1, words, -1), None
        try:
            with contextlib.closing(ConsoleSocket(self.work)) as door:
                inside = await asyncio.to_thread(self.start, (nothing, their_words, their_words), door.path)
                terminal = await door.terminal(inside)
        except BaseException:
            ends.close()
            if inside is not None:
                await inside.finish()
            raise
        finally:
            os.close(nothing)
            os.close(their_words)
        if terminal < 0:
            return inside, ends
        ends.close()
        return inside, _Ends(terminal, terminal, -1)

    async def _listen(self, socket: Socket, chair: ServerSide, ends: _Ends) -> None:
        """What the client says: input, its end, sizes; until it goes or breaks the rules."""
        with contextlib.suppress(Violation):
            while (message := await socket.receive()) is not None:
                for event in chair.receive(message):
                    match event:
                        case Stdin(data) if ends.stdin >= 0:
                            await self._feed(ends, data)
                        case StdinEnded() if not self.streams.tty:
                            ends.end_input()
                        case Size(width, height) if ends.stdin == ends.stdout:
                            fcntl.ioctl(ends.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def _feed(self, ends: _Ends, data: bytes) -> None:
        try:
            await descriptors.write(ends.stdin, data)
        except OSError:  # the process reads no more
            if not self.streams.tty:
                ends.end_input()


async def _speak(socket: Socket, chair: ServerSide, inside: ExecProcess, ends: _Ends) -> None:
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
