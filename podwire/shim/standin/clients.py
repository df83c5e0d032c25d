"""Who is connected to the control socket: one request line each, and what becomes of it."""

import socket
import struct
import time
from enum import Enum, auto

REQUEST, FEED = 63, 4096
EXITED = 3
FRAME = struct.Struct(">III")
"""Channel, bytes lost before this frame, length."""


class Mode(Enum):
    ASKING = auto()
    WAITING = auto()
    FEEDING = auto()
    WATCHING = auto()


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.mode, self.since = connection, Mode.ASKING, time.monotonic()
        self._request, self._queue, self._lost = b"", b"", 0
        connection.setblocking(False)

    def close(self) -> None:
        self.connection.close()

    @property
    def gone(self) -> bool:
        return self.connection.fileno() < 0

    @property
    def behind(self) -> bool:
        return bool(self._queue)

    def request(self) -> str | None:
        """Read byte by byte, for what follows the line may be for stdin. None: there is no whole one, yet or ever."""
        while byte := self._receive(1):
            if byte == b"\n":
                return self._request.decode(errors="replace")
            self._request += byte
            if len(self._request) == REQUEST:
                return "too long"
        if byte is not None:
            self.close()
        return None

    def answer(self, text: str) -> None:
        """The last that this client hears."""
        self._send(f"{text}\n".encode(errors="surrogateescape"))
        self.close()

    def become(self, mode: Mode) -> None:
        self.mode = mode
        self._send(b"ok\n")

    def peek(self) -> bytes | None:
        """What it has for stdin. None: nothing came yet; empty: nothing will."""
        return self._receive(FEED, socket.MSG_PEEK)

    def took(self, size: int) -> None:
        self._receive(size)

    def offer(self, channel: int, data: bytes) -> None:
        """As a frame. Who has not taken the last one loses the next ones, and is told how much; nobody waits."""
        if self._queue and channel != EXITED:
            self._lost += len(data)
            return
        self._queue += FRAME.pack(channel, self._lost & 0xFFFFFFFF, len(data)) + data
        self._lost = 0
        self.send_queue()

    def send_queue(self) -> None:
        self._queue = self._queue[self._send(self._queue) :]

    def _receive(self, size: int, how: int = 0) -> bytes | None:
        try:
            return self.connection.recv(size, how)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _send(self, data: bytes) -> int:
        try:
            return self.connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0
