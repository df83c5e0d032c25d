"""Checks fields that exclude each other: in each config alone, then in all of them merged. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.schema import MODES
from podwire.dradriver.parameters.settings import WHOLE

LOWEST_IPV6_MTU = 1280
BELONGS = {
    "interface.mode": tuple(MODES),
    "interface.vni": ("vxlan",),
    "interface.remote": ("vxlan",),
    "interface.port": ("vxlan",),
    "interface.vlan": ("vlan",),
    "interface.bridge": ("veth",),
}
"""Fields that only some kinds have."""

NO_RULES = "cannot be together with interface.vrf, which has a table of its own"
ITSELF = "is the name of the interface itself"
NO_OWN_MAC = "an ipvlan has the address of its device"
NO_DHCP = "an ipvlan shares the address that DHCP servers know their clients by"
TOO_SMALL = f"must be at least {LOWEST_IPV6_MTU} for IPv6 addresses"

Values = Mapping[str, Any]
At = Callable[[str], str]
"""From a path to the full name of the field in its object."""


def check_fields(said: Values, at: At) -> None:
    """Raises Refused."""
    for check in (_addressing, _vrf, _kind, _ipvlan, _mtu):
        check(said, at)


def _addressing(said: Values, at: At) -> None:
    if not said.get("interface.dhcp"):
        return
    for other in ("interface.addresses", "interface.addressPool"):
        if said.get(other):
            raise Refused(at("interface.dhcp"), not_with(other.partition(".")[2]))


def not_with(other: str) -> str:
    return f"cannot be together with {other}; say dhcp: false, or leave {other} out"


def _vrf(said: Values, at: At) -> None:
    name, table = said.get("interface.vrf.name"), said.get("interface.vrf.table")
    if (name or table) and said.get("rules"):
        raise Refused(at("rules"), NO_RULES)
    if name and name == said.get("interface.name"):
        raise Refused(at("interface.vrf.name"), f'"{name}" {ITSELF}')


def _kind(said: Values, at: At) -> None:
    kind = said.get("interface.kind")
    if kind is None:
        return
    for path, kinds in BELONGS.items():
        if path in said and said[path] is not None and kind not in kinds:
            raise Refused(at(path), belongs(kinds, kind))
    mode = said.get("interface.mode")
    if mode is not None and mode not in MODES[kind]:
        raise Refused(at("interface.mode"), f"{kind} has no mode {mode}; it has {', '.join(MODES[kind])}")


def belongs(kinds: tuple[str, ...], kind: str) -> str:
    """Why a field is out of place."""
    return f"belongs to {' and '.join(kinds)}, and this is {kind if kind != WHOLE else 'a whole device'}"


def _ipvlan(said: Values, at: At) -> None:
    if said.get("interface.kind") != "ipvlan":
        return
    if said.get("interface.mac"):
        raise Refused(at("interface.mac"), NO_OWN_MAC)
    if said.get("interface.dhcp"):
        raise Refused(at("interface.dhcp"), NO_DHCP)


def _mtu(said: Values, at: At) -> None:
    mtu = said.get("interface.mtu")
    if mtu is None or mtu >= LOWEST_IPV6_MTU:
        return
    if any(address.version == 6 for address in said.get("interface.addresses") or ()):
        raise Refused(at("interface.mtu"), f"{TOO_SMALL}, not {mtu}")
