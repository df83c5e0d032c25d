"""Conversations with a container: a command with its streams, and the bytes of a forwarded port."""

import asyncio
from dataclasses import dataclass
from typing import Self

from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.streaming import portforward
from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.client_side import ClientSide, Stderr, Stdout
from podwire.protocols.streaming.outcome import Exited, Failed
from podwire.protocols.streaming.terminal import Size
from podwire.transports.http_websocket_client import FarSocket

MAX_OUTPUT = 64 << 20
"""Bytes that `run` collects; a session has no limit."""


class SessionError(ClientError):
    """The command could not be run, the port refused, or the connection ended before the outcome came."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Session:
    """`async for output in session`: Stdout and Stderr until the command ends; then `exit_code` is set."""

    def __init__(self, socket: FarSocket) -> None:
        self._socket = socket
        self._side = ClientSide(socket.protocol)
        self.exit_code: int | None = None
        """None while the command runs."""

    async def write(self, data: bytes) -> None:
        """Sends to stdin; waits while the container is slow. Raises ConnectionError when the command has ended."""
        for message in self._side.stdin(data):
            await self._socket.send(message)

    async def end_input(self) -> None:
        """Closes stdin. Raises SessionError for a server that speaks v4 only: v4 has no message for it."""
        message = self._side.stdin_ended()
        if message is None:
            raise SessionError("the server does not speak v5.channel.k8s.io: stdin cannot be closed before the end")
        await self._socket.send(message)

    async def resize(self, columns: int, rows: int) -> None:
        """Tells the size of the terminal."""
        await self._socket.send(self._side.resize(Size(columns, rows)))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Stdout | Stderr:
        while self.exit_code is None:
            message = await self._socket.receive()
            if message is None:
                raise SessionError("the connection ended before the outcome of the command came")
            try:
                event = self._side.receive(message)
            except Violation as error:
                raise SessionError(f"the server broke the protocol: {error}") from error
            match event:
                case Stdout() | Stderr():
                    return event
                case Exited(code):
                    self.exit_code = code
                case Failed(reason):
                    raise SessionError(reason)
        raise StopAsyncIteration


async def run_to_end(session: Session, stdin: bytes) -> Completed:
    """Sends all input while it collects all output. Raises SessionError."""
    parts: dict[type, list[bytes]] = {Stdout: [], Stderr: []}
    size = 0
    sending = asyncio.ensure_future(_send(session, stdin))
    try:
        async for output in session:
            size += len(output.data)
            if size > MAX_OUTPUT:
                raise SessionError(f"the command printed more than {MAX_OUTPUT} bytes")
            parts[type(output)].append(output.data)
    finally:
        sending.cancel()
        await asyncio.wait({sending})
    if not sending.cancelled() and isinstance(error := sending.exception(), SessionError):
        raise error
    if session.exit_code is None:
        raise SessionError("the command has no outcome")
    return Completed(session.exit_code, b"".join(parts[Stdout]), b"".join(parts[Stderr]))


async def _send(session: Session, stdin: bytes) -> None:
    if stdin:
        await session.write(stdin)
        await session.end_input()


class Forwarding:
    """The bytes of one connection to a port in a pod. Implements podwire.interfaces.ByteStream."""

    def __init__(self, socket: FarSocket, port: int) -> None:
        self._socket = socket
        self._port = port
        self._side = portforward.ClientSide(socket.protocol, [port])
        self._waiting = b""
        self._ended = False

    async def read(self, limit: int = 65536) -> bytes:
        """Returns up to `limit` bytes; empty at the end. Raises SessionError when the port cannot be reached."""
        while not self._waiting and not self._ended:
            message = await self._socket.receive()
            try:
                event = self._side.receive(message) if message is not None else portforward.Ended(0)
            except Violation as error:
                raise SessionError(f"the server broke the protocol: {error}") from error
            match event:
                case portforward.Bytes(_, data):
                    self._waiting = data
                case portforward.Problem(_, text):
                    raise SessionError(f"port {self._port}: {text}")
                case portforward.Ended():
                    self._ended = True
        data, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return data

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the connection has ended."""
        for message in self._side.data(0, data):
            await self._socket.send(message)

    async def end_input(self) -> None:
        """Tells that nothing more is sent, where the protocol can say it (v5)."""
        if (message := self._side.ended(0)) is not None:
            await self._socket.send(message)

    async def close(self) -> None:
        await self._socket.close()
