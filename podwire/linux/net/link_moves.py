"""Events and queries of links in other network namespaces, as seen from one.

The kernel has an id for each namespace that a link moved to (nsid). By it events of the link arrive here
(NETLINK_LISTEN_ALL_NSID) and queries reach it, without entering the namespace and without a path to it.
"""

import errno
from _socket import AF_NETLINK, CMSG_SPACE, SO_RCVBUF, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_RAW, SOL_SOCKET, socket
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, suppress
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import parsed
from podwire.linux.net.netlink import ROUTE, Netlink
from podwire.linux.net.wire import HEADER, Request, u32
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Link, Path

_SOL_NETLINK, _LISTEN_ALL = 270, 8
_BUFFER_FORCED = 33
_ROOM, _CHUNK = 1 << 20, 1 << 17
_LINKS, _NAMESPACES = 1 << 1 - 1, 1 << 28 - 1
_NEW, _DELETED, _GET, _DELETED_ID, _GET_ID = 16, 17, 18, 89, 90
_MESSAGE = Struct("=BxHiII")
_ID_MESSAGE = Struct("=B3x")
_SIGNED = Struct("=i")
_NEW_NAMESPACE, _TARGET_NAMESPACE, _NEW_INDEX = 45, 46, 49
_NAMESPACE_ID, _NAMESPACE_FD = 1, 3
_EXT_MASK, _SKIP_STATISTICS = 29, 1 << 3
_NO_CARRIER = ("down", "lowerlayerdown", "notpresent")

_ERRORS: errors.Names = {
    errno.ENODEV: errors.NoSuchLink,
    errno.EINVAL: errors.NoSuchNamespace,
    errno.ENXIO: errors.NoSuchLink,
}


class LinkEvent(NamedTuple):
    """A link appeared, changed or disappeared."""

    link: Link
    gone: bool = False
    netns: int | None = None
    """The id of the namespace of the event; None is the listener's own."""
    went: tuple[int, int] | None = None
    """If it moved: the id of its new namespace, and its index there."""


class NamespaceEnded(NamedTuple):
    """A namespace ended. There are no events for its links: virtual ones are deleted, physical ones are on the host."""

    netns: int


class LinkMoves:
    """A socket for events of links, in this namespace and in all that have an id here."""

    def __init__(self, netns: Path | int | None = None) -> None:
        """In the namespace at a path or behind a descriptor; None is the calling thread's own."""
        if netns is None:
            self._socket = _opened()
        else:
            with visit(netns):
                self._socket = _opened()
        self.lost = False
        """Whether events were lost; the reader resets it."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> list[LinkEvent | NamespaceEnded]:
        """Returns the events since the last call."""
        found: list[LinkEvent | NamespaceEnded] = []
        while True:
            try:
                data, beside, _, _ = self._socket.recvmsg(_CHUNK, CMSG_SPACE(_SIGNED.size))
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise errors.from_oserror(error, "hear of links") from error
                self.lost = True
            else:
                found += _messages(data, _number(beside))


class RemoteLinks:
    """Queries links of other namespaces, by the ids of these."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink

    def namespaces(self) -> list[int]:
        request = Request(_GET_ID, 0, _ID_MESSAGE.pack(0), "list namespaces", _ERRORS)
        attrs = (wire.attributes(reply, _ID_MESSAGE.size) for reply in self._netlink.dump(request))
        return [_signed(namespace[_NAMESPACE_ID]) for namespace in attrs if _NAMESPACE_ID in namespace]

    def number(self, netns: int) -> int | None:
        """Returns the id of the namespace of a descriptor; None until a link has moved there."""
        body = _ID_MESSAGE.pack(0) + u32(_NAMESPACE_FD, netns)
        attrs = self._netlink.ask(Request(_GET_ID, 0, body, "find a namespace's number", _ERRORS))
        found = _signed(wire.attributes(attrs, _ID_MESSAGE.size)[_NAMESPACE_ID])
        return found if found >= 0 else None

    def links(self, netns: int) -> list[Link]:
        """NoSuchNamespace."""
        body = _MESSAGE.pack(0, 0, 0, 0, 0) + u32(_EXT_MASK, _SKIP_STATISTICS) + u32(_TARGET_NAMESPACE, netns)
        request = Request(_GET, 0, body, f"list the links of namespace {netns}", _ERRORS)
        return [parsed(reply) for reply in self._netlink.dump(request)]

    def find(self, wanted: Mapping[tuple[str, str], Hashable]) -> dict[Hashable, tuple[int, Link]]:
        """Finds links in other namespaces by MAC address and kind, because a pod may rename them."""
        found: dict[Hashable, tuple[int, Link]] = {}
        for netns in self.namespaces() if wanted else ():
            try:
                there = self.links(netns)
            except errors.LinuxError:  # it ended meanwhile
                continue
            found |= {wanted[link.mac, link.kind]: (netns, link) for link in there if (link.mac, link.kind) in wanted}
        return found


def no_carrier(link: Link) -> str:
    """Returns why a link cannot pass packets; empty for a link that is down, whose carrier is unknown."""
    return f"{link.name} has no carrier" if link.up and link.state in _NO_CARRIER else ""


def _opened() -> socket:
    with ExitStack() as undo:
        opened = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, ROUTE)
        undo.callback(opened.close)
        for option in (SO_RCVBUF, _BUFFER_FORCED):
            with suppress(OSError):  # a smaller buffer loses events sooner
                opened.setsockopt(SOL_SOCKET, option, _ROOM)
        opened.setsockopt(_SOL_NETLINK, _LISTEN_ALL, 1)
        opened.bind((0, _LINKS | _NAMESPACES))
        undo.pop_all()
    return opened


def _number(beside: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in beside:
        if (level, kind) == (_SOL_NETLINK, _LISTEN_ALL):
            return _signed(data)
    return None


def _signed(data: bytes) -> int:
    number: int = _SIGNED.unpack_from(data)[0]
    return number


def _messages(data: bytes, netns: int | None) -> Iterator[LinkEvent | NamespaceEnded]:
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, *_ = HEADER.unpack_from(data, at)
        if length < HEADER.size:
            return
        body = data[at + HEADER.size : at + length]
        if kind in (_NEW, _DELETED) and body[0] == 0:  # of another family is a place in a bridge
            yield LinkEvent(parsed(body), kind == _DELETED, netns, _went(body))
        elif kind == _DELETED_ID and netns is None:  # others have other numbers for the same namespaces
            yield NamespaceEnded(_signed(wire.attributes(body, _ID_MESSAGE.size)[_NAMESPACE_ID]))
        at += (length + 3) & ~3


def _went(body: bytes) -> tuple[int, int] | None:
    attrs = wire.attributes(body, _MESSAGE.size)
    if _NEW_NAMESPACE not in attrs:
        return None
    return _signed(attrs[_NEW_NAMESPACE]), wire.number(attrs.get(_NEW_INDEX))
