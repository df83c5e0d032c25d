"""Snapshot and restore of IP addresses with all their attributes."""

import errno
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv6Interface
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, REPLACE, Request, attribute, u32
from podwire.linux.values import Interface

_NEW, _DELETE, _GET = 20, 21, 22
_MESSAGE = Struct("=BBBBI")  # family, prefix length, flags, scope, index
_LIFETIMES = Struct("=IIII")  # preferred, valid, and when it was made and changed
_ADDRESS, _LOCAL, _LABEL, _BROADCAST, _CACHE, _FLAGS, _PRIORITY, _PROTOCOL = 1, 2, 3, 4, 6, 8, 9, 11
_KEPT = (_ADDRESS, _LOCAL, _LABEL, _BROADCAST, _PRIORITY, _PROTOCOL)
_ASKED_FOR = 0x02 | 0x04 | 0x10 | 0x100 | 0x200 | 0x400  # flags that somebody sets; the others follow from the link
_ADVERTISED, _LINK_LOCAL = 2, 3  # by routers, and made of the MAC address: they come by themselves
_FOR_EVER = 0xFFFFFFFF

_ERRORS: errors.Names = {
    errno.EEXIST: errors.AddressExists,
    errno.EADDRNOTAVAIL: errors.NoSuchAddress,
    errno.ENODEV: errors.NoSuchLink,
}


class _Fields(NamedTuple):
    family: int
    prefix: int
    scope: int
    flags: int
    attributes: tuple[tuple[int, str], ...]
    """By the kernel's numbers, in hex."""
    preferred: int = _FOR_EVER
    valid: int = _FOR_EVER


class SavedAddress(_Fields):
    """One address. Two that differ only in their remaining lifetimes are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SavedAddress) and self[:5] == other[:5]

    def __hash__(self) -> int:
        return hash(self[:5])

    @property
    def interface(self) -> Interface:
        """The address with its prefix length."""
        attrs = dict(self.attributes)
        packed = bytes.fromhex(attrs.get(_LOCAL) or attrs.get(_ADDRESS, ""))
        return IPv4Interface((packed, self.prefix)) if self.family == 2 else IPv6Interface((packed, self.prefix))


class SavedAddresses:
    """Reads and writes addresses on one netlink socket."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self) -> dict[int, tuple[SavedAddress, ...]]:
        """Returns addresses by the index of their link, in the kernel's order, without advertised ones."""
        found: dict[int, tuple[SavedAddress, ...]] = {}
        for body in self._netlink.dump(Request(_GET, 0, _MESSAGE.pack(0, 0, 0, 0, 0), "list addresses", _ERRORS)):
            index = _MESSAGE.unpack_from(body)[4]
            attrs = wire.attributes(body, _MESSAGE.size)
            if wire.number(attrs.get(_PROTOCOL)) != _ADVERTISED:
                found[index] = (*found.get(index, ()), _kept(body, attrs))
        return found

    def add(self, index: int, address: SavedAddress) -> None:
        """Adds or replaces an address. Raises NoSuchLink."""
        self._netlink.do(_request(_NEW, CREATE | REPLACE, index, address, "add"))

    def restore(self, index: int, wanted: Sequence[SavedAddress], found: Sequence[SavedAddress]) -> None:
        """Deletes and adds addresses until a link has the wanted ones; the kernel's own stay. Raises NoSuchLink."""
        for address in found:
            if address not in wanted and (_PROTOCOL, f"{_LINK_LOCAL:02x}") not in address.attributes:
                self._netlink.do(_request(_DELETE, 0, index, address, "delete"))
        for address in wanted:
            if address not in found:
                self.add(index, address)


def _kept(body: bytes, attrs: dict[int, bytes]) -> SavedAddress:
    family, prefix, flags, scope, _ = _MESSAGE.unpack_from(body)
    preferred, valid = _LIFETIMES.unpack(attrs[_CACHE])[:2] if _CACHE in attrs else (_FOR_EVER, _FOR_EVER)
    return SavedAddress(
        family,
        prefix,
        scope,
        wire.number(attrs.get(_FLAGS), flags) & _ASKED_FOR,
        tuple((kind, attrs[kind].hex()) for kind in _KEPT if kind in attrs),
        preferred,
        valid,
    )


def _request(kind: int, flags: int, index: int, kept: SavedAddress, verb: str) -> Request:
    body = _MESSAGE.pack(kept.family, kept.prefix, 0, kept.scope, index)
    body += b"".join(attribute(number, bytes.fromhex(value)) for number, value in kept.attributes)
    if kind == _NEW:
        body += u32(_FLAGS, kept.flags)
        body += attribute(_CACHE, _LIFETIMES.pack(kept.preferred, kept.valid, 0, 0))
    return Request(kind, flags, body, f"{verb} an address of link {index}", _ERRORS)
