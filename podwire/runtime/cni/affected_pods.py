"""Decides which pods a change on the host may affect. Remembers the host's links; does no I/O.

| change | affected pods |
|---|---|
| a link, or its bridge port | pods whose ADD result names the link; none if it looks as before |
| an address, a route or traffic control of a link | the same pods |
| an nft element with a comment | pods whose ids are words of the comment |
| anything else in nft | removed: all; added: pods whose CHECK fails, because they may have recovered |
| a route without a link, a rule, a setting of all links, lost events | all |

So attaching or detaching one pod does not affect the others.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from podwire.linux.net import monitor
from podwire.linux.net.monitor import Changed
from podwire.linux.values import Link

Shape = tuple[object, ...]
NONE: frozenset[str] = frozenset()


def shape(link: Link) -> Shape:
    """Returns the properties that CHECK can find changed. A bridge's MAC address and MTU follow those of its ports."""
    own = () if link.kind == "bridge" else (link.mac, link.mtu)
    return link.name, link.up, link.master, link.alias, *own


class AffectedPods:
    """The host's links, and which pods use them."""

    def __init__(self) -> None:
        self._links: dict[int, tuple[str, Shape]] = {}
        self._pods: dict[str, frozenset[str]] = {}
        self._by_link: dict[str, set[str]] = {}

    def set_links(self, links: Iterable[Link]) -> None:
        """Remembers the host's links as they are now."""
        self._links = {link.ifindex: (link.name, shape(link)) for link in links}

    def add_pod(self, id_: str, links: Iterable[str]) -> None:
        """Adds a pod with the names of the host's links that are part of its network."""
        self.remove_pod(id_)
        self._pods[id_] = frozenset(links)
        for name in self._pods[id_]:
            self._by_link.setdefault(name, set()).add(id_)

    def remove_pod(self, id_: str) -> None:
        for name in self._pods.pop(id_, NONE):
            self._by_link[name].discard(id_)
            if not self._by_link[name]:
                del self._by_link[name]

    def of(self, change: Changed, failing: AbstractSet[str]) -> AbstractSet[str]:
        """Returns the ids of pods to check; `failing` are those whose last CHECK failed."""
        match change.what:
            case monitor.LINK:
                link = change.link
                if link is None:
                    return NONE
                now = link.name, shape(link)
                before = self._links.pop(link.ifindex, None)
                if not change.gone:
                    self._links[link.ifindex] = now
                    if before == now:
                        return NONE
                return self._users(link.name) | (self._users(before[0]) if before is not None else NONE)
            case monitor.PORT:
                return self._users(change.link.name if change.link is not None else "")
            case monitor.ADDRESS | monitor.TRAFFIC:
                return self._users(self._name(change.ifindex))
            case monitor.NEXT_HOP if change.ifindex:
                return self._users(self._name(change.ifindex))
            case monitor.ELEMENT if all(change.comments):
                words = {word for comment in change.comments for word in comment.split()}
                return words & self._pods.keys()
            case monitor.ELEMENT | monitor.RULESET if not change.gone:
                return failing & self._pods.keys()
        return self._pods.keys()

    def _name(self, ifindex: int) -> str:
        return self._links.get(ifindex, ("", ()))[0]

    def _users(self, link: str) -> AbstractSet[str]:
        return self._by_link.get(link, NONE)
