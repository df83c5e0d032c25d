"""The links that the host itself needs: what its default routes go through, and all that these stand on. Pure."""

from collections.abc import Iterable, Mapping

from podwire.linux.values import MAIN, Link, Route


def uplinks(routes: Iterable[Route]) -> frozenset[int]:
    """Of each family, the links of the default routes of the main table that have the lowest metric, all of them."""
    # A default route of another kind (unreachable) leads nowhere, and so does one without a link.
    found = [
        route
        for route in routes
        if route.table == MAIN and not route.destination.prefixlen and route.kind == "unicast" and route.ifindex
    ]
    lowest: dict[int, int] = {}
    for route in found:
        version = route.destination.version
        lowest[version] = min(route.metric, lowest.get(version, route.metric))
    return frozenset(route.ifindex for route in found if route.metric == lowest[route.destination.version])


def needed(links: Mapping[int, Link], out: Iterable[int]) -> frozenset[int]:
    """The ways out, whatever is enslaved to them, their masters, and the links below all these.

    What is made on an uplink (a macvlan, say) is not needed by anybody on the host; what an uplink is made on is.
    """
    found: set[int] = set()
    uplinks_ = [links[index] for index in out if index in links]
    ends = [link.peer for link in uplinks_ if link.kind == "veth" and below(link)]
    waiting = [*out, *ends]
    while waiting:
        index = waiting.pop()
        if index in found or index not in links:
            continue
        found.add(index)
        link = links[index]
        waiting += [other.ifindex for other in links.values() if other.master == index]
        waiting += [neighbour for neighbour in (link.master, 0 if link.kind == "veth" else below(link)) if neighbour]
    return frozenset(found)


def below(link: Link) -> int:
    """The link of the same namespace that a link is made on, or the other end of its cable; 0 when there is none."""
    return link.peer if link.peer_netns is None and link.peer != link.ifindex else 0
