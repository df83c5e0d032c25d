"""The routes of a simulated namespace: the kernel's own that come with addresses, and those that are told."""

import errno
from ipaddress import IPv4Interface, IPv6Interface

from podwire.linux import errors
from podwire.linux.memory.world import KERNEL, Device, Held, Space
from podwire.linux.routes import told
from podwire.linux.values import IP, MAIN, Route

_LINK_SCOPE = 253
_DEFAULT_6, _CONNECTED_6 = 1024, 256
_LOOPBACK = (Held(IPv4Interface("127.0.0.1/8"), 0, False), Held(IPv6Interface("::1/128"), 1, False))


class MemoryRoutes:
    def __init__(self, space: Space) -> None:
        self._space = space

    def add(self, route: Route) -> None:
        operation = f"add route {told(route)}"
        whole = self._checked(route, operation)
        if any(_key(each) == _key(whole) for each in self._space.routes):
            raise errors.RouteExists(errno.EEXIST, operation)
        self._space.routes.append(whole)

    def replace(self, route: Route) -> None:
        whole = self._checked(route, f"replace route {told(route)}")
        kept = [each for each in self._space.routes if _key(each) != _key(whole)]
        self._space.routes = [*kept, whole]

    def delete(self, route: Route) -> None:
        for each in self._space.routes:
            if _meant(route, each):
                self._space.routes.remove(each)
                return
        raise errors.NoSuchRoute(errno.ESRCH, f"delete route {told(route)}")

    def list(self, family: int, table: int | None = MAIN) -> list[Route]:
        return [
            each for each in self._space.routes if each.destination.version == family and table in (None, each.table)
        ]

    def _checked(self, route: Route, operation: str) -> Route:
        """As the kernel would show it."""
        six = route.destination.version == 6
        metric = route.metric or (_DEFAULT_6 if six else 0)
        scope = 0 if six else route.scope
        if route.kind != "unicast":
            # IPv6 shows such routes on the loopback link.
            return route._replace(metric=metric, scope=scope or 0, ifindex=1 if six else 0)
        index = route.ifindex or self._towards(route, operation)
        device = self._space.find(index, operation)
        if not device.up:
            raise errors.Unreachable(errno.ENETDOWN, operation)
        if route.gateway is not None and not route.onlink and not self._reaches(device, route.gateway):
            raise errors.Unreachable(errno.ENETUNREACH, operation, "no way to the gateway")
        if route.source is not None and not self._local(route.source):
            raise errors.Refused(errno.EINVAL, operation, "no such source")
        if scope is None:
            scope = _LINK_SCOPE if route.gateway is None else 0
        return route._replace(metric=metric, scope=scope, ifindex=index)

    def _towards(self, route: Route, operation: str) -> int:
        if route.gateway is None:
            raise errors.NoSuchLink(errno.ENODEV, operation)
        for each in self._space.devices.values():
            if each.up and self._reaches(each, route.gateway):
                return each.index
        raise errors.Unreachable(errno.ENETUNREACH, operation, "no way to the gateway")

    def _reaches(self, device: Device, gateway: IP) -> bool:
        if gateway.version == 6 and gateway.is_link_local:
            return True
        return any(
            each.ifindex == device.index and each.gateway is None and gateway in each.destination
            for each in self._space.routes
        )

    def _local(self, source: IP) -> bool:
        return any(held.interface.ip == source for each in self._space.devices.values() for held in each.addresses)


def _key(route: Route) -> tuple[object, ...]:
    return route.destination, route.table, route.metric


def _meant(wanted: Route, each: Route) -> bool:
    """What the wanted one does not say is not compared."""
    pairs = [(wanted.gateway, each.gateway), (wanted.ifindex, each.ifindex), (wanted.metric, each.metric)]
    same = (wanted.destination, wanted.table, wanted.kind) == (each.destination, each.table, each.kind)
    if wanted.protocol:
        pairs.append((wanted.protocol, each.protocol))
    return same and all(not asked or asked == found for asked, found in pairs)


def _connected(device: Device, held: Held) -> Route | None:
    interface = held.interface
    local = interface.version == 4 and (interface.network.prefixlen == 32 or device.kind == "")
    if not held.prefix_route or local:
        return None  # what is local stands in another table
    if interface.version == 6:
        return Route(interface.network, None, device.index, metric=_CONNECTED_6, scope=0, protocol=KERNEL)
    return Route(interface.network, None, device.index, interface.ip, scope=_LINK_SCOPE, protocol=KERNEL)


def connect(device: Device, held: Held) -> None:
    """An address of a link that is up brings the route to its network."""
    route = _connected(device, held)
    if route is not None and not any(_key(each) == _key(route) for each in device.space.routes):
        device.space.routes.append(route)


def disconnect(device: Device, held: Held) -> None:
    """An address that goes takes its network's route, and those that name it as their source."""
    interface = held.interface
    shared = any(each.interface.network == interface.network for each in device.addresses)
    route = None if shared else _connected(device, held)
    device.space.routes = [each for each in device.space.routes if each != route and each.source != interface.ip]


def came_up(device: Device) -> None:
    if device.kind == "":
        there = {each.interface for each in device.addresses}
        device.addresses += [each for each in _LOOPBACK if each.interface not in there]
    for held in device.addresses:
        connect(device, held)


def went_down(device: Device) -> None:
    """All routes on the link go, and its IPv6 addresses; IPv4's stay."""
    device.space.routes = [each for each in device.space.routes if each.ifindex != device.index]
    device.addresses = [each for each in device.addresses if each.interface.version == 4]
