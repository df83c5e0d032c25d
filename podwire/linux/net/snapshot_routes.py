"""Snapshot and restore of a link's routes with all their attributes.

Routes that come by themselves are left out: the kernel's own, and those from router advertisements.
"""

import errno
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, REPLACE, Request, attribute, u32
from podwire.linux.values import IP, LOCAL, MAIN, Network

_NEW, _GET = 24, 26
_MESSAGE = Struct("=BBBBBBBBI")  # family, prefix lengths, tos, table, protocol, scope, kind, flags
_DESTINATION, _OUT, _GATEWAY, _SOURCE, _MULTIPATH, _CACHE, _TABLE, _VIA, _EXPIRES = 1, 4, 5, 7, 9, 12, 15, 18, 23
_COMES_AND_GOES = frozenset((_OUT, _CACHE, _EXPIRES))
_HOP = Struct("=HBBi")  # length, flags, hops, link
_APPEND = 0x800
_ASKED_FOR = 0x04  # onlink; other flags tell how a route fares
_CLONED = 0x200
_KERNEL, _ADVERTISED = 2, 9

_ERRORS: errors.Names = {
    errno.EEXIST: errors.RouteExists,
    errno.ESRCH: errors.NoSuchRoute,
    errno.ENOENT: errors.NoSuchRoute,
    errno.ENODEV: errors.NoSuchLink,
}


class SavedRoute(NamedTuple):
    family: int
    prefix: int
    source_prefix: int
    tos: int
    table: int
    protocol: int
    scope: int
    kind: int
    flags: int
    attributes: tuple[tuple[int, str], ...]
    """By the kernel's numbers, in hex. In a multipath route the index of our link is 0."""

    @property
    def destination(self) -> Network:
        packed = bytes.fromhex(dict(self.attributes).get(_DESTINATION, ""))
        if self.family == 2:
            return IPv4Network((packed or bytes(4), self.prefix))
        return IPv6Network((packed or bytes(16), self.prefix))

    @property
    def gateway(self) -> IP | None:
        attrs = dict(self.attributes)
        packed = bytes.fromhex(attrs.get(_GATEWAY, "") or attrs.get(_VIA, "")[4:])
        return ip_address(packed) if packed else None

    @property
    def source(self) -> IP | None:
        packed = bytes.fromhex(dict(self.attributes).get(_SOURCE, ""))
        return ip_address(packed) if packed else None

    @property
    def shares(self) -> bool:
        """Whether it is a multipath route."""
        return _MULTIPATH in dict(self.attributes)

    @property
    def to_link(self) -> bool:
        """Whether it has no gateway, so that gateways of other routes may be behind it."""
        return self.gateway is None and not self.shares


class SavedRoutes:
    """Routes of one namespace."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self, index: int) -> tuple[SavedRoute, ...]:
        """Returns the routes of a link in all tables but the local one, in the kernel's order."""
        routes = []
        for family in (2, 10):
            body = _MESSAGE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + u32(_OUT, index)
            replies = self._netlink.dump(Request(_GET, 0, body, f"list the routes of link {index}", _ERRORS))
            routes += [route for reply in replies if (route := _kept(reply, index)) is not None]
        return tuple(routes)

    def leads_out(self, index: int) -> bool:
        """Whether any default route of the main table uses a link."""
        for family in (2, 10):
            body = _MESSAGE.pack(family, 0, 0, 0, MAIN, 0, 0, 0, 0) + u32(_OUT, index)
            for reply in self._netlink.dump(Request(_GET, 0, body, f"list the routes of link {index}", _ERRORS)):
                attrs = wire.attributes(reply, _MESSAGE.size)
                if _MESSAGE.unpack_from(reply)[1] == 0 and _uses(attrs, index):
                    return True
        return False

    def add(self, index: int, route: SavedRoute, *, alone: bool = False) -> None:
        """Adds a route. Raises RouteExists, with `alone` also for another one to the same destination; Unreachable."""
        head = _MESSAGE.pack(
            route.family,
            route.prefix,
            route.source_prefix,
            route.tos,
            route.table if route.table < 256 else 0,
            route.protocol,
            route.scope,
            route.kind,
            route.flags,
        )
        attrs = [(kind, bytes.fromhex(value)) for kind, value in route.attributes]
        parts = [attribute(kind, _own(value, 0, index) if kind == _MULTIPATH else value) for kind, value in attrs]
        if not route.shares:
            parts.append(u32(_OUT, index))
        # Of a route that several links carry, the kernel keeps what is left when one goes; others may be to the same.
        flags = CREATE | (EXCL if alone else REPLACE if route.shares and route.family == 2 else _APPEND)
        self._netlink.do(Request(_NEW, flags, head + b"".join(parts), f"add route {route.destination}", _ERRORS))

    def restore(self, index: int, wanted: Sequence[SavedRoute]) -> tuple[str, ...]:
        """Adds missing routes, those without a gateway first; returns a message for each that could not be added."""
        found = self.list(index)
        failed = []
        for route in sorted((route for route in wanted if route not in found), key=lambda route: not route.to_link):
            try:
                self.add(index, route)
            except errors.RouteExists:
                continue
            except errors.LinuxError as error:
                failed.append(str(error))
        return tuple(failed)


def _kept(body: bytes, index: int) -> SavedRoute | None:
    family, prefix, source_prefix, tos, table, protocol, scope, kind, flags = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    table = wire.number(attrs.get(_TABLE), table)
    if protocol in (_KERNEL, _ADVERTISED) or table == LOCAL or flags & _CLONED or not _uses(attrs, index):
        return None
    if _MULTIPATH in attrs:
        attrs[_MULTIPATH] = _own(attrs[_MULTIPATH], index, 0)
    attributes = tuple((number, attrs[number].hex()) for number in sorted(attrs.keys() - _COMES_AND_GOES))
    return SavedRoute(family, prefix, source_prefix, tos, table, protocol, scope, kind, flags & _ASKED_FOR, attributes)


def _uses(attrs: dict[int, bytes], index: int) -> bool:
    """Filters, because older kernels list the routes of all links."""
    return wire.number(attrs.get(_OUT)) == index or index in _links(attrs.get(_MULTIPATH, b""))


def _links(hops: bytes) -> Iterator[int]:
    at = 0
    while at + _HOP.size <= len(hops):
        length, _, _, index = _HOP.unpack_from(hops, at)
        yield index
        at += (length + 3) & ~3


def _own(hops: bytes, was: int, becomes: int) -> bytes:
    """Replaces the index of our link in a multipath route, and removes status flags."""
    changed, at = bytearray(hops), 0
    while at + _HOP.size <= len(hops):
        length, flags, weight, index = _HOP.unpack_from(hops, at)
        _HOP.pack_into(changed, at, length, flags & _ASKED_FOR, weight, becomes if index == was else index)
        at += (length + 3) & ~3
    return bytes(changed)
