"""Routes by rtnetlink."""

import errno
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, REPLACE, Request, attribute, nested, u32
from podwire.linux.values import MAIN, Route

_NEW, _DELETE, _GET = 24, 25, 26
_MESSAGE = Struct("=BBBBBBBBI")  # family, prefix lengths, tos, table, protocol, scope, kind, flags
_DESTINATION, _OUT, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _TABLE, _VIA = 1, 4, 5, 6, 7, 8, 15, 18
_MULTIPATH = 9
_METRIC_MTU, _METRIC_ADVMSS = 2, 8
_HOP = Struct("=HBBi")  # length, flags, hops, link
_ONLINK, _CLONED = 4, 0x200
_LINK_SCOPE, _NOWHERE = 253, 255
_KINDS = {"unicast": 1, "local": 2, "broadcast": 3, "multicast": 5, "blackhole": 6, "unreachable": 7, "prohibit": 8}
_NAMES = {number: name for name, number in _KINDS.items()}
_FAMILY = {4: 2, 6: 10}

_ERRORS: errors.Names = {
    errno.EEXIST: errors.RouteExists,
    errno.ESRCH: errors.NoSuchRoute,
    errno.ENOENT: errors.NoSuchRoute,
    errno.ENODEV: errors.NoSuchLink,
}


class KernelRoutes:
    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def add(self, route: Route) -> None:
        """RouteExists, NoSuchLink, Unreachable."""
        self._netlink.do(Request(_NEW, CREATE | EXCL, _body(route), f"add route {describe(route)}", _ERRORS))

    def replace(self, route: Route) -> None:
        """Add it, in place of one with the same destination, table and metric if there is one."""
        self._netlink.do(Request(_NEW, CREATE | REPLACE, _body(route), f"replace route {describe(route)}", _ERRORS))

    def delete(self, route: Route) -> None:
        """NoSuchRoute; what the route does not say (a gateway, a link) is not compared."""
        body = _body(route, deleting=True)
        self._netlink.do(Request(_DELETE, 0, body, f"delete route {describe(route)}", _ERRORS))

    def list(self, family: int, table: int | None = MAIN) -> list[Route]:
        """Lists routes of IPv4 or IPv6 (4, 6), of one table, or of all if it is None."""
        body = _MESSAGE.pack(_FAMILY[family], 0, 0, 0, 0, 0, 0, 0, 0)
        if table is not None:
            body += u32(_TABLE, table)
        try:
            bodies = self._netlink.dump(Request(_GET, 0, body, "list routes", _ERRORS))
        except errors.NoSuchRoute:
            return []  # a table that nothing was ever put into
        found = [route for reply in bodies if not _MESSAGE.unpack_from(reply)[8] & _CLONED for route in _parsed(reply)]
        return [route for route in found if table in (None, route.table)]


def describe(route: Route) -> str:
    """Describes a route for error messages."""
    via = f" via {route.gateway}" if route.gateway else ""
    out = f" on link {route.ifindex}" if route.ifindex else ""
    return f"{route.destination}{via}{out}" + (f" in table {route.table}" if route.table != MAIN else "")


def _scope(route: Route, deleting: bool) -> int:
    if route.scope is not None:
        return route.scope
    if route.destination.version == 6:
        return 0
    if deleting:
        return _NOWHERE  # any
    return _LINK_SCOPE if route.gateway is None and route.kind == "unicast" else 0


def _body(route: Route, *, deleting: bool = False) -> bytes:
    destination = route.destination
    family = _FAMILY[destination.version]
    head = _MESSAGE.pack(
        family,
        destination.prefixlen,
        0,
        0,
        route.table if route.table < 256 else 0,
        route.protocol,
        _scope(route, deleting),
        _KINDS[route.kind],
        _ONLINK if route.onlink else 0,
    )
    parts = [attribute(_DESTINATION, destination.network_address.packed), u32(_TABLE, route.table)]
    if route.others:
        parts.append(_multipath(route))
    else:
        parts += [] if route.gateway is None else [_gateway(route)]
        parts += [u32(_OUT, route.ifindex)] if route.ifindex else []
    if route.metric:
        parts.append(u32(_PRIORITY, route.metric))
    if route.source is not None:
        parts.append(attribute(_SOURCE, route.source.packed))
    if route.mtu or route.advmss:
        mtu = u32(_METRIC_MTU, route.mtu) if route.mtu else b""
        parts.append(nested(_METRICS, mtu, u32(_METRIC_ADVMSS, route.advmss) if route.advmss else b""))
    return head + b"".join(parts)


def _gateway(route: Route) -> bytes:
    gateway = route.gateway
    assert gateway is not None  # noqa: S101 - asked by the caller
    if gateway.version == route.destination.version:
        return attribute(_GATEWAY, gateway.packed)
    return attribute(_VIA, wire.U16.pack(_FAMILY[gateway.version]) + gateway.packed)


def _multipath(route: Route) -> bytes:
    hops = []
    for gateway in (route.gateway, *route.others):
        way = _gateway(route._replace(gateway=gateway))
        flags = _ONLINK if route.onlink else 0
        hops.append(_HOP.pack(_HOP.size + len(way), flags, 0, route.ifindex) + way)
    return attribute(_MULTIPATH, b"".join(hops))


def _hops(packed: bytes) -> Iterator[tuple[int, dict[int, bytes]]]:
    """The link of each hop, and its other attributes."""
    at = 0
    while at + _HOP.size <= len(packed):
        length, _, _, ifindex = _HOP.unpack_from(packed, at)
        yield ifindex, wire.attributes(packed[at + _HOP.size : at + length])
        at += (length + 3) & ~3


def _parsed(body: bytes) -> Iterator[Route]:
    """One for each gateway."""
    family, length, _, _, table, protocol, scope, kind, flags = _MESSAGE.unpack_from(body)
    found = wire.attributes(body, _MESSAGE.size)
    metrics = wire.attributes(found.get(_METRICS, b""))
    packed = found.get(_DESTINATION) or bytes(4 if family == 2 else 16)
    route = Route(
        destination=(IPv4Network if family == 2 else IPv6Network)((packed, length)),
        gateway=_way(found),
        ifindex=wire.number(found.get(_OUT)),
        source=ip_address(found[_SOURCE]) if _SOURCE in found else None,
        table=wire.number(found.get(_TABLE), table),
        metric=wire.number(found.get(_PRIORITY)),
        mtu=wire.number(metrics.get(_METRIC_MTU)),
        advmss=wire.number(metrics.get(_METRIC_ADVMSS)),
        scope=scope,
        onlink=bool(flags & _ONLINK),
        protocol=protocol,
        kind=_NAMES.get(kind, "other"),
    )
    if _MULTIPATH not in found:
        yield route
    for ifindex, attrs in _hops(found.get(_MULTIPATH, b"")):
        yield route._replace(ifindex=ifindex, gateway=_way(attrs))


def _way(found: dict[int, bytes]) -> IPv4Address | IPv6Address | None:
    gateway = found.get(_GATEWAY) or found.get(_VIA, b"")[2:]
    return ip_address(gateway) if gateway else None
