"""The way of a packet, hop by hop, with the rule that decides at each: links and routes of the kernel, the rules of
Services, and NetworkPolicies. Nothing is sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.cluster.up.layout import FIRST, Layout
from podwire.inspect.pod_namespaces import Namespace, pod_namespaces, read_namespace
from podwire.linux.net.routes import describe
from podwire.linux.values import IP, Link, Route
from podwire.nriplugins.network.policy import Explained, Model, explain
from podwire.nriplugins.network.policy.policies import EGRESS, INGRESS
from podwire.nriplugins.network.policy.values import Pod
from podwire.trace.plain_text import plain
from podwire.web.node_map import netns_of, peers


@dataclass(slots=True)
class Way:
    """Hops so far; the first that does not pass ends the way."""

    hops: list[Mapping[str, Any]] = field(default_factory=list)
    passes: bool = True

    def add(self, where: str, what: str, rule: str, *, passes: bool = True) -> None:
        if self.passes:
            self.hops.append({"where": plain(where), "what": plain(what), "rule": plain(rule), "passes": passes})
            self.passes = passes


def pod_path(layout: Layout, model: Model, source: Pod, to: Pod | IP, port: int, protocol: str) -> Mapping[str, Any]:
    """Follows a packet from a pod to another one, or to an address. Raises Unknown, RuntimeDown, LinuxError."""
    explained = explain(model, source, to, port, protocol)
    way = Way()
    target = to if isinstance(to, Pod) else model.owner(to)
    leave(way, layout, source, explained.source, explained.destination)
    apply_policies(way, explained, EGRESS, source.node)
    cross(way, layout, source.node, explained.destination, target)
    apply_policies(way, explained, INGRESS, target.node if target is not None else "")
    if target is not None:
        arrive(way, layout, target, explained.destination)
    return {
        "from": plain(str(source)),
        "to": plain(str(to)),
        "connection": plain(f"{explained.source} → {explained.destination} {protocol} {port or ''}".rstrip()),
        "hops": way.hops,
        "reachable": way.passes,
    }


def leave(way: Way, layout: Layout, pod: Pod, from_: IP, to: IP) -> None:
    """The pod's own route, and the wire to its node."""
    node = pod.node or FIRST
    if pod.host_network:
        way.add(f"node {node}", f"{pod} uses the network of its node", f"source {from_}")
        return
    space = _space_of(layout, node, from_)
    if space is None:
        way.add(f"pod {pod}", f"no network namespace has the address {from_}", "", passes=False)
        return
    route = best_route(space.routes, to)
    names = {link.ifindex: link.name for link in space.links}
    if route is None:
        way.add(f"pod {pod}", f"no route to {to}", "", passes=False)
        return
    way.add(f"pod {pod}", f"out of {names.get(route.ifindex, '?')}, source {from_}", f"route {describe(route)}")
    _wire(way, layout, node, space, route.ifindex)


def arrive(way: Way, layout: Layout, pod: Pod, to: IP) -> None:
    node = pod.node or FIRST
    if pod.host_network:
        way.add(f"node {node}", f"{pod} uses the network of its node", f"address {to}")
        return
    space = _space_of(layout, node, to)
    if space is None:
        way.add(f"node {node}", f"no network namespace has the address {to}", "", passes=False)
        return
    [index, *_] = [address.ifindex for address in space.addresses if address.interface.ip == to]
    _wire(way, layout, node, space, index)
    names = {link.ifindex: link.name for link in space.links}
    way.add(f"pod {pod}", f"in by {names.get(index, '?')}", f"address {to}")


def cross(way: Way, layout: Layout, node: str, to: IP, target: Pod | None) -> None:
    """From the node of the sender to that of the receiver, by the routes of both."""
    nodes = list(dict.fromkeys((node or FIRST, (target.node or FIRST) if target is not None else node or FIRST)))
    for name in nodes:
        space = read_namespace(netns_of(layout, name))
        if any(address.interface.ip == to for address in space.addresses):
            way.add(f"node {name}", f"{to} is an address of the node", "local")
            return
        route = best_route(space.routes, to)
        if route is None:
            way.add(f"node {name}", f"no route to {to}", "", passes=False)
            return
        names = {link.ifindex: link.name for link in space.links}
        way.add(f"node {name}", f"forwarded to {names.get(route.ifindex, '?')}", f"route {describe(route)}")


def apply_policies(way: Way, explained: Explained, direction: str, node: str) -> None:
    for judgement in explained.judgements:
        if judgement.direction == direction:
            where = f"NetworkPolicy, {direction.lower()}" + (f" on {node}" if node else "")
            rule = (
                f"{judgement.policy} {judgement.rule}".strip()
                or ", ".join(judgement.policies)
                or "no policy selects it"
            )
            way.add(where, judgement.reason, rule, passes=judgement.allowed)


def best_route(routes: Iterable[Route], to: IP) -> Route | None:
    """Returns the route with the longest prefix, of these the one with the lowest metric."""
    fitting = [route for route in routes if route.destination.version == to.version and to in route.destination]
    return min(fitting, key=lambda route: (-route.destination.prefixlen, route.metric), default=None)


def _space_of(layout: Layout, node: str, ip: IP) -> Namespace | None:
    spaces: Iterator[Namespace] = pod_namespaces(layout, node)
    return next((space for space in spaces if any(address.interface.ip == ip for address in space.addresses)), None)


def _wire(way: Way, layout: Layout, node: str, space: Namespace, index: int) -> None:
    """The veth pair of a pod's link, and the bridge that its other end belongs to."""
    own = read_namespace(netns_of(layout, node))
    inner = next((link for link in space.links if link.ifindex == index), None)
    outer = _other_end(own.links, inner) if inner is not None else None
    if inner is None or outer is None:
        return
    master = next((link.name for link in own.links if link.ifindex == outer.master), "")
    what = f"wire {outer.name} ↔ {inner.name}"
    way.add(f"node {node}", what, f"port of bridge {master}" if master else f"link {outer.name}")


def _other_end(links: Sequence[Link], inner: Link) -> Link | None:
    return next((link for link in links if peers(link, inner)), None)


def endpoint_path(layout: Layout, model: Model, source: Pod, to: IP, port: int, protocol: str) -> Mapping[str, Any]:
    """Follows a packet from the node of its sender, where a Service's address was replaced by that of an endpoint."""
    explained = explain(model, source, to, port, protocol)
    way = Way()
    target = model.owner(to)
    apply_policies(way, explained, EGRESS, source.node)
    cross(way, layout, source.node, to, target)
    apply_policies(way, explained, INGRESS, target.node if target is not None else "")
    if target is not None:
        arrive(way, layout, target, to)
    name = str(target) if target is not None else str(to)
    return {"endpoint": plain(f"{name} {to}:{port}"), "hops": way.hops, "reachable": way.passes}
