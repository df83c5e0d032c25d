"""Snapshot and restore of permanent neighbour entries."""

import errno
from collections.abc import Sequence
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, REPLACE, Request, attribute, u32
from podwire.linux.values import IP

_NEW, _GET = 28, 30
_MESSAGE = Struct("=BxxxiHBB")  # family, index, state, flags, kind
_ADDRESS, _MAC, _INDEX, _PROTOCOL, _FLAGS = 1, 2, 8, 12, 15
_KEPT = (_ADDRESS, _MAC, _PROTOCOL, _FLAGS)
_PERMANENT, _PROXY = 0x80, 0x08
_FAMILIES = (2, 10)

_ERRORS: errors.Names = {errno.ENODEV: errors.NoSuchLink}


class SavedNeighbour(NamedTuple):
    family: int
    state: int
    flags: int
    kind: int
    attributes: tuple[tuple[int, str], ...]
    """By the kernel's numbers, in hex."""

    @property
    def address(self) -> IP:
        return ip_address(bytes.fromhex(dict(self.attributes)[_ADDRESS]))


class SavedNeighbours:
    """Neighbour entries of one namespace."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self, index: int) -> tuple[SavedNeighbour, ...]:
        """Returns permanent entries, and proxy entries."""
        return (*self._list(index, 0), *self._list(index, _PROXY))

    def _list(self, index: int, flags: int) -> tuple[SavedNeighbour, ...]:
        # The kernel lists proxies of all links: it takes no index with them.
        narrowed = b"" if flags else u32(_INDEX, index)
        request = Request(_GET, 0, _MESSAGE.pack(0, 0, 0, flags, 0) + narrowed, "list neighbours", _ERRORS)
        kept = (_kept(body, index) for body in self._netlink.dump(request))
        return tuple(neighbour for neighbour in kept if neighbour is not None)

    def add(self, index: int, neighbour: SavedNeighbour) -> None:
        """Adds or replaces an entry. Raises NoSuchLink."""
        head = _MESSAGE.pack(neighbour.family, index, neighbour.state, neighbour.flags, neighbour.kind)
        body = head + b"".join(attribute(kind, bytes.fromhex(value)) for kind, value in neighbour.attributes)
        self._netlink.do(Request(_NEW, CREATE | REPLACE, body, f"add neighbour {neighbour.address}", _ERRORS))

    def restore(self, index: int, wanted: Sequence[SavedNeighbour]) -> None:
        """Adds missing entries."""
        found = self.list(index) if wanted else ()
        for neighbour in wanted:
            if neighbour not in found:
                self.add(index, neighbour)


def _kept(body: bytes, index: int) -> SavedNeighbour | None:
    family, whose, state, flags, kind = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    stays = state & _PERMANENT or flags & _PROXY
    if whose != index or family not in _FAMILIES or not stays or _ADDRESS not in attrs:
        return None
    attributes = tuple((number, attrs[number].hex()) for number in _KEPT if number in attrs)
    return SavedNeighbour(family, state & _PERMANENT, flags, kind, attributes)
