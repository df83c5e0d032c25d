"""Whether routes lead anywhere: to gateways that the interface reaches, from addresses that it has. Pure."""

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.entries import SCOPES
from podwire.dradriver.parameters.field_checks import At, Values
from podwire.dradriver.parameters.settings import IP, Interface, Network, Route


def reach(said: Values, at: At, *, shared: bool) -> None:
    """Raises Refused."""
    routes: tuple[Route, ...] = said.get("routes", ())
    addresses = _addresses(said, shared=shared)
    linked = [route.destination for route in routes if route.scope == SCOPES["link"]]
    for i, route in enumerate(routes):
        place = f"{at('routes')}[{i}]"
        _in_table(route, said, place)
        if addresses is None:
            continue
        if route.source is not None and all(route.source != address.ip for address in addresses):
            raise Refused(f"{place}.source", f"{route.source} is not an address of the interface")
        if route.gateway is not None:
            _gateway(route.gateway, addresses, linked, f"{place}.gateway")


def _addresses(said: Values, *, shared: bool) -> tuple[Interface, ...] | None:
    """None when nobody knows yet: others come from a pool, from DHCP, or with the device."""
    if said.get("interface.dhcp") or said.get("interface.addressPool"):
        return None
    found: tuple[Interface, ...] | None = said.get("interface.addresses")
    return () if found is None and shared else found


def _in_table(route: Route, said: Values, place: str) -> None:
    name, table = said.get("interface.vrf.name"), said.get("interface.vrf.table")
    if name and route.table and route.table != table:
        raise Refused(f"{place}.table", f"routes of an interface in VRF {name} are in the table of the VRF")


def _gateway(gateway: IP, addresses: tuple[Interface, ...], linked: list[Network], place: str) -> None:
    if any(gateway == address.ip for address in addresses):
        raise Refused(place, f"{gateway} is the interface itself")
    near = [*(address.network for address in addresses), *linked]
    if gateway.version == 6 and gateway.is_link_local:
        return
    if not any(gateway in network for network in near):
        help_ = f"add a route to {gateway}/{gateway.max_prefixlen} with scope link, or an address in its network"
        raise Refused(place, f"{gateway} cannot be reached from the interface's addresses; {help_}")
