"""IP addresses of links by rtnetlink."""

import errno
from ipaddress import IPv4Address, IPv4Interface, IPv6Interface
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, REPLACE, Request, attribute, u8, u32
from podwire.linux.values import PROTOCOL, Address, Interface

_NEW, _DELETE, _GET = 20, 21, 22
_MESSAGE = Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ADDRESS, _LOCAL, _BROADCAST, _FLAGS, _PROTO = 1, 2, 4, 8, 11
_CACHE_INFO, _LIFETIME = 6, Struct("=IIII")  # preferred, valid: seconds; two times of changes
_PERMANENT = 0x80
_NODAD, _TENTATIVE, _NO_PREFIX_ROUTE = 0x02, 0x40, 0x200
_FAMILY = {4: 2, 6: 10}

_ERRORS: errors.Names = {
    errno.EEXIST: errors.AddressExists,
    errno.EADDRNOTAVAIL: errors.NoSuchAddress,
    errno.ENODEV: errors.NoSuchLink,
}


class KernelAddresses:
    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def add(self, index: int, interface: Interface, *, dad: bool = False, prefix_route: bool = True) -> None:
        """Adds an address, tagged as ours. Raises AddressExists, NoSuchLink.

        Without `dad` an IPv6 address is usable at once, without duplicate address detection. Without `prefix_route` the
        kernel adds no route to its network.
        """
        flags = (0 if dad else _NODAD) | (0 if prefix_route else _NO_PREFIX_ROUTE)
        body = _body(index, interface) + u32(_FLAGS, flags) + u8(_PROTO, PROTOCOL)
        if isinstance(interface, IPv4Interface) and interface.network.prefixlen < 31:
            body += attribute(_BROADCAST, interface.network.broadcast_address.packed)
        self._netlink.do(Request(_NEW, CREATE | EXCL, body, f"add address {interface} to link {index}", _ERRORS))

    def lend(self, index: int, interface: Interface, seconds: int) -> None:
        """Adds an address for some time, tagged as ours, or extends the time: then the kernel deletes it by itself.

        It gets no route, and is not chosen as the source of packets: it is deprecated from the beginning. NoSuchLink.
        """
        lifetime = attribute(_CACHE_INFO, _LIFETIME.pack(0, seconds, 0, 0))
        body = _body(index, interface) + u32(_FLAGS, _NODAD | _NO_PREFIX_ROUTE) + u8(_PROTO, PROTOCOL) + lifetime
        self._netlink.do(Request(_NEW, CREATE | REPLACE, body, f"lend address {interface} to link {index}", _ERRORS))

    def delete(self, index: int, interface: Interface) -> None:
        """NoSuchAddress, NoSuchLink."""
        body = _body(index, interface)
        self._netlink.do(Request(_DELETE, 0, body, f"delete address {interface} of link {index}", _ERRORS))

    def list(self, index: int | None = None) -> list[Address]:
        """All of a link, or of the namespace."""
        body = _MESSAGE.pack(0, 0, 0, 0, index or 0)
        found = [_parsed(reply) for reply in self._netlink.dump(Request(_GET, 0, body, "list addresses", _ERRORS))]
        return [address for address in found if index in (None, address.ifindex)]


def _body(index: int, interface: Interface) -> bytes:
    packed = interface.ip.packed
    scope = 254 if interface.is_loopback else 253 if interface.is_link_local else 0  # host, link, global
    head = _MESSAGE.pack(_FAMILY[interface.version], interface.network.prefixlen, 0, scope, index)
    return head + attribute(_LOCAL, packed) + attribute(_ADDRESS, packed)


def _parsed(body: bytes) -> Address:
    family, length, _, _, index = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    packed = attrs.get(_LOCAL) or attrs.get(_ADDRESS) or IPv4Address(0).packed
    interface: Interface = IPv4Interface((packed, length)) if family == 2 else IPv6Interface((packed, length))
    flags = wire.number(attrs.get(_FLAGS))
    lent = not flags & _PERMANENT
    return Address(index, interface, wire.number(attrs.get(_PROTO)), bool(flags & _TENTATIVE), lent)
