"""Plans the steps that attach a device to its pod, and those that restore it. Pure.

Into the pod, in this order: a link is configured while it is down, it goes up with its addresses and sysctls in place,
and what needs it up (routes, the rules that use them, neighbours, queues) comes last.
"""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Network

from podwire.dradriver.attach import steps
from podwire.dradriver.attach.records import Record
from podwire.dradriver.attach.steps import Step
from podwire.dradriver.parameters.settings import IP, WHOLE, Interface, Network, Route, Settings
from podwire.linux import values
from podwire.linux.net.link_attributes import Attributes
from podwire.linux.net.snapshot_addresses import SavedAddress
from podwire.linux.net.snapshot_routes import SavedRoute
from podwire.linux.net.snapshot_rules import SavedRule

_LABEL = 3
_GLOBAL = 0
_NO_DAD = 0x02
_IPV6 = 10
_BURST = 0.01
"""Seconds of the full rate that may leave at once after a pause; kernel clocks are not much finer."""
_LATENCY = 0.025
"""Seconds that a packet may be queued beyond the burst before others are dropped."""
_PACKETS = 4
"""The burst holds so many packets of the largest size, so that each can pass."""
_OFFLOADED = 65536
"""Bytes of the largest packet of a link with segmentation offload."""
_MAX_BYTES = 0xFFFFFFFF


def plan(record: Record, *, waits_on_host: bool = False) -> tuple[Step, ...]:
    """Into the pod. `waits_on_host`: an interface made for the claim is there already, on the host."""
    settings = record.allocation.settings
    carried, given = addresses(record)
    ways = carried_routes(record)
    found = (
        *_arrival(record, waits_on_host),
        *((steps.SetMtu(record.mtu),) if record.mtu and settings.mtu is None else ()),
        steps.SetSysctls(sysctls(settings)),
        steps.AddAddresses(given, carried),
        steps.BringUp(),
        steps.SetFeatures(dict(settings.features), dict(settings.private_flags)),
        *((steps.DetachPrograms(),) if settings.detach_ebpf else ()),
        *((steps.JoinVrf(settings.vrf),) if settings.vrf else ()),
        *_routes(record, ways),
        rules(record, ways),
        neighbours(record),
        *_shaping(record),
    )
    return tuple(step for step in found if not _is_empty(step))


def _is_empty(step: Step) -> bool:
    match step:
        case steps.SetSysctls(values=some):
            return not some
        case steps.SetFeatures():
            return not step.features and not step.flags
        case steps.AddAddresses() | steps.AddRoutes() | steps.AddRules() | steps.AddNeighbours():
            return not step.given and not step.carried
        case steps.TakeAway():
            return not step.routes and not step.addresses
    return False


def _arrival(record: Record, waits_on_host: bool) -> tuple[Step, ...]:
    if record.allocation.settings.made.kind == WHOLE or waits_on_host:
        return steps.TakeDown(record.tag), steps.Move(attributes(record))
    return (make_step(record),)


def make_step(record: Record) -> steps.Make:
    made = record.allocation.settings.made
    host_end = record.host_end if made.kind == "veth" else ""
    parent = made.bridge or record.allocation.device.link
    return steps.Make(made, attributes(record), parent, host_end, record.tag, record.waiting_name)


def attributes(record: Record) -> Attributes:
    """Returns the attributes in the pod; a link that moves keeps those that the claim does not set."""
    settings = record.allocation.settings
    made = settings.made.kind != WHOLE
    return Attributes(
        name=settings.name,
        mac=record.mac if made and settings.made.kind != "ipvlan" else settings.mac,
        mtu=settings.mtu,
        gso_max_size=settings.gso_max_size,
        gro_max_size=settings.gro_max_size,
        gso_ipv4_max_size=settings.gso_ipv4_max_size,
        gro_ipv4_max_size=settings.gro_ipv4_max_size,
    )


def sysctls(settings: Settings) -> dict[str, str]:
    """By family and name, as the kernel has them."""
    wanted: dict[str, int | None] = {
        "ipv4/forwarding": settings.forwarding,
        "ipv6/forwarding": settings.forwarding,
        "ipv4/arp_ignore": settings.arp_ignore,
        "ipv4/arp_announce": settings.arp_announce,
    }
    return {name: str(int(value)) for name, value in wanted.items() if value is not None}


def addresses(record: Record) -> tuple[tuple[SavedAddress, ...], tuple[Interface, ...]]:
    """Those of the host that stay with the link, and those that are given; one or the other."""
    settings, snapshot = record.allocation.settings, record.snapshot
    given = record.addresses if record.addresses is not None else settings.addresses
    if given is not None or settings.dhcp or settings.pool or snapshot is None:
        return (), given or ()
    # Those for the link alone come by themselves wherever the link is.
    return tuple(_carried(address) for address in snapshot.addresses if address.scope == _GLOBAL), ()


def _carried(address: SavedAddress) -> SavedAddress:
    """Without its label, which begins with the name that the link had, and without asking who else has it."""
    kept = tuple(attribute for attribute in address.attributes if attribute[0] != _LABEL)
    flags = address.flags | (_NO_DAD if address.family == _IPV6 else 0)
    return address._replace(attributes=kept, flags=flags)


def networks(record: Record) -> tuple[Network, ...]:
    """Those that the pod reaches without a gateway, by the link's addresses."""
    carried, given = addresses(record)
    return (*(address.network for address in given), *(address.interface.network for address in carried))


def _routes(record: Record, carried: Sequence[SavedRoute]) -> Iterable[Step]:
    """Those to what is on the link first: others' gateways may be there."""
    settings = record.allocation.settings
    given = (*(_in_vrf(route, settings) for route in settings.routes), *leased_routes(record))
    near = steps.AddRoutes(
        tuple(route for route in given if route.gateway is None), tuple(route for route in carried if route.to_link)
    )
    far = steps.AddRoutes(
        tuple(route for route in given if route.gateway is not None),
        tuple(route for route in carried if not route.to_link),
    )
    return near, far


def leased_routes(record: Record) -> tuple[Route, ...]:
    return tuple(_in_vrf(route, record.allocation.settings) for route in record.routes)


def _in_vrf(route: Route, settings: Settings) -> Route:
    if settings.vrf is None or route.table != values.MAIN:
        return route
    return Route(
        destination=route.destination,
        gateway=route.gateway,
        source=route.source,
        scope=route.scope,
        table=settings.vrf.table,
        metric=route.metric,
    )


def carried_routes(record: Record) -> tuple[SavedRoute, ...]:
    """Routes of the host that can be had in the pod too, and that nobody gave another way."""
    settings, snapshot = record.allocation.settings, record.snapshot
    if snapshot is None:
        return ()
    given = {(route.destination, route.table) for route in (*settings.routes, *record.routes)}
    free = [route for route in snapshot.routes if (route.destination, route.table) not in given and not route.shares]
    near = [*networks(record), *(route.destination for route in free if route.to_link)]
    near += [route.destination for route in settings.routes if route.gateway is None]
    carried_addresses, given_addresses = addresses(record)
    own = {address.ip for address in given_addresses} | {address.interface.ip for address in carried_addresses}
    table = settings.vrf.table if settings.vrf else 0
    return tuple(
        route._replace(table=table) if table and route.table == values.MAIN else route
        for route in free
        if _reached(route.gateway, near) and (route.source is None or route.source in own)
    )


def _reached(gateway: IP | None, near: Sequence[Network]) -> bool:
    if gateway is None or gateway.is_link_local:
        return True
    return any(gateway.version == network.version and gateway in network for network in near)


def rules(record: Record, ways: Sequence[SavedRoute]) -> steps.AddRules:
    settings = record.allocation.settings
    given = tuple(
        values.Rule(
            priority=rule.priority,
            table=rule.table,
            family=(rule.source or rule.destination or IPv4Network("0.0.0.0/0")).version,
            source=rule.source,
            destination=rule.destination,
        )
        for rule in settings.rules
    )
    return steps.AddRules(given, () if settings.vrf else carried_rules(record, ways))


def carried_rules(record: Record, ways: Sequence[SavedRoute]) -> tuple[SavedRule, ...]:
    """Rules of the host that lead to what the pod has, under the name that the link has there."""
    if record.snapshot is None:
        return ()
    tables = {route.table for route in ways}
    name, becomes = record.snapshot.name, record.allocation.settings.name
    return tuple(rule.renamed(name, becomes) for rule in record.snapshot.rules if _fits(rule, name, tables))


def _fits(rule: SavedRule, name: str, tables: set[int]) -> bool:
    """Whether it leads into a table of the pod, and names no other link than ours."""
    others = {rule.input, rule.output} - {"", name}
    return rule.table in tables and not others


def neighbours(record: Record) -> steps.AddNeighbours:
    given = record.allocation.settings.neighbours
    mine = {neighbour.address for neighbour in given}
    carried = record.snapshot.neighbours if record.snapshot else ()
    return steps.AddNeighbours(given, tuple(neighbour for neighbour in carried if neighbour.address not in mine))


def _shaping(record: Record) -> tuple[Step, ...]:
    settings = record.allocation.settings
    if settings.bits_per_second is None:
        return ()
    host_end = record.host_end if settings.made.kind == "veth" else ""
    mtu = settings.mtu or record.mtu or record.allocation.device.mtu
    return (steps.Shape(bucket(settings.bits_per_second, mtu), host_end, record.queue_name, record.tag),)


def bucket(bits_per_second: int, mtu: int) -> values.Bucket:
    """The token bucket of a bandwidth."""
    rate = max(bits_per_second // 8, 1)
    burst = max(round(rate * _BURST), _PACKETS * mtu, _OFFLOADED)
    return values.Bucket(rate, min(burst, _MAX_BYTES), min(burst + round(rate * _LATENCY), _MAX_BYTES))


def change(before: Record, after: Record, there: Collection[Interface]) -> tuple[Step, ...]:
    """From one lease to the next, for an interface that is in its pod and has these addresses.

    With its last address the kernel takes all routes and neighbours of a link, also those that the claim names: with
    the next one they come back.
    """
    settings, had, has = before.allocation.settings, before.addresses or (), after.addresses or ()
    old, new = leased_routes(before), leased_routes(after)
    away = steps.TakeAway(
        tuple(route for route in old if route not in new), tuple(address for address in had if address not in has)
    )
    found: list[Step] = [away, steps.AddAddresses(tuple(address for address in has if address not in there))]
    if settings.mtu is None and before.mtu != after.mtu:
        found.append(steps.SetMtu(after.mtu or before.allocation.device.mtu))
    if set(had) != set(has) or not set(has) <= set(there):
        found += [*_routes(after, carried_routes(after)), neighbours(after)] if has else []
    else:
        added = tuple(route for route in new if route not in old)
        found += [steps.AddRoutes(tuple(route for route in added if route.gateway is None))]
        found += [steps.AddRoutes(tuple(route for route in added if route.gateway is not None))]
    return tuple(step for step in found if not _is_empty(step))


def inverse(record: Record, done: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps that undo these, or any part of them that was done: each accepts that it was not."""
    return tuple(step for earlier in reversed(done) for step in _inverse(record, earlier))


def _inverse(record: Record, step: Step) -> tuple[Step, ...]:
    match step:
        case steps.Shape(host_end=""):
            return (steps.DeleteQueue(step.queue),)
        case steps.AddRules():
            return (steps.DeleteRules(step.given, step.carried),)
        case steps.JoinVrf():
            return (steps.DeleteVrf(step.vrf),)
        case steps.Move() if record.snapshot is not None:
            return (steps.Return(record.snapshot, record.waiting_name),)
        case steps.Move() | steps.Make():
            return (steps.Unmake(record.host_end if record.allocation.settings.made.kind == "veth" else ""),)
        case steps.TakeDown() if record.snapshot is not None:
            return (steps.Restore(record.snapshot),)
    return ()
