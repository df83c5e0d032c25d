"""PodRoute as a value, read strictly: the same rules as in its definition, and those that no schema can tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.linux.values import IP, LOCAL, MAIN, Network
from podwire.nriplugins.network.resources import Broken, Head, head_of
from podwire.nriplugins.network.strict_reader import COMMON, Reader
from podwire.protocols.k8sapi.status import duplicate, required

KIND = "PodRoute"
OWN = "PodIPs"
"""A source that stands for all addresses of the pod."""
MOST_ROUTES, MOST_DESTINATIONS, MOST_SOURCES = 32, 32, 16
LARGEST = 2**32 - 1
LONGEST_INTERFACE = 15
SMALLEST_MTU = {4: 68, 6: 1280}
_COMPAT = 253
_FIELDS = *COMMON, "interface", "table", "sources", "routes"
_WAY = "destinations", "via", "metric", "mtu", "advmss", "onLink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The next hop and the properties of some destinations."""

    destinations: tuple[Network, ...]
    via: IP | None = None
    """None: they are on the link itself."""
    metric: int = 0
    mtu: int = 0
    advmss: int = 0
    on_link: bool = False
    """The gateway is on the link although no address of the pod says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRoute:
    head: Head
    interface: str = "eth0"
    table: int = MAIN
    sources: tuple[Network, ...] = ()
    own: bool = False
    """Whether the pod's own addresses are sources too."""
    ways: tuple[Way, ...] = ()


def read(object_: Mapping[str, Any]) -> PodRoute | Broken:
    """A PodRoute of the API; Broken, with what is wrong, when it cannot be one."""
    head, reader = head_of(object_), Reader()
    spec = reader.fields(object_.get("spec"), "spec", _FIELDS)
    reader.common(spec, "spec")
    table = reader.optional(spec, "table", "spec", 1, LARGEST) or MAIN
    if table in (_COMPAT, LOCAL):
        reader.wrong("spec.table", table, "belongs to the kernel")
    sources, own = _sources(reader, spec.get("sources"))
    if (sources or own) and table == MAIN:
        reader.wrong("spec.sources", spec["sources"], "need a table of their own: everything looks into the main one")
    route = PodRoute(
        head=head,
        interface=_interface(reader, spec.get("interface", "eth0")),
        table=table,
        sources=sources,
        own=own,
        ways=_ways(reader, spec.get("routes")),
    )
    return Broken(head, tuple(reader.errors)) if reader.errors else route


def _interface(reader: Reader, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= LONGEST_INTERFACE and not set(value) & set("/: \t\n%"):
        return value
    reader.wrong("spec.interface", value, "must be the name of a link in the pod")
    return ""


def _sources(reader: Reader, value: Any) -> tuple[tuple[Network, ...], bool]:
    own = isinstance(value, list) and OWN in value

    def source(item: Any, path: str) -> Network | None:
        return None if item == OWN else reader.network(item, path)

    return reader.listed(value, "spec.sources", MOST_SOURCES, source), own


def _ways(reader: Reader, value: Any) -> tuple[Way, ...]:
    if not value:
        reader.errors.append(required("spec.routes"))
    ways = reader.listed(value, "spec.routes", MOST_ROUTES, lambda item, path: _way(reader, item, path))
    seen: set[tuple[Network, int]] = set()
    for index, way in enumerate(ways):
        for at, destination in enumerate(way.destinations):
            if (destination, way.metric) in seen:
                reader.errors.append(duplicate(f"spec.routes[{index}].destinations[{at}]", str(destination)))
            seen.add((destination, way.metric))
    return ways


def _way(reader: Reader, value: Any, path: str) -> Way:
    fields = reader.fields(value, path, _WAY)
    listed, where = fields.get("destinations"), f"{path}.destinations"
    destinations: tuple[Network, ...] = reader.listed(listed, where, MOST_DESTINATIONS, reader.network)
    if not listed:
        reader.errors.append(required(where))
    via = None if fields.get("via") is None else reader.address(fields["via"], f"{path}.via")
    on_link = fields.get("onLink", False)
    if not isinstance(on_link, bool):
        reader.wrong(f"{path}.onLink", on_link, "must be true or false")
    if on_link and fields.get("via") is None:
        reader.wrong(f"{path}.onLink", on_link, "says something about via, and there is none")
    way = Way(
        destinations=destinations,
        via=via,
        metric=reader.optional(fields, "metric", path, 0, LARGEST) or 0,
        mtu=reader.optional(fields, "mtu", path, SMALLEST_MTU[4], 65535) or 0,
        advmss=reader.optional(fields, "advmss", path, 1, 65535) or 0,
        on_link=on_link is True,
    )
    # IPv4 and IPv6 are not mixed in one entry.
    families = {destination.version for destination in way.destinations}
    if way.via is not None and families - {way.via.version}:
        reader.wrong(f"{path}.via", str(way.via), "must be of the same IP family as all destinations")
    if 6 in families and 0 < way.mtu < SMALLEST_MTU[6]:
        reader.wrong(f"{path}.mtu", way.mtu, "must be at least 1280 for IPv6 destinations")
    return way
