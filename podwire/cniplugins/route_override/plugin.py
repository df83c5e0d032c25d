"""route-override: changes the routes that the plugins before it gave to a pod.

1. `flushroutes` removes all routes of the pod's interfaces but those of their own networks; without it, the routes of
   `delroutes` are removed.
2. `flushgateway` removes default routes, and the gateways of the result.
3. The routes of `addroutes` are added.

It has no state: the routes end with the link. A repeated ADD changes nothing more.
"""

from contextlib import suppress
from typing import NamedTuple

from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.pod_link import kernel_routes
from podwire.cniplugins.skeleton import Call, Plugin, pod_namespace, require_previous
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import MAIN
from podwire.linux.values import Route as KernelRoute
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result, Route, decode_route
from podwire.protocols.cni.values import Network, looked_up, taken, taken_list

_AFTER = "; route-override comes after a plugin that makes a link"


class Settings(NamedTuple):
    flush_routes: bool = False
    flush_gateway: bool = False
    deleted: tuple[Network, ...] = ()
    added: tuple[Route, ...] = ()
    skip_check: bool = False


def parse_settings(call: Call) -> Settings:
    """`args.cni` precedes the configuration."""
    raw, given = call.config.raw, call.config.args

    def flag(key: str) -> bool:
        in_args = looked_up(given, key) is not None
        return taken(given, key, bool, False, "args.cni.") if in_args else taken(raw, key, bool, False)

    def routes(key: str) -> tuple[Route, ...]:
        source, where = (given, "args.cni.") if looked_up(given, key) is not None else (raw, "")
        listed = taken_list(source, key, dict, where)
        return tuple(decode_route(value, f"{where}{key}[{index}].") for index, value in enumerate(listed))

    return Settings(
        flush_routes=flag("flushroutes"),
        flush_gateway=flag("flushgateway"),
        deleted=tuple(route.dst for route in routes("delroutes")),
        added=routes("addroutes"),
        skip_check=flag("skipcheck"),
    )


def changed_result(previous: Result, settings: Settings) -> Result:
    """Returns the result with the routes and gateways that are left, and the new routes."""
    kept = [route for route in previous.routes if not _is_removed(route.dst, settings)]
    ips = previous.ips
    if settings.flush_gateway:
        ips = tuple(ip._replace(gateway=None) for ip in ips)
    return previous._replace(ips=ips, routes=(*kept, *settings.added))


def _is_removed(destination: Network, settings: Settings) -> bool:
    if settings.flush_routes or destination in settings.deleted:
        return True
    return settings.flush_gateway and destination.prefixlen == 0


class RouteOverride(Plugin):
    name = "route-override"

    def add(self, call: Call) -> Result:
        previous, settings = require_previous(call, _AFTER), parse_settings(call)
        pod_namespace(call)
        with KernelNetwork(call.invocation.netns) as pod:
            try:
                index = pod.links.get(call.invocation.ifname).ifindex
            except linux.NoSuchLink as error:
                raise CniError(Code.BAD_CONFIG, f"CNI_IFNAME: link {call.invocation.ifname} does not exist") from error
            for route in _routes(pod, index):
                if _is_removed(route.destination, settings) and not _is_connected(route):
                    with suppress(linux.NoSuchRoute):
                        pod.routes.delete(route)
            for new in kernel_routes(index, previous.ips, settings.added):
                with suppress(linux.RouteExists):
                    pod.routes.add(new)
        return changed_result(previous, settings)

    def check(self, call: Call) -> None:
        """Expects that what was removed is still absent, and that what was added exists."""
        previous, settings = require_previous(call, _AFTER), parse_settings(call)
        if settings.skip_check:
            return
        pod_namespace(call)
        with KernelNetwork(call.invocation.netns) as pod:
            index = pod.links.get(call.invocation.ifname).ifindex
            present = _routes(pod, index)
        added = kernel_routes(index, previous.ips, settings.added)
        for route in present:
            own = any(route.destination == new.destination for new in added)
            removed = _is_removed(route.destination, settings) and not _is_connected(route)
            expect(own or not removed, f"the route to {route.destination} exists again")
        for new in added:
            same = [route for route in present if route.destination == new.destination]
            via = f" via {new.gateway}" if new.gateway else ""
            exists = any(new.gateway in (None, route.gateway) for route in same)
            expect(exists, f"the route to {new.destination}{via} does not exist")

    def delete(self, call: Call) -> None:
        """The routes end with the link."""

    def gc(self, call: Call, valid: Valid) -> None:
        """There is nothing to collect."""

    def status(self, call: Call) -> None:
        parse_settings(call)


def _routes(pod: KernelNetwork, ifindex: int) -> list[KernelRoute]:
    """Lists the routes of an interface in the main table."""
    return [route for family in (4, 6) for route in pod.routes.list(family, MAIN) if route.ifindex == ifindex]


def _is_connected(route: KernelRoute) -> bool:
    """Whether a route leads to a network of the interface itself; these stay, as do link-local ones."""
    special = route.destination.is_link_local or route.destination.is_multicast
    return special or (route.gateway is None and route.destination.prefixlen > 0 and route.protocol == _KERNEL)


_KERNEL = 2
"""The protocol of routes that the kernel adds by itself."""
PLUGIN = RouteOverride()
