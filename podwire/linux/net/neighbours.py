"""Neighbour entries by rtnetlink."""

import errno
from ipaddress import ip_address
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import mac_bytes
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, REPLACE, Request, attribute
from podwire.linux.values import IP, Neighbour

_NEW, _DELETE, _GET = 28, 29, 30
_MESSAGE = Struct("=BxxxiHBB")  # family, index, state, flags, kind
_ADDRESS, _MAC = 1, 2
_PERMANENT, _REACHABLE, _NOARP = 0x80, 0x02, 0x40
_FAMILY = {4: 2, 6: 10}

_ERRORS: errors.Names = {
    errno.EEXIST: errors.NeighbourExists,
    errno.ENOENT: errors.NoSuchNeighbour,
    errno.ENODEV: errors.NoSuchLink,
}


class KernelNeighbours:
    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def add(self, neighbour: Neighbour) -> None:
        """NeighbourExists, NoSuchLink."""
        self._put(neighbour, CREATE | EXCL)

    def replace(self, neighbour: Neighbour) -> None:
        self._put(neighbour, CREATE | REPLACE)

    def _put(self, neighbour: Neighbour, flags: int) -> None:
        state = _PERMANENT if neighbour.permanent else _REACHABLE
        head = _head(neighbour.ifindex, neighbour.address, state)
        body = head + attribute(_ADDRESS, neighbour.address.packed) + attribute(_MAC, mac_bytes(neighbour.mac))
        self._netlink.do(Request(_NEW, flags, body, f"add neighbour {neighbour.address}", _ERRORS))

    def delete(self, index: int, address: IP) -> None:
        """NoSuchNeighbour, NoSuchLink."""
        body = _head(index, address, 0) + attribute(_ADDRESS, address.packed)
        self._netlink.do(Request(_DELETE, 0, body, f"delete neighbour {address}", _ERRORS))

    def list(self, index: int | None = None) -> list[Neighbour]:
        """Those that have a MAC address and were resolved or set, not those that every link has (multicast)."""
        body = _MESSAGE.pack(0, 0, 0, 0, 0)
        bodies = self._netlink.dump(Request(_GET, 0, body, "list neighbours", _ERRORS))
        found = [neighbour for neighbour in map(_parsed, bodies) if neighbour is not None]
        return [neighbour for neighbour in found if index in (None, neighbour.ifindex)]


def _head(index: int, address: IP, state: int) -> bytes:
    return _MESSAGE.pack(_FAMILY[address.version], index, state, 0, 0)


def _parsed(body: bytes) -> Neighbour | None:
    family, index, state, _, _ = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    if family not in _FAMILY.values() or state & _NOARP or _MAC not in attrs or _ADDRESS not in attrs:
        return None
    return Neighbour(index, ip_address(attrs[_ADDRESS]), attrs[_MAC].hex(":"), bool(state & _PERMANENT))
