"""Locations of devices' links, followed by netlink events. Pure.

A link is identified by its namespace and index. When it moves, the event has the namespace and index of its new
location, so it is found again under any name.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.linux.values import Link

Key = Hashable


class Elsewhere(NamedTuple):
    """In another namespace: the namespace's id and the link's index there, or None if only its absence is known."""

    place: tuple[int, int] | None = None
    link: Link | None = None
    """The link as of the last event."""


class LinkLocations:
    def __init__(self) -> None:
        self._home: dict[int, Key] = {}
        self._away: dict[Key, Elsewhere] = {}
        self._deleted: set[Key] = set()
        self._indices: set[int] = set()
        self._newcomers: tuple[set[int], set[int]] = (set(), set())
        """Indexes that appeared between the last listings: the event with their origin may come after the listing."""
        self._missed: dict[int, Key] = {}
        """Devices that a listing did not have, by their last index: the event that explains it may come later."""

    def at_home(self, key: Key, ifindex: int) -> None:
        """Notes that a device is this link of the host."""
        if self._home.get(ifindex) != key or key in self._away or key in self._deleted:  # at most looks it is as it was
            self.forget(key)
            self._home[ifindex] = key

    def elsewhere(self, key: Key, netns: int, link: Link) -> None:
        """Notes that a device is this link of another namespace."""
        self.forget(key)
        self._away[key] = Elsewhere((netns, link.ifindex), link)

    def forget(self, key: Key) -> None:
        for ifindex in [index for index, owner in self._home.items() if owner == key]:
            del self._home[ifindex]
        for ifindex in [index for index, owner in self._missed.items() if owner == key]:
            del self._missed[ifindex]
        self._away.pop(key, None)
        self._deleted.discard(key)

    def device_at(self, ifindex: int) -> Key | None:
        return self._home.get(ifindex)

    def follows(self, ifindex: int) -> bool:
        """Whether events of a link of the host matter: it is a device, or was one at the last listing."""
        return ifindex in self._home or ifindex in self._missed

    def is_newcomer(self, ifindex: int) -> bool:
        """Whether a link appeared between the last listings, so that the event with its origin may still come."""
        return any(ifindex in newcomers for newcomers in self._newcomers)

    def away(self, key: Key) -> Elsewhere | None:
        return self._away.get(key)

    def deleted(self, key: Key) -> bool:
        """Whether its link is known to be deleted."""
        return key in self._deleted

    def learn(self, events: Iterable[LinkEvent | NamespaceEnded]) -> None:
        for event in events:
            if isinstance(event, NamespaceEnded):
                self._ended(event.netns)
            elif event.netns is None:
                self._here(event)
            else:
                self._there(event.netns, event)

    def present(self, indices: Iterable[int]) -> None:
        """Notes all links of the host: a device without a link and without an event is in an unknown namespace."""
        there = set(indices)
        self._newcomers = (self._newcomers[1], there - self._indices)
        self._indices = there
        for ifindex in [index for index in self._home if index not in self._indices]:
            self._missed[ifindex] = key = self._home.pop(ifindex)
            self._away.setdefault(key, Elsewhere())

    def doubt(self) -> None:
        """Events were lost: locations in other namespaces are unknown."""
        for key, away in self._away.items():
            if away.place is not None:
                self._away[key] = Elsewhere()

    def _ended(self, netns: int) -> None:
        """The kernel deletes virtual links with their namespace, and returns those of hardware to the host."""
        for key, away in list(self._away.items()):
            if away.place is None or away.place[0] != netns:
                continue
            if away.link is not None and away.link.kind:
                del self._away[key]
                self._deleted.add(key)
            else:
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
        for key in [device for device, away in self._away.items() if away.place == place]:
            if not seen.gone:
                self._away[key] = Elsewhere(place, seen.link)
            elif seen.went is None:
                del self._away[key]
                self._deleted.add(key)
            else:
                # Only the namespace it leaves understands the number of the target; the index is the same in both.
                self._away[key] = Elsewhere()
                self._returning(seen.went[1], key)

    def _returning(self, ifindex: int, key: Key) -> None:
        """Notes the index of a link that returns to the host; an index that the host already had is another link's."""
        if ifindex not in self._indices or self.is_newcomer(ifindex):
            self._home.setdefault(ifindex, key)
