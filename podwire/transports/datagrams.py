"""Unix datagrams that never make their sender wait: sent if there is room, else lost, which the receiver can count.

The receiver's queue is as long as its network namespace says when the socket is made, and most machines say 10. So the
receiving socket is made in a namespace of its own, where it can say more without changing anything for anybody; a
socket with a path is found from everywhere.
"""

import array
import contextlib
import os
import select
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path

from podwire.linux import syscalls
from podwire.linux.errors import LinuxError
from podwire.linux.proc.namespaces import in_thread
from podwire.transports import unix

QUEUE = 8192
"""Datagrams that may wait for the receiver."""
BUFFER = 8 << 20
"""Bytes that one sender may have waiting."""
LARGEST = 256 * 1024
"""Bytes of one datagram."""

_DESCRIPTOR = socket.CMSG_SPACE(array.array("i").itemsize)

_SNDBUFFORCE = 32
_QUEUE_FILE = "/proc/sys/net/unix/max_dgram_qlen"


class Sender:
    """Sends to a path, whoever receives there at the moment. May be used from any thread.

    It lives as long as somebody wants to send, and needs no closing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        weakref.finalize(self, self._socket.close)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, BUFFER)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def send(self, data: bytes) -> None:
        """Gone or lost: a full queue and a receiver that is not there lose it."""
        with contextlib.suppress(OSError):
            self._socket.sendto(data, self._path)


class Receiver:
    """A socket at a path that only its owner can reach."""

    def __init__(self, bound: socket.socket, place: unix.Place) -> None:
        self._socket = bound
        self._place = place
        self._room = memoryview(bytearray(LARGEST))
        self._asking: list[int] = []

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> "Receiver":
        """Listen at `path`; a socket that a dead receiver left is replaced. Raises unix.CannotListen."""
        bound = _long_queue()
        bound.setblocking(False)
        try:
            return cls(bound, await unix.take(path, bound.bind, kind=socket.SOCK_DGRAM))
        except BaseException:
            bound.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def waiting(self) -> Iterator[bytes]:
        """Everything that waits at this moment."""
        while True:
            try:
                length, beside, _, _ = self._socket.recvmsg_into([self._room], _DESCRIPTOR, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            if beside:
                self._asking += _descriptors(beside)
            else:
                yield bytes(self._room[:length])

    @property
    def asked(self) -> bool:
        """Whether somebody waits until all this is dealt with."""
        return bool(self._asking)

    def answer(self) -> None:
        """It is."""
        while self._asking:
            os.close(self._asking.pop())

    async def close(self) -> None:
        self.answer()
        await unix.leave(self._place)
        self._socket.close()


def dealt_with(path: str | os.PathLike[str], seconds: float) -> bool:
    """Wait until the receiver at a path has dealt with all that was sent before; False if it does not or is not there.

    It is handed one end of a pipe, and closes it.
    """
    ours, theirs = os.pipe()
    try:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                handed = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs])
                sender.sendmsg([b"?"], [handed], 0, os.fspath(path))
        except OSError:
            return False
        finally:
            os.close(theirs)
        ended = select.poll()
        ended.register(ours, select.POLLIN)
        return bool(ended.poll(seconds * 1000))
    finally:
        os.close(ours)


def _descriptors(beside: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for _, _, data in beside:
        found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def _long_queue() -> socket.socket:
    """A socket whose queue is long; without the rights for that, one whose queue is as long as the machine says."""

    def make() -> socket.socket:
        syscalls.unshare(syscalls.NEWNET)
        Path(_QUEUE_FILE).write_text(str(QUEUE), encoding="ascii")
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    try:
        return in_thread(make)
    except (LinuxError, OSError):
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
