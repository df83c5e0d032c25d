"""Routes, rules and neighbours, as the lists of the parameters have them."""

from typing import Any

from podwire.dradriver.parameters import texts
from podwire.dradriver.parameters.forms import Choice, Clash, Entries, Number, Text
from podwire.dradriver.parameters.settings import Neighbour, Route, Rule

MAIN = 254
LARGEST = 2**32 - 1
RESERVED_TABLES = {
    253: "table 253 is the kernel's own; take one from 1 to 252, or above 255",
    255: "table 255 is the kernel's own; take one from 1 to 252, or above 255",
}
TABLE = Number(low=1, high=LARGEST, but=RESERVED_TABLES)
OWN_TABLE = Number(
    low=1, high=LARGEST, but={**RESERVED_TABLES, MAIN: f"table {MAIN} is everybody's; take one for the VRF alone"}
)
SCOPES = {"global": 0, "link": 253}
LOWEST_PRIORITY, HIGHEST_PRIORITY = 1, 32765
"""0, 32766 and 32767 are the kernel's own three rules."""


LINK_HAS_NONE = "cannot be together with scope link, which means that there is no gateway"
NEEDED = "is required, unless scope is link"
ABOUT_NOTHING = "is required, or destination is; 0.0.0.0/0 and ::/0 are all of IPv4 and of IPv6"


def _route(said: dict[str, Any]) -> Route:
    destination, gateway, source = said["destination"], said.get("gateway"), said.get("source")
    scope = said.get("scope", "global")
    if scope == "link" and gateway is not None:
        raise Clash("gateway", LINK_HAS_NONE)
    if scope == "global" and gateway is None:
        raise Clash("gateway", NEEDED)
    for name, value in (("gateway", gateway), ("source", source)):
        if value is not None and value.version != destination.version:
            raise Clash(name, f"is IPv{value.version}, and the destination is IPv{destination.version}")
    return Route(
        destination=destination,
        gateway=gateway,
        source=source,
        scope=SCOPES[scope],
        table=said.get("table", 0),
        metric=said.get("metric", 0),
    )


def _rule(said: dict[str, Any]) -> Rule:
    source, destination = said.get("source"), said.get("destination")
    if source is None and destination is None:
        raise Clash("source", ABOUT_NOTHING)
    if source is not None and destination is not None and source.version != destination.version:
        raise Clash("destination", f"is IPv{destination.version}, and the source is IPv{source.version}")
    return Rule(priority=said["priority"], table=said["table"], source=source, destination=destination)


ROUTES = Entries(
    fields={
        "destination": Text(parse=texts.destination),
        "gateway": Text(parse=texts.address),
        "source": Text(parse=texts.address),
        "scope": Choice(of=tuple(SCOPES)),
        "table": TABLE,
        "metric": Number(low=0, high=LARGEST),
    },
    required=("destination",),
    make=_route,
    key=lambda each: (each.destination, each.table or MAIN, each.metric),
    most=64,
)
RULES = Entries(
    fields={
        "priority": Number(low=LOWEST_PRIORITY, high=HIGHEST_PRIORITY),
        "source": Text(parse=texts.network),
        "destination": Text(parse=texts.network),
        "table": TABLE,
    },
    required=("priority", "table"),
    make=_rule,
    key=lambda each: (each.priority, each.source, each.destination),
    most=32,
)
NEIGHBOURS = Entries(
    fields={"address": Text(parse=texts.address), "mac": Text(parse=texts.mac)},
    required=("address", "mac"),
    make=lambda said: Neighbour(address=said["address"], mac=said["mac"]),
    key=lambda each: each.address,
    most=64,
)
