"""Deletion of links without waiting for the kernel's clean-up.

The kernel announces a deletion after a millisecond: from then on the link is in no list, has no name, no address and no
packets. The request is answered 10 to 30 ms later, when no processor can have a reference (RCU).
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
    """Deletes a link of the calling thread's namespace; returns when the deletion is announced. Raises NoSuchLink.

    `later` runs the work in another thread, or at once.
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
    """Waits for the announcement or the answer."""
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
            poll.unregister(watcher)  # announcements were lost: wait for the answer


def _tells(messages: bytes, ifindex: int) -> bool:
    """Whether messages announce the deletion of a link; one of another family says that it left a bridge."""
    at = 0
    while at < len(messages):
        length, kind, *_ = HEADER.unpack_from(messages, at)
        if kind == _DELETED and _MESSAGE.unpack_from(messages, at + HEADER.size)[::2] == (0, ifindex):
            return True
        at += (length + 3) & ~3
    return False
