"""Whose network a change on the host may be about. Remembers how links were, and does no I/O.

| what changed | whom it concerns |
|---|---|
| a link, or its place in a bridge | pods whose result of ADD names it; nobody, if it looks as before |
| an address, a route or traffic control of a link | the same pods |
| an nft element with a comment | pods whose ids are words of it |
| anything else in nft | everybody if it is gone; if it is new, pods whose CHECK fails, for they may be well now |
| a route by no link, a rule, a parameter of all links, more than was heard | everybody |

So the coming and going of one pod is nothing to the others.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from podwire.linux.net import monitor
from podwire.linux.net.monitor import Changed
from podwire.linux.values import Link

Shape = tuple[object, ...]
NOBODY: frozenset[str] = frozenset()


def shape(link: Link) -> Shape:
    """What CHECK can find changed. A bridge's MAC address and MTU follow from the links that are put into it."""
    own = () if link.kind == "bridge" else (link.mac, link.mtu)
    return link.name, link.up, link.master, link.alias, *own


class AffectedPods:
    def __init__(self) -> None:
        self._links: dict[int, tuple[str, Shape]] = {}
        self._pods: dict[str, frozenset[str]] = {}
        self._at: dict[str, set[str]] = {}

    def see(self, links: Iterable[Link]) -> None:
        """How the host's links are now."""
        self._links = {each.ifindex: (each.name, shape(each)) for each in links}

    def follow(self, id_: str, links: Iterable[str]) -> None:
        """A pod, and the names of those of the host's links that are part of its network."""
        self.leave(id_)
        self._pods[id_] = frozenset(links)
        for each in self._pods[id_]:
            self._at.setdefault(each, set()).add(id_)

    def leave(self, id_: str) -> None:
        for each in self._pods.pop(id_, NOBODY):
            self._at[each].discard(id_)
            if not self._at[each]:
                del self._at[each]

    def of(self, change: Changed, failing: AbstractSet[str]) -> AbstractSet[str]:
        """The ids of pods to check; `failing` are those whose last CHECK failed."""
        match change.what:
            case monitor.LINK:
                return self._of_link(change)
            case monitor.PORT:
                return self._named(change.link.name if change.link is not None else "")
            case monitor.ADDRESS | monitor.TRAFFIC:
                return self._named(self._name(change.ifindex))
            case monitor.NEXT_HOP if change.ifindex:
                return self._named(self._name(change.ifindex))
            case monitor.ELEMENT if all(change.comments):
                words = {word for each in change.comments for word in each.split()}
                return words & self._pods.keys()
            case monitor.ELEMENT | monitor.RULESET if not change.gone:
                return failing & self._pods.keys()
        return self._pods.keys()

    def _of_link(self, change: Changed) -> AbstractSet[str]:
        link = change.link
        if link is None:
            return NOBODY
        now = link.name, shape(link)
        before = self._links.pop(link.ifindex, None)
        if not change.gone:
            self._links[link.ifindex] = now
            if before == now:
                return NOBODY
        return self._named(link.name) | (self._named(before[0]) if before is not None else NOBODY)

    def _name(self, ifindex: int) -> str:
        return self._links.get(ifindex, ("", ()))[0]

    def _named(self, name: str) -> AbstractSet[str]:
        return self._at.get(name, NOBODY)
