"""Plans the routes of a pod from its PodRoutes, and the changes for its namespace. Pure.

A place in the kernel (a destination in a table with a metric, a source among the rules) takes one route. Of several
resources that want different ones the oldest has its way, and the others are reported; what several want alike they
share. Whatever carries our protocol number is ours, and goes when nobody wants it any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import NamedTuple

from podwire.linux.values import Network, Route, Rule
from podwire.nriplugins.network.resources import (
    ROUTES,
    Broken,
    Head,
    Pod,
    Problem,
    Why,
    broken,
    concerning,
    missing,
)
from podwire.nriplugins.network.routes.resource import KIND, PodRoute

PROTOCOL = 113
"""The owner tag of routes and rules that resources ask for; those of CNI plugins have another."""
PRIORITIES = range(11000, 11129)
"""Priorities of rules: the longest source prefix comes first."""
_DEFAULT_METRIC = {4: 0, 6: 1024}

Place = tuple[Network, int, int]
"""Destination, table and metric: where the kernel keeps one route."""


class PlannedRoute(NamedTuple):
    route: Route
    """Without the number of its link, which is known by name only."""
    interface: str
    field: str
    owners: tuple[Head, ...]


class PlannedRule(NamedTuple):
    rule: Rule
    field: str
    owners: tuple[Head, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Routes and rules of a pod with their owners, and the problems."""

    routes: Mapping[Place, PlannedRoute] = field(default_factory=dict)
    rules: Mapping[Network, PlannedRule] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        """Whether the plan has routes or rules."""
        return bool(self.routes or self.rules)


NOTHING = Plan()


class KernelState(NamedTuple):
    """The state of a namespace: links by name, all routes and rules, also foreign ones."""

    links: Mapping[str, int]
    routes: tuple[Route, ...]
    rules: tuple[Rule, ...]


@dataclass(slots=True)
class Changes:
    """Changes of a namespace. Rules are removed first and added last, so that none leads to a partial table."""

    drop_rules: list[Rule] = field(default_factory=list)
    drop_routes: list[Route] = field(default_factory=list)
    replace: list[PlannedRoute] = field(default_factory=list)
    add: list[PlannedRoute] = field(default_factory=list)
    add_rules: list[PlannedRule] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of changes sent to the kernel."""
        dropped, set_ = len(self.drop_rules) + len(self.drop_routes), len(self.replace) + len(self.add)
        return dropped + set_ + len(self.add_rules)


def plan(pod: Pod, resources: Iterable[PodRoute | Broken]) -> Plan:
    """Plans one pod from all PodRoutes of its namespace."""
    chosen = concerning(pod, resources, ROUTES)
    routes: dict[Place, PlannedRoute] = {}
    rules: dict[Network, PlannedRule] = {}
    problems = missing(pod, chosen, ROUTES, KIND)
    for resource in chosen:
        if isinstance(resource, Broken):
            problems += broken(resource)
            continue
        problems += _routes(resource, routes)
        problems += _rules(resource, pod, rules)
    return Plan(routes, rules, tuple(problems))


def _routes(resource: PodRoute, taken: dict[Place, PlannedRoute]) -> list[Problem]:
    problems = []
    for index, way in enumerate(resource.ways):
        for at, destination in enumerate(way.destinations):
            route = Route(
                destination=destination,
                gateway=way.via,
                table=resource.table,
                metric=way.metric or _DEFAULT_METRIC[destination.version],
                mtu=way.mtu,
                advmss=way.advmss,
                onlink=way.on_link,
                protocol=PROTOCOL,
            )
            where = f"spec.routes[{index}].destinations[{at}]"
            wanted = PlannedRoute(route, resource.interface, where, (resource.head,))
            other = taken.setdefault(place(route), wanted)
            if other[:2] != wanted[:2]:
                reason = f"{destination} goes {_way(other)}, as {other.owners[0]} says, which is older"
                problems.append(Problem(resource.head, Why.CONFLICT, where, reason))
            elif other is not wanted:
                taken[place(route)] = other._replace(owners=(*other.owners, resource.head))
    return problems


def _way(wanted: PlannedRoute) -> str:
    via = f"via {wanted.route.gateway} " if wanted.route.gateway else ""
    return f"{via}by {wanted.interface}"


def _rules(resource: PodRoute, pod: Pod, taken: dict[Network, PlannedRule]) -> list[Problem]:
    problems = []
    own = [ip_network(ip) for ip in pod.ips] if resource.own else []
    for source in dict.fromkeys((*resource.sources, *own)):
        wanted = PlannedRule(_rule(source, resource.table), "spec.sources", (resource.head,))
        other = taken.setdefault(source, wanted)
        if other.rule != wanted.rule:
            reason = f"{source} looks into table {other.rule.table}, as {other.owners[0]} says, which is older"
            problems.append(Problem(resource.head, Why.CONFLICT, "spec.sources", reason))
        elif other is not wanted:
            taken[source] = other._replace(owners=(*other.owners, resource.head))
    return problems


def _rule(source: Network, table: int) -> Rule:
    priority = PRIORITIES.start + source.max_prefixlen - source.prefixlen
    # The kernel does not report the source of a rule that matches every source.
    matched_source = source if source.prefixlen else None
    return Rule(priority, table, source.version, source=matched_source, protocol=PROTOCOL)


def place(route: Route) -> Place:
    return route.destination, route.table, route.metric or _DEFAULT_METRIC[route.destination.version]


def diff(plan: Plan, state: KernelState) -> Changes:
    """The changes from the state to the plan; equal entries stay."""
    changes = Changes()
    ours = {place(route): route for route in state.routes if route.protocol == PROTOCOL}
    others = {place(route): route for route in state.routes if route.protocol != PROTOCOL}
    for at, route in plan.routes.items():
        index = state.links.get(route.interface)
        if index is None:
            reason = f"there is no interface {route.interface} in the pod"
            changes.problems += _failed(route.owners, "spec.interface", reason)
            continue
        settled = route._replace(route=route.route._replace(ifindex=index))
        have = ours.pop(at, None)
        if have is not None:
            changes.replace += [] if _same(have, settled.route) else [settled]
        elif at in others:
            changes.problems += _failed(route.owners, route.field, _foreign(others[at]))
        else:
            changes.add.append(settled)
    changes.drop_routes += ours.values()
    mine = {rule for rule in state.rules if rule.protocol == PROTOCOL and rule.priority in PRIORITIES}
    changes.add_rules += [rule for rule in plan.rules.values() if rule.rule not in mine]
    changes.drop_rules += mine - {rule.rule for rule in plan.rules.values()}
    return changes


def _same(current: Route, requested: Route) -> bool:
    return (
        current.gateway == requested.gateway
        and current.ifindex == requested.ifindex
        and current.mtu == requested.mtu
        and current.advmss == requested.advmss
        and (current.onlink == requested.onlink or requested.gateway is None)
    )


def _foreign(route: Route) -> str:
    return (
        f"a route to {route.destination} that somebody else made (protocol {route.protocol}) has its place "
        f"in table {route.table} with metric {route.metric}; another metric or a table of its own avoids it"
    )


def _failed(owners: Iterable[Head], where: str, reason: str) -> list[Problem]:
    return [Problem(owner, Why.FAILED, where, reason) for owner in owners]
