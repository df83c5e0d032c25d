"""Addresses, routes, rules and neighbours of a device in its pod: one batch for each."""

from contextlib import suppress

from podwire.dradriver.attach import steps
from podwire.dradriver.parameters.settings import Route
from podwire.linux import errors, values
from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.neighbours import KernelNeighbours
from podwire.linux.net.netlink import Batch, Sender
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.rules import KernelRules
from podwire.linux.net.snapshot_addresses import SavedAddresses
from podwire.linux.net.snapshot_neighbours import SavedNeighbours
from podwire.linux.net.snapshot_routes import SavedRoutes
from podwire.linux.net.snapshot_rules import SavedRules


def add_addresses(pod: NamespaceHandle, index: int, step: steps.AddAddresses) -> None:
    batch = Batch(pod.netlink)
    for given in step.given:
        KernelAddresses(batch).add(index, given)
    for carried in step.carried:
        SavedAddresses(batch).add(index, carried)
    batch.send()


def add_routes(pod: NamespaceHandle, index: int, step: steps.AddRoutes) -> None:
    """A route that is given must be had; of those of the host, the pod's own to the same destination stand above."""
    batch = Batch(pod.netlink)
    try:
        _add_routes(batch, index, step)
        batch.send()
    except errors.RouteExists:
        for given in step.given:
            _add_or_has(pod, index, given)
        for carried in step.carried:
            try:
                SavedRoutes(pod.netlink).add(index, carried, alone=True)
            except errors.RouteExists:
                continue


def _add_routes(sender: Sender, index: int, step: steps.AddRoutes) -> None:
    for given in step.given:
        KernelRoutes(sender).add(_route(given, index))
    for carried in step.carried:
        SavedRoutes(sender).add(index, carried, alone=True)


def _add_or_has(pod: NamespaceHandle, index: int, route: Route) -> None:
    """The link may have it by an address already; a route of another link is in the way. RouteExists."""
    routes = KernelRoutes(pod.netlink)
    try:
        routes.add(_route(route, index))
    except errors.RouteExists:
        there = routes.list(route.destination.version, route.table)
        if not any(present.destination == route.destination and present.ifindex == index for present in there):
            raise


def take_away(pod: NamespaceHandle, index: int, step: steps.TakeAway) -> None:
    """Removes routes and addresses; the pod or the kernel may have removed them already."""
    for route in step.routes:
        with suppress(errors.NoSuchRoute):
            KernelRoutes(pod.netlink).delete(_route(route, index))
    for address in step.addresses:
        with suppress(errors.NoSuchAddress):
            KernelAddresses(pod.netlink).delete(index, address)


def _route(route: Route, index: int) -> values.Route:
    return values.Route(
        destination=route.destination,
        gateway=route.gateway,
        ifindex=index,
        source=route.source,
        table=route.table,
        metric=route.metric,
        scope=route.scope if route.destination.version == 4 and route.gateway is None and route.scope else None,
    )


def add_rules(pod: NamespaceHandle, step: steps.AddRules) -> None:
    """Two devices of a pod may bring the same."""
    for given in step.given:
        try:
            KernelRules(pod.netlink).add(given)
        except errors.RuleExists:
            continue
    for carried in step.carried:
        try:
            SavedRules(pod.netlink).add(carried)
        except errors.RuleExists:
            continue


def delete_rules(pod: NamespaceHandle, step: steps.DeleteRules) -> None:
    for given in step.given:
        try:
            KernelRules(pod.netlink).delete(given)
        except errors.NoSuchRule:
            continue
    for carried in step.carried:
        try:
            SavedRules(pod.netlink).delete(carried)
        except errors.NoSuchRule:
            continue


def add_neighbours(pod: NamespaceHandle, index: int, step: steps.AddNeighbours) -> None:
    batch = Batch(pod.netlink)
    for given in step.given:
        KernelNeighbours(batch).replace(values.Neighbour(index, given.address, given.mac))
    for carried in step.carried:
        SavedNeighbours(batch).add(index, carried)
    batch.send()
