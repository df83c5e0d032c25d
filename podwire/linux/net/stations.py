"""The forwarding table of VXLAN links by rtnetlink: which machine has a MAC address."""

import errno
from ipaddress import ip_address
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import mac_bytes
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, REPLACE, Request, attribute
from podwire.linux.values import Station

_NEW, _DELETE, _GET = 28, 29, 30
_MESSAGE = Struct("=BxxxiHBB")  # family, index, state, flags, kind
_BRIDGE_FAMILY = 7
_MACHINE, _MAC = 1, 2
_PERMANENT, _NOARP = 0x80, 0x40
_SELF = 0x02
_NO_MAC = bytes(6)

_ERRORS: errors.Names = {
    errno.EEXIST: errors.NeighbourExists,
    errno.ENOENT: errors.NoSuchNeighbour,
    errno.ENODEV: errors.NoSuchLink,
}


class KernelStations:
    """Stations of one namespace; entries of bridges are not ours to see."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def replace(self, station: Station) -> None:
        """NoSuchLink."""
        request = Request(_NEW, CREATE | REPLACE, _body(station), f"add station {station.mac}", _ERRORS)
        self._netlink.do(request)

    def delete(self, station: Station) -> None:
        """NoSuchNeighbour, NoSuchLink."""
        self._netlink.do(Request(_DELETE, 0, _body(station), f"delete station {station.mac}", _ERRORS))

    def list(self, index: int) -> list[Station]:
        """Lists the stations of a link that have a machine."""
        body = _MESSAGE.pack(_BRIDGE_FAMILY, 0, 0, 0, 0)
        replies = self._netlink.dump(Request(_GET, 0, body, "list stations", _ERRORS))
        stations = [station for station in map(_parsed, replies) if station is not None]
        return [station for station in stations if station.ifindex == index]


def _body(station: Station) -> bytes:
    head = _MESSAGE.pack(_BRIDGE_FAMILY, station.ifindex, _PERMANENT | _NOARP, _SELF, 0)
    return head + attribute(_MAC, mac_bytes(station.mac)) + attribute(_MACHINE, station.machine.packed)


def _parsed(body: bytes) -> Station | None:
    family, index, _, _, _ = _MESSAGE.unpack_from(body)
    attributes = wire.attributes(body, _MESSAGE.size)
    if family != _BRIDGE_FAMILY or _MACHINE not in attributes or attributes.get(_MAC, _NO_MAC) == _NO_MAC:
        return None
    return Station(index, attributes[_MAC].hex(":"), ip_address(attributes[_MACHINE]))
