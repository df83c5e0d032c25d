"""Links that are deleted without waiting for the kernel to tidy up.

The kernel tells everybody of a link's end after a millisecond: from then on it is in no list, has no name, no address
and no packet. Whoever asked for it is answered only when no processor can hold it any more, 10 to 30 ms later.
"""

import errno
import select
from _socket import AF_NETLINK, AF_UNIX, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW, SOCK_STREAM, socket, socketpair
from collections.abc import Callable
from struct import Struct

from podwire.linux import errors
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.wire import HEADER
from podwire.linux.proc.stopwatch import step

_LINK_GROUP = 1
_DELETED = 17
_MESSAGE = Struct("=BxHi")  # family, type, index
_CHUNK = 1 << 16


def delete_link(ifindex: int, later: Callable[[Callable[[], None]], None]) -> None:
    """Delete a link of the calling thread's namespace; returns when it is gone for everybody. NoSuchLink.

    `later` does in another thread, or at once, what is handed to it.
    """
    failed: list[errors.LinuxError] = []
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    network = KernelNetwork()

    def delete() -> None:
        try:
            network.links.delete(ifindex)
        except errors.LinuxError as error:
            failed.append(error)
        finally:
            network.close()
            theirs.close()

    watcher = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)
    try:
        watcher.bind((0, _LINK_GROUP))
        later(delete)
        _wait(ifindex, watcher, ours)
    finally:
        watcher.close()
        ours.close()
    if failed:
        raise failed[0]


def _wait(ifindex: int, watcher: socket, done: socket) -> None:
    """Until the kernel tells everybody, or answers."""
    poll = select.poll()
    poll.register(done, select.POLLIN)
    poll.register(watcher, select.POLLIN)
    while True:
        with step("waiting"):
            ready = {file for file, _ in poll.poll()}
        if done.fileno() in ready:
            return
        try:
            if _tells(watcher.recv(_CHUNK, MSG_DONTWAIT), ifindex):
                return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            poll.unregister(watcher)  # more was told than there is room for: the answer comes, too


def _tells(messages: bytes, ifindex: int) -> bool:
    """Whether a link has gone; that it left a bridge is told by the same kind, of another family."""
    at = 0
    while at < len(messages):
        length, kind, *_ = HEADER.unpack_from(messages, at)
        if kind == _DELETED and _MESSAGE.unpack_from(messages, at + HEADER.size)[::2] == (0, ifindex):
            return True
        at += (length + 3) & ~3
    return False
