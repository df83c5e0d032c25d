"""The devices that a node offers, from the driver's YAML file, read strictly: unknown keys are errors."""

import re
from dataclasses import dataclass

from podwire.objects.quantity import parse
from podwire.protocols.settings import BadConfig, Read, between, flag, link, mapped, one_of

EFFECTS = ("None", "NoSchedule", "NoExecute")
MOST_SLOTS = 4096
MOST_PARENTS = 64
LEAST_BANDWIDTH = 1_000_000
"""Bits per second: what a share of a device is counted in."""
LONGEST_FILTER = 10 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A link that interfaces are made on, for several claims at once."""

    interface: str
    slots: int = 16
    bandwidth: int | None = None
    """Bits per second that all of them share; None is the link's speed, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    filter: str = ""
    """CEL over `attributes`: what is offered. Empty offers everything that can be."""
    shared: tuple[Shared, ...] = ()
    bridges: bool = True
    """Whether bridges that are not podwire's own are shared, also those that are not named."""
    slots: int = 16
    """Of those bridges."""
    trusted_bridges: tuple[str, ...] = ()
    """Bridges on which pods may be DHCP servers and routers for others; see attach/ports."""
    taint: str = "NoSchedule"
    """The effect of having no carrier, or of being gone."""
    patience: float = 3.0
    """Seconds that a link may be without carrier, or out of sight, before it counts: one that was just set up has to
    find its other end first."""

    def parent(self, link: str) -> Shared | None:
        """Returns the settings of a link that the file names."""
        return next((parent for parent in self.shared if parent.interface == link), None)


def config(found: object, key: str = "") -> Config:
    """Of a value that stands at a key of some file. Raises BadConfig."""
    return Config(**mapped(key, found, KEYS, renamed=RENAMED))


def _parents(key: str, value: object) -> tuple[Shared, ...]:
    if not isinstance(value, list) or len(value) > MOST_PARENTS:
        raise BadConfig(key, f"must be a list of up to {MOST_PARENTS}")
    parents: list[Shared] = []
    for at, item in enumerate(value):
        parent = Shared(**mapped(f"{key}[{at}]", item, _PARENT_KEYS, required=("interface",)))
        if parent.interface in [other.interface for other in parents]:
            raise BadConfig(f"{key}[{at}].interface", f"{parent.interface} is listed twice")
        parents.append(parent)
    return tuple(parents)


def _links(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_PARENTS:
        raise BadConfig(key, f"must be a list of up to {MOST_PARENTS} names of links")
    return tuple(link(f"{key}[{at}]", item) for at, item in enumerate(value))


def _bandwidth(key: str, value: object) -> int:
    """Of a quantity, bits per second: 10G."""
    good = (
        isinstance(value, str | int) and not isinstance(value, bool) and re.fullmatch(r"[0-9.]+[kMGTPE]?", str(value))
    )
    try:
        amount = parse(str(value)).value() if good else 0
    except ValueError:
        amount = 0
    if not LEAST_BANDWIDTH <= amount < 2**63:
        raise BadConfig(key, f"{value!r} is not a bandwidth in bits per second such as 10G (at least 1M)")
    return amount


def _expression(key: str, value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > LONGEST_FILTER:
        raise BadConfig(key, f"is not an expression of up to {LONGEST_FILTER} bytes")
    return value


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise BadConfig(key, f"{value!r} is not a number of seconds from 0 to 3600")
    return float(value)


_PARENT_KEYS: dict[str, Read] = {"interface": link, "slots": between(1, MOST_SLOTS), "bandwidth": _bandwidth}
KEYS: dict[str, Read] = {
    "filter": _expression,
    "shared": _parents,
    "shareBridges": flag,
    "bridgeSlots": between(1, MOST_SLOTS),
    "trustedBridges": _links,
    "taintEffect": one_of(*EFFECTS),
    "patienceSeconds": _seconds,
}
RENAMED = {
    "shareBridges": "bridges",
    "bridgeSlots": "slots",
    "trustedBridges": "trusted_bridges",
    "taintEffect": "taint",
    "patienceSeconds": "patience",
}
"""Fields of Config that have another name in the file."""
