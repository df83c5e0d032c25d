"""Unix datagrams that never block their sender: lost when the queue is full, which the receiver can count.

The length of the receiver's queue is a sysctl of the network namespace in which the socket is created, 10 on most
machines. The receiving socket is therefore created in a network namespace of its own with a larger value; a socket with
a path can be reached from every network namespace.
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
from podwire.transports import unix_sockets

QUEUE = 8192
"""Datagrams that may be queued for the receiver."""
BUFFER = 8 << 20
"""Bytes that one sender may have queued."""
LARGEST = 256 * 1024
"""Maximum bytes of one datagram."""

_DESCRIPTOR = socket.CMSG_SPACE(array.array("i").itemsize)

_SNDBUFFORCE = 32
_QUEUE_FILE = "/proc/sys/net/unix/max_dgram_qlen"


class Sender:
    """Sends to the current receiver at a path. Thread-safe; the socket is closed with the last reference."""

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
        """Sends a datagram; drops it when the queue is full or nothing listens."""
        with contextlib.suppress(OSError):
            self._socket.sendto(data, self._path)


class Receiver:
    """A datagram socket at a path that only its owner can reach."""

    def __init__(self, bound: socket.socket, bound_path: unix_sockets.BoundSocket) -> None:
        self._socket = bound
        self._bound_path = bound_path
        self._buffer = memoryview(bytearray(LARGEST))
        self._flush_requests: list[int] = []

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> "Receiver":
        """Listens at `path`; replaces the socket of a dead receiver. Raises unix_sockets.CannotListen."""
        with contextlib.ExitStack() as undo:
            bound = undo.enter_context(_long_queue())
            bound.setblocking(False)
            receiver = cls(bound, await unix_sockets.bind_socket(path, bound.bind, kind=socket.SOCK_DGRAM))
            undo.pop_all()
        return receiver

    def fileno(self) -> int:
        return self._socket.fileno()

    def waiting(self) -> Iterator[bytes]:
        """Yields all datagrams that are queued now."""
        while True:
            try:
                length, ancillary, _, _ = self._socket.recvmsg_into(
                    [self._buffer], _DESCRIPTOR, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            if ancillary:
                self._flush_requests += _descriptors(ancillary)
            else:
                yield bytes(self._buffer[:length])

    @property
    def flush_requested(self) -> bool:
        """Whether a caller of `flush` waits until all datagrams so far are processed."""
        return bool(self._flush_requests)

    def confirm_flush(self) -> None:
        """Lets all callers of `flush` continue."""
        while self._flush_requests:
            os.close(self._flush_requests.pop())

    async def close(self) -> None:
        self.confirm_flush()
        await unix_sockets.remove_socket(self._bound_path)
        self._socket.close()


def flush(path: str | os.PathLike[str], seconds: float) -> bool:
    """Waits until the receiver at a path has processed everything sent before; returns False on time-out or without
    one.

    The receiver is handed one end of a pipe and closes it.
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


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return descriptors.tolist()


def _long_queue() -> socket.socket:
    """Creates a socket with a long queue; without the rights for that, one with the machine's default."""

    def make() -> socket.socket:
        syscalls.unshare(syscalls.NEWNET)
        Path(_QUEUE_FILE).write_text(str(QUEUE), encoding="ascii")
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    try:
        return in_thread(make)
    except (LinuxError, OSError):
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
