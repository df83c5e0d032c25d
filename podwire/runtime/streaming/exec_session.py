"""One Exec: a process with pipes or a terminal on one side, a client's socket on the other."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.linux.proc.terminals import set_window_size
from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.channels import Streams, Violation
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.runtime.ports import ConsoleSocket, ListenConsole
from podwire.runtime.streaming.exec_process import ExecProcess
from podwire.tasks import descriptors


async def run_duplex(sending: Coroutine[Any, Any, None], receiving: Coroutine[Any, Any, None]) -> bool:
    """Runs both until one ends, and cancels the other. Returns whether everything was sent: False when the client
    left first. Raises the error of sending."""
    sender, receiver = asyncio.create_task(sending), asyncio.create_task(receiving)
    try:
        await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
        if sender.done():
            sender.result()
        return sender.done()
    finally:
        for task in (sender, receiver):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)


Files = tuple[int, int, int]


@dataclass(slots=True)
class _Ends:
    """Our ends of the process's files; -1 for none."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        for file in {self.stdin, self.stdout, self.stderr} - {-1}:
            os.close(file)

    def end_input(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


@dataclass(frozen=True, slots=True)
class ExecSession:
    """Runs a process for one client, and no longer than that client stays."""

    work: Path
    streams: Streams
    start: Callable[[Files, str], ExecProcess]
    """Starts the process with three files and the path of a console socket; empty for none."""
    listen_console: ListenConsole

    async def run(self, socket: Socket) -> None:
        """1. Start the process.  2. Copy bytes both ways until it ends or the client leaves.  3. Send the outcome."""
        side = ServerSide(socket.protocol, self.streams)
        await socket.send(side.opening())
        try:
            process, ends = await (self._with_terminal() if self.streams.tty else asyncio.to_thread(self._with_pipes))
        except OSError as error:
            await socket.send(side.ended(Failed(str(error))))
            return
        try:
            if await run_duplex(_send_output(socket, side, process, ends), self._receive(socket, side, ends)):
                await socket.send(side.ended(Exited(process.code())))
        finally:
            await process.finish()
            ends.close()

    def _with_pipes(self) -> tuple[ExecProcess, _Ends]:
        (their_in, in_), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
        ends = _Ends(in_, out, err)
        with contextlib.ExitStack() as undo:
            undo.callback(ends.close)
            try:
                process = self.start((their_in, their_out, their_err), "")
            finally:
                for file in (their_in, their_out, their_err):
                    os.close(file)
            undo.pop_all()
        for file in (in_, out, err):
            os.set_blocking(file, False)
        if not self.streams.stdin:
            ends.end_input()
        return process, ends

    async def _with_terminal(self) -> tuple[ExecProcess, _Ends]:
        """When no terminal can be made, the OCI runtime's error is the output."""
        (errors, their_errors), null = os.pipe(), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.set_blocking(errors, False)
        ends = _Ends(-1, errors, -1)
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(ends.close)
            try:
                with contextlib.closing(self.listen_console(self.work)) as console:
                    process = await asyncio.to_thread(self.start, (null, their_errors, their_errors), console.path)
                    undo.push_async_callback(process.finish)
                    terminal = await _receive_terminal(console, process)
            finally:
                os.close(null)
                os.close(their_errors)
            undo.pop_all()
        if terminal < 0:
            return process, ends
        ends.close()
        return process, _Ends(terminal, terminal, -1)

    async def _receive(self, socket: Socket, side: ServerSide, ends: _Ends) -> None:
        """Takes input, its end and window sizes from the client, until it leaves or violates the protocol."""
        with contextlib.suppress(Violation):
            while (message := await socket.receive()) is not None:
                for event in side.receive(message):
                    match event:
                        case Stdin(data) if ends.stdin >= 0:
                            await self._write_input(ends, data)
                        case StdinEnded() if not self.streams.tty:
                            ends.end_input()
                        case Size(width, height) if ends.stdin == ends.stdout:
                            set_window_size(ends.stdout, width, height)

    async def _write_input(self, ends: _Ends, data: bytes) -> None:
        try:
            await descriptors.write(ends.stdin, data)
        except OSError:  # the process has closed its input
            if not self.streams.tty:
                ends.end_input()


async def _receive_terminal(console: ConsoleSocket, process: ExecProcess) -> int:
    """Returns our end of the terminal; -1 when the process ended without one."""
    receiving = asyncio.create_task(console.receive())
    exited = asyncio.create_task(process.exited())
    try:
        await asyncio.wait((receiving, exited), return_when=asyncio.FIRST_COMPLETED)
        return receiving.result() if receiving.done() else -1
    finally:
        for task in (receiving, exited):
            task.cancel()
        await asyncio.gather(receiving, exited, return_exceptions=True)


async def _send_output(socket: Socket, side: ServerSide, process: ExecProcess, ends: _Ends) -> None:
    """Sends output until its end, then waits for the end of the process."""
    async with asyncio.TaskGroup() as outputs:
        outputs.create_task(_copy(ends.stdout, side.stdout, socket))
        if ends.stderr >= 0:
            outputs.create_task(_copy(ends.stderr, side.stderr, socket))
    await process.exited()


async def _copy(source: int, encode: Callable[[bytes], Iterator[bytes]], socket: Socket) -> None:
    while data := await descriptors.read(source):
        for message in encode(data):
            await socket.send(message)
