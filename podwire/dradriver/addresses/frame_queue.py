"""What comes to a socket, as an event loop brings it."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from podwire.linux.errors import LinuxError

_ROOM = 256
"""Messages that wait to be looked at; of a flood the rest is dropped, as the kernel would."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Socket(Protocol[T_co]):
    def fileno(self) -> int: ...

    def read(self) -> Sequence[T_co]: ...

    def close(self) -> None: ...


class Listening(Generic[T]):
    """`with Listening(socket) as heard: await heard.next()`; closes the socket."""

    def __init__(self, socket: Socket[T]) -> None:
        self._socket = socket
        self._queue: asyncio.Queue[T | LinuxError] = asyncio.Queue(_ROOM)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    async def next(self) -> T:
        """The next message; the error, when the link is gone or down."""
        found = await self._queue.get()
        if isinstance(found, LinuxError):
            raise found
        return found

    def _read(self) -> None:
        try:
            for each in self._socket.read():
                self._put(each)
        except LinuxError as error:
            self._put(error)

    def _put(self, found: T | LinuxError) -> None:
        if not self._queue.full():
            self._queue.put_nowait(found)
