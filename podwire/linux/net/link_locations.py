"""Where the links of devices are, followed by what the kernel tells of them. Pure.

A link is known by its index where it is; when it moves, the kernel tells its number in the next place. So it is found
again whatever it is called by then.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.linux.values import Link

Key = Hashable


class Elsewhere(NamedTuple):
    """In another namespace: its number and the link's index there, or None when only its absence is known."""

    place: tuple[int, int] | None = None
    link: Link | None = None
    """How it was there when last heard of."""


class LinkLocations:
    def __init__(self) -> None:
        self._home: dict[int, Key] = {}
        self._away: dict[Key, Elsewhere] = {}
        self._deleted: set[Key] = set()
        self._indices: set[int] = set()
        self._newcomers: tuple[set[int], set[int]] = (set(), set())
        """Links that came between the last looks: where one came from may be told a moment after it was seen."""
        self._missed: dict[int, Key] = {}
        """Those that a look did not find, by the index that they had: what became of them is told a moment later."""

    def at_home(self, key: Key, ifindex: int) -> None:
        """This link is the device, and is on the host."""
        if self._home.get(ifindex) != key or key in self._away or key in self._deleted:  # at most looks it is as it was
            self.forget(key)
            self._home[ifindex] = key

    def elsewhere(self, key: Key, netns: int, link: Link) -> None:
        """This link, found in another namespace, is the device."""
        self.forget(key)
        self._away[key] = Elsewhere((netns, link.ifindex), link)

    def forget(self, key: Key) -> None:
        for ifindex in [each for each, owner in self._home.items() if owner == key]:
            del self._home[ifindex]
        for ifindex in [each for each, owner in self._missed.items() if owner == key]:
            del self._missed[ifindex]
        self._away.pop(key, None)
        self._deleted.discard(key)

    def device_at(self, ifindex: int) -> Key | None:
        return self._home.get(ifindex)

    def follows(self, ifindex: int) -> bool:
        """Whether what is told of a link of the host is of use: it is a device, or was one a moment ago."""
        return ifindex in self._home or ifindex in self._missed

    def away(self, key: Key) -> Elsewhere | None:
        return self._away.get(key)

    def deleted(self, key: Key) -> bool:
        """Whether its link is known to be no more."""
        return key in self._deleted

    def learn(self, told: Iterable[LinkEvent | NamespaceEnded]) -> None:
        for each in told:
            if isinstance(each, NamespaceEnded):
                self._lose(lambda place, netns=each.netns: place[0] == netns)  # type: ignore[misc]  # a default binds it
            elif each.netns is None:
                self._here(each)
            else:
                self._there(each.netns, each)

    def present(self, indices: Iterable[int]) -> None:
        """All links of the host: a device that is on none of them, and of which nothing was told, is away somewhere."""
        there = set(indices)
        self._newcomers = (self._newcomers[1], there - self._indices)
        self._indices = there
        for ifindex in [each for each in self._home if each not in self._indices]:
            self._missed[ifindex] = key = self._home.pop(ifindex)
            self._away.setdefault(key, Elsewhere())

    def doubt(self) -> None:
        """Something was not told: nobody is known to be anywhere but here."""
        self._lose(lambda _place: True)

    def _lose(self, lost: Callable[[tuple[int, int]], bool]) -> None:
        for key in [each for each, away in self._away.items() if away.place is not None and lost(away.place)]:
            self._away[key] = Elsewhere()

    def _here(self, seen: LinkEvent) -> None:
        if not seen.gone:
            return
        self._indices.discard(seen.link.ifindex)
        key = self._home.pop(seen.link.ifindex, None) or self._missed.pop(seen.link.ifindex, None)
        if key is None:
            return
        self._away.pop(key, None)
        if seen.went is None:
            self._deleted.add(key)
        else:
            self._away[key] = Elsewhere(seen.went)

    def _there(self, netns: int, seen: LinkEvent) -> None:
        place = (netns, seen.link.ifindex)
        for key in [each for each, away in self._away.items() if away.place == place]:
            if not seen.gone:
                self._away[key] = Elsewhere(place, seen.link)
            elif seen.went is None:
                del self._away[key]
                self._deleted.add(key)
            else:
                # Where to is told by a number that only the namespace it leaves understands; its index is everywhere's.
                self._away[key] = Elsewhere()
                self._returning(seen.went[1], key)

    def _returning(self, ifindex: int, key: Key) -> None:
        """If it is the host that it goes to, this is its index there; one that the host had before is another link."""
        if ifindex not in self._indices or any(ifindex in each for each in self._newcomers):
            self._home.setdefault(ifindex, key)
