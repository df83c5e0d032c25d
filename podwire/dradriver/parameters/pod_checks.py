"""Whether the interfaces of one pod get along with each other. Pure."""

from collections.abc import Hashable, Iterator, Sequence

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.entries import MAIN
from podwire.dradriver.parameters.settings import WHOLE, Settings

Interfaces = Sequence[tuple[str, Settings]]
"""Each with what people know it by: the claim and the request."""


def check_pod_interfaces(interfaces: Interfaces) -> None:
    """Raises Refused."""
    for check in (_names, _vrfs, _unlike, _rules_lead_somewhere):
        check(interfaces)


def _names(interfaces: Interfaces) -> None:
    taken: dict[str, str] = {}
    for whose, settings in interfaces:
        if not settings.name:  # RDMA alone
            continue
        if settings.name in taken:
            reason = f'{taken[settings.name]} has "{settings.name}" in this pod too; name each in a config of its own'
            raise Refused(f"{whose}: interface.name", reason)
        taken[settings.name] = whose


def _vrfs(interfaces: Interfaces) -> None:
    """Interfaces may share one; its name and its table are then the same."""
    names = {settings.name: whose for whose, settings in interfaces}
    tables: dict[int, tuple[str, str]] = {}
    vrfs: dict[str, tuple[int, str]] = {}
    for whose, settings in interfaces:
        vrf = settings.vrf
        if vrf is None:
            continue
        if vrf.name in names:
            raise Refused(f"{whose}: interface.vrf.name", f'{names[vrf.name]} has an interface "{vrf.name}"')
        table, first = vrfs.setdefault(vrf.name, (vrf.table, whose))
        if table != vrf.table:
            raise Refused(f"{whose}: interface.vrf.table", f"{first} has VRF {vrf.name} with table {table}")
        name, first = tables.setdefault(vrf.table, (vrf.name, whose))
        if name != vrf.name:
            raise Refused(f"{whose}: interface.vrf.table", f"{first} has table {vrf.table} for VRF {name}")


def _unlike(interfaces: Interfaces) -> None:
    """Checks what the kernel has once for a whole pod."""
    taken: dict[Hashable, str] = {}
    for whose, settings in interfaces:
        for field, key, what in _held(settings):
            first = taken.get(held := (field.partition("[")[0], key))
            if first is not None:
                raise Refused(f"{whose}: {field}", f"{first} has {what} in this pod too")
            taken[held] = whose


def _held(settings: Settings) -> Iterator[tuple[str, Hashable, str]]:
    vrf = settings.vrf.name if settings.vrf else ""
    for i, address in enumerate(settings.addresses or ()):
        yield f"interface.addresses[{i}]", (vrf, address.ip), f"the address {address.ip}"
    for i, route in enumerate(settings.routes):
        what = f"a route to {route.destination} in table {route.table} with metric {route.metric}"
        yield f"routes[{i}]", (route.destination, route.table, route.metric), what
    for i, rule in enumerate(settings.rules):
        yield f"rules[{i}]", rule, f"the rule of priority {rule.priority}"


def _rules_lead_somewhere(interfaces: Interfaces) -> None:
    """A whole device brings along what routes it has on the host, in any table."""
    every = [settings for _, settings in interfaces]
    if any(settings.made.kind == WHOLE and settings.name for settings in every):
        return
    filled = {MAIN} | {route.table for settings in every for route in settings.routes}
    for whose, settings in interfaces:
        for i, rule in enumerate(settings.rules):
            if rule.table not in filled:
                reason = f"no route of this pod is in table {rule.table}; add one to routes"
                raise Refused(f"{whose}: rules[{i}].table", reason)
