"""Configuration of the sbr plugin, and the routes and rules that follow from it. Pure."""

from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple

from podwire.linux.values import MAIN, Route, Rule
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Result
from podwire.protocols.cni.values import Address, address, looked_up, taken, taken_list

FIRST_TABLE = 100
_RESERVED_TABLES = range(253, 256)
"""default, main and local."""
_LARGEST_TABLE = (1 << 32) - 1
_METRIC6 = 1024
"""The kernel's metric of an IPv6 route without one."""
_LAST_PRIORITY = 32766
"""Of the rule for the main table."""


class Settings(NamedTuple):
    table: int | None = None
    """An existing table: then only rules are added."""
    gateways: tuple[Address, ...] = ()
    """At most one of each family, in place of those of `prevResult`."""
    source_hints: bool = False
    """Whether the routes to the pod's own networks stay in the main table, with the address as their source."""


def parse_settings(config: PluginConfig) -> Settings:
    raw = config.raw
    table = taken(raw, "table", int, 0) if looked_up(raw, "table") is not None else None
    if table is not None and not 0 < table <= _LARGEST_TABLE:
        raise CniError(Code.BAD_CONFIG, f"table: {table} is not between 1 and {_LARGEST_TABLE}")
    named = taken_list(raw, "gateways", str)
    gateways = tuple(address(text, f"gateways[{index}]") for index, text in enumerate(named))
    for family in (4, 6):
        if sum(gateway.version == family for gateway in gateways) > 1:
            raise CniError(Code.BAD_CONFIG, f"gateways: more than one of IPv{family}: {', '.join(named)}")
    return Settings(table, gateways, taken(raw, "addSourceHints", bool, False))


def addresses_of(previous: Result, ifname: str) -> list[IP]:
    """Returns the addresses of an interface; one without an index is taken for one of them."""
    own = {index for index, link in enumerate(previous.interfaces) if link.name == ifname}
    return [ip for ip in previous.ips if ip.interface is None or ip.interface in own]


class Present(NamedTuple):
    """Rules and routes that the pod has."""

    ifindex: int
    rules: Sequence[Rule] = ()
    routes: Sequence[Route] = ()
    """Of all tables."""


class Plan(NamedTuple):
    rules: tuple[Rule, ...] = ()
    added: tuple[Route, ...] = ()
    """Routes of the tables that the rules lead to."""
    hints: tuple[Route, ...] = ()
    """Routes that replace those of the main table."""
    removed: tuple[Route, ...] = ()
    """Routes of the main table that are removed."""


def make_plan(settings: Settings, ips: Sequence[IP], present: Present) -> Plan:
    if settings.table is not None:
        return Plan(_rules(ips, [settings.table] * len(ips), present.rules))
    routes = [route for route in present.routes if _is_moved(route, present.ifindex)]
    tables = _free_tables(present, len(ips))
    added: dict[tuple[object, ...], Route] = {}
    for ip, table in zip(ips, tables, strict=True):
        own = [route for route in routes if _is_of(route, ip)]
        gateway = _gateway(settings, ip)
        if gateway is not None:
            anywhere = ip_network("0.0.0.0/0" if gateway.version == 4 else "::/0")
            own.insert(0, Route(anywhere, gateway, present.ifindex))
        # A gateway can be reached only after the route to its network is there.
        for route in sorted(own, key=lambda route: route.gateway is not None):
            default_metric = _METRIC6 if route.destination.version == 6 else 0
            added.setdefault((route.destination, table, route.metric or default_metric), route._replace(table=table))
    plan = Plan(_rules(ips, tables, present.rules), tuple(added.values()))
    if not settings.source_hints:
        return plan._replace(removed=tuple(sorted(routes, key=lambda route: route.gateway is not None)))
    hints = [Route(ip_network(ip.address.network), ifindex=present.ifindex, source=ip.address.ip) for ip in ips]
    return plan._replace(hints=tuple(hints), removed=tuple(route for route in routes if route.gateway is not None))


def _is_moved(route: Route, ifindex: int) -> bool:
    """Whether a route is one that plugins make: not of multicast or link-local addresses."""
    destination = route.destination
    special = destination.is_multicast or destination.is_link_local or route.kind != "unicast"
    return route.table == MAIN and route.ifindex == ifindex and not special


def _rules(ips: Sequence[IP], tables: Sequence[int], present: Sequence[Rule]) -> tuple[Rule, ...]:
    """Returns a rule for each address, before all that exist but that for local addresses, as the kernel would."""
    rules: list[Rule] = []
    for ip, table in zip(ips, tables, strict=True):
        family = ip.address.version
        priorities = [rule.priority for rule in (*present, *rules) if rule.family == family and rule.priority]
        priority = max(min(priorities, default=_LAST_PRIORITY) - 1, 1)
        rules.append(Rule(priority, table, family, source=ip_network(ip.address.ip)))
    return tuple(rules)


def _is_of(route: Route, ip: IP) -> bool:
    """Whether a route is of an address's network, or of no particular one."""
    if route.destination.version != ip.address.version:
        return False
    if route.source is None and route.gateway is None:
        return True
    return any(end is not None and end in ip.address.network for end in (route.source, route.gateway))


def _gateway(settings: Settings, ip: IP) -> Address | None:
    return next((gateway for gateway in settings.gateways if gateway.version == ip.address.version), ip.gateway)


def _free_tables(present: Present, count: int) -> list[int]:
    """Returns the first tables that have neither rules nor routes."""
    used = {rule.table for rule in present.rules} | {route.table for route in present.routes}
    tables: list[int] = []
    table = FIRST_TABLE
    while len(tables) < count:
        if table not in used and table not in _RESERVED_TABLES:
            tables.append(table)
        table += 1
    return tables
