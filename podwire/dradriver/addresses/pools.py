"""Address pools of the driver's configuration. Pure.

A pool has the fields of host-local's `ipam`, which administrators of pod networks know:

    lab:
      ranges:
      - - {subnet: 10.9.0.0/24, rangeStart: 10.9.0.100, rangeEnd: 10.9.0.199, gateway: 10.9.0.1}
      - - {subnet: fd00:9::/64}
      exclude: [10.9.0.150, 10.9.0.160/29]

or `subnet`, `rangeStart`, `rangeEnd` and `gateway` at once, for one range. An interface gets one address of each set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.settings import IP
from podwire.ipam.ranges import RangeSet, parse_sets
from podwire.protocols.cni.errors import CniError

_FIELDS = ("subnet", "rangeStart", "rangeEnd", "gateway", "ranges", "exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    name: str
    sets: tuple[RangeSet, ...]
    gateways: frozenset[IP] = frozenset()
    """Those that the configuration names. The first address of other subnets is kept free all the same."""

    def sets_of(self, families: Sequence[int]) -> tuple[tuple[int, RangeSet], ...]:
        """Those of the families that are asked for, all without a word, each with its number in the pool."""
        return tuple(
            (number, set_)
            for number, set_ in enumerate(self.sets)
            if not families or set_[0].subnet.version in families
        )


def parse_pools(config: Mapping[str, Any], where: str = "pools") -> dict[str, Pool]:
    """Refused, with the path of the field, when the configuration makes no sense."""
    return {name: _parse_pool(name, pool, f"{where}.{name}") for name, pool in config.items()}


def _parse_pool(name: str, config: object, where: str) -> Pool:
    if not isinstance(config, dict):
        raise Refused(where, "is not an object")
    if unknown := sorted(set(config) - set(_FIELDS)):
        raise Refused(f"{where}.{unknown[0]}", f"unknown field; a pool has {', '.join(_FIELDS)}")
    try:
        sets = parse_sets(config)
    except CniError as error:
        at, _, reason = (error.details or error.msg).partition(": ")
        raise Refused(where + at.removeprefix("ipam"), reason) from error
    named = [config, *(range_ for set_ in config.get("ranges") or () for range_ in set_)]
    chosen = {str(range_["gateway"]) for range_ in named if range_.get("gateway")}
    gateways = {range_.gateway for set_ in sets for range_ in set_}
    return Pool(name=name, sets=sets, gateways=frozenset(gateway for gateway in gateways if _is_named(gateway, chosen)))


def _is_named(gateway: IP, chosen: set[str]) -> bool:
    """However somebody spelled it."""
    return any(type(gateway)(text) == gateway for text in chosen if (":" in text) == (gateway.version == 6))
