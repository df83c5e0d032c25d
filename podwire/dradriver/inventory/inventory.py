"""The devices of a node: what the host has, what pods have of it, and how each of them is.

A device that somebody holds stays in the list as it was, wherever its link is meanwhile. Looks are synchronous, one at
a time; what they found is read by anybody at any time.
"""

import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from podwire.dradriver.claims.allocations import Device
from podwire.dradriver.inventory.config import Config
from podwire.dradriver.inventory.devices import GONE, NO_CARRIER, Facts, attributes, entry, published, tainted
from podwire.dradriver.inventory.filter import Filter
from podwire.dradriver.inventory.health import Condition, Health, Judge
from podwire.dradriver.inventory.host_view import Host, View
from podwire.dradriver.inventory.link_watch import LinkWatch
from podwire.dradriver.inventory.selection import is_never_offered, labels
from podwire.dradriver.inventory.subscribers import Subscribers
from podwire.interfaces import Clock
from podwire.linux.net.link_locations import LinkLocations
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded, no_carrier
from podwire.linux.net.sysfs import Sysfs
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A device, and what the slice says of it; without taints."""

    device: Device
    listed: Object


@dataclass(slots=True)
class _Held:
    known: Known
    macs: set[str]
    """That its link may have: a pod can be given another one."""
    holders: set[str] = field(default_factory=set)


class Inventory:
    """Opened where the links are: in the calling thread's network namespace, or in that at a path."""

    def __init__(
        self, *, sysfs: Sysfs, clock: Clock, config: Config | None = None, netns: str | Path | None = None
    ) -> None:
        """Raises BadConfig for a filter that is none, LinuxError."""
        self.config, self.netns, self._clock = config or Config(), netns, clock
        self._filter = Filter(self.config.filter)
        self._judge = Judge(self.config.patience)
        self._host = Host(sysfs, netns)
        self._turn = threading.RLock()
        self._where = LinkLocations()
        self._known: dict[str, Known] = {}
        self._held: dict[str, _Held] = {}
        self._home: dict[str, Link] = {}
        self._nobodys: frozenset[int] = frozenset()
        self._health: Mapping[str, Health] = {}
        self._devices: tuple[Object, ...] = ()
        self._left_out: dict[str, str] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._sought: set[str] = set()
        """Those that were looked for everywhere, and are nowhere."""
        self._said: set[tuple[str, str]] = set()
        self._looked = False
        self.subscribers = Subscribers()

    def close(self) -> None:
        with self._turn:
            self._host.close()

    def find(self, device: str) -> Device | None:
        """The device, also while it is in a pod; None when there is none."""
        known = self._known.get(device)
        return known.device if known is not None else None

    def listed(self, device: str) -> Object | None:
        """What the slice says of a device, without taints: kept, it is what `hold` is told after a restart."""
        known = self._known.get(device)
        return known.listed if known is not None else None

    @property
    def looked(self) -> bool:
        """Whether there was a look yet: before that, nobody knows what devices there are."""
        return self._looked

    def devices(self) -> tuple[Object, ...]:
        """What the slices are to say, in order."""
        return self._devices

    def left_out(self) -> Mapping[str, str]:
        """The host's links that are no devices, by name, and why: they are needed, podwire's own, not wanted, …"""
        return self._left_out

    def health(self) -> Mapping[str, Health]:
        return self._health

    def hold(
        self, name: str, by: str, *, device: Device | None = None, listed: Object | None = None, mac: str = ""
    ) -> None:
        """Keep a device in the list as it is now, or as it was when somebody wrote that down; once for each holder.

        `mac` is the address that its link has in the pod, if it is another one. Raises LookupError for a device that
        is not there, when nothing was written down.
        """
        with self._turn:
            held = self._held.get(name)
            if held is None:
                known = self._known.get(name) if device is None else _kept(name, device, listed)
                if known is None:
                    raise LookupError(name)
                held = self._held[name] = _Held(known, {known.device.mac})
                self._known[name] = known
            held.holders.add(by)
            held.macs |= {mac} if mac else set()
            if self._looked:
                self._list()

    def release(self, device: str, by: str) -> None:
        """The holder needs it no more. When it was the last, the device is what its link is: ask for a look."""
        with self._turn:
            held = self._held.get(device)
            if held is None:
                return
            held.holders.discard(by)
            if not held.holders:
                del self._held[device]
        self.subscribers.stale()

    def look(self, told: Sequence[LinkEvent | NamespaceEnded] = (), *, lost: bool = False) -> float | None:
        """See how things are. Returns after how many seconds to look again, if nothing happens. Raises LinuxError.

        `told` is what the kernel told meanwhile, `lost` that it told more than was heard.
        """
        with self._turn:
            self._said = set()
            self._where.learn(told)
            if lost:
                self._where.doubt()
                self._sought = set()
            view = self._host.look(self.config)
            self._where.present(view.links)
            self._nobodys = frozenset(index for index, each in view.links.items() if is_never_offered(each))
            at_home = self._found_home(view)
            self._home = {name: view.links[index] for name, index in at_home.items()}
            self._left_out = dict(view.left_out)
            before = self._known
            self._known = self._held_devices(view, at_home) | self._free_devices(view, at_home)
            self._search()
            for name in before.keys() - self._known.keys():
                self._where.forget(name)
            first, self._looked = not self._looked, True
            self._list(first=first)
            self._told = {key: why for key, why in self._told.items() if key in self._said}
            return self._judge.waits(self._clock.monotonic())

    async def run(self) -> None:
        """Follows the host until cancelled, in the network namespace that the inventory was opened in.

        Devices that claims held before must be held (`hold`) before this runs.
        """
        await LinkWatch(self).run()

    def changes(self) -> AsyncIterator[None]:
        """`async for _ in inventory.changes()`: at once, and whenever devices or their health change."""
        return self.subscribers.changes()

    def concerns(self, ifindex: int) -> bool:
        """Whether a link of the host is of interest: one that is never offered is not."""
        return ifindex not in self._nobodys

    def is_device(self, ifindex: int) -> bool:
        """Whether a link of the host is one, or was a moment ago."""
        return self._where.follows(ifindex)

    def locations(self) -> frozenset[tuple[int, int]]:
        """Where devices are that are in other namespaces: these' numbers, and the links' indices there."""
        found = (self._where.away(each) for each in list(self._held))
        return frozenset(each.place for each in found if each is not None and each.place is not None)

    def _found_home(self, view: View) -> dict[str, int]:
        """The links of devices that are held and on the host, by what is known of their ways, else by what they are."""
        found: dict[str, int] = {}
        for index in view.links:
            key = self._where.device_at(index)
            if isinstance(key, str) and key in self._held and self._fits(key, view.links[index]):
                found[key] = index
        for name, held in self._held.items():
            away = self._where.away(name)
            if name not in found and (away is None or away.place is None):
                free = (each for each in view.links.values() if each.ifindex not in found.values())
                same = next((each.ifindex for each in free if self._is_same(each, held)), None)
                found |= {name: same} if same is not None else {}
        return found

    def _fits(self, device: str, link: Link) -> bool:
        """An index is used again after its link went; a link of another kind is another link."""
        return link.kind == self._held[device].known.device.kind

    def _is_same(self, link: Link, held: _Held) -> bool:
        device = held.known.device
        if link.kind != device.kind:
            return False
        if device.shared:  # it never leaves; one that was made anew in its place is it
            return link.name == device.link
        if device.hardware.pci:
            hardware = self._host.hardware(link)
            return hardware.pci == device.hardware.pci and hardware.port == device.hardware.port
        return link.mac in held.macs

    def _held_devices(self, view: View, at_home: Mapping[str, int]) -> dict[str, Known]:
        """As they were; what stays on the host, and is shared, is told as it is."""
        found = {}
        for name, held in self._held.items():
            index = at_home.get(name)
            facts = view.facts.get(index) if index is not None else None
            if facts is not None and facts.parent is not None and held.known.device.shared:
                held.known = self._known_as(name, facts)
            device = structs.replace(held.known.device, ifindex=index or 0)
            found[name] = held.known = replace(held.known, device=device)
            if index is not None:
                self._where.at_home(name, index)
        return found

    def _free_devices(self, view: View, at_home: Mapping[str, int]) -> dict[str, Known]:
        free = {index: each for index, each in view.facts.items() if index not in at_home.values()}
        names = labels({index: (each.link.name, each.hardware) for index, each in free.items()}, self._held)
        found = {}
        for index, facts in free.items():
            name = names.get(index, "")
            why = self._filter.why_not(attributes(facts)) if name else "its name is that of another device"
            self._tell(name or facts.link.name, "", why, "link left out")
            if why:
                self._left_out[facts.link.name] = why
            else:
                found[name] = self._known_as(name, facts)
                self._home[name] = facts.link
                self._where.at_home(name, index)
        return found

    def _known_as(self, name: str, facts: Facts) -> Known:
        good, bad = published(attributes(facts))
        for attribute in attributes(facts):
            self._tell(name, attribute, bad.get(attribute, ""), "attribute left out")
        return Known(device=_device(name, facts), listed=entry(name, facts, good))

    def _search(self) -> None:
        """Those that pods have already, or that got out of sight: in every namespace that there is a number for."""
        lost = {each for each in self._held if each not in self._home and not self._where.deleted(each)}
        unseen = [each for each in lost if (away := self._where.away(each)) is None or away.place is None]
        if not self._sought.issuperset(unseen):
            held = {each: self._held[each] for each in unseen}
            wanted = {(mac, each.known.device.kind): name for name, each in held.items() for mac in each.macs if mac}
            for name, (netns, link) in self._host.distant.find(wanted).items():
                self._where.elsewhere(name, netns, link)
        self._sought = set(unseen)

    def _list(self, *, first: bool = False) -> None:
        """Make what is told of what is known, and say so if that is something new."""
        wall = self._clock.wall()
        conditions = {name: self._condition(name, each) for name, each in self._known.items()}
        health = self._judge.judge(conditions, self._clock.monotonic(), wall)
        for name, each in health.items():
            self._tell(name, "health", each.message, "device unhealthy", "device healthy")
        devices = tuple(self._entry(name, health[name]) for name in sorted(self._known))
        changed = (devices, health) != (self._devices, self._health)
        self._devices, self._health = devices, health
        if changed or first:
            self.subscribers.notify()

    def _entry(self, name: str, health: Health) -> Object:
        listed = self._known[name].listed
        return tainted(listed, health.taint, self.config.taint, health.since) if health.taint else listed

    def _condition(self, name: str, known: Known) -> Condition | None:
        link, where = self._home.get(name), self._where
        if link is None and where.deleted(name):
            return Condition(GONE, f"{known.device.link} was deleted", certain=True)
        away = where.away(name)
        if link is None and (away is None or away.place is None):
            return Condition(GONE, f"{known.device.link} is nowhere on this machine")
        seen = link or (away.link if away else None)
        # A bridge has carrier when one of its ports has; the first port may be the one that a claim is to get.
        why = no_carrier(seen) if seen is not None and seen.kind != "bridge" else ""
        return Condition(NO_CARRIER, why) if why else None

    def _tell(self, device: str, what: str, why: str, words: str, better: str = "") -> None:
        """In the log, once."""
        self._said.add((device, what))
        before = self._told.get((device, what), "")
        if before == why:
            return
        self._told[device, what] = why
        facts = {"device": device} | ({"attribute": what} if what not in ("", "health") else {})
        if why:
            _log.warning(words, extra=facts | {"why": why})
        elif better:
            _log.info(better, extra=facts)


def _device(name: str, facts: Facts) -> Device:
    link = facts.link
    own = {"tun": ("/dev/net/tun",), "macvtap": (f"/dev/tap{link.ifindex}",)}.get(link.kind, ())
    return Device(
        name=name,
        link=link.name,
        ifindex=link.ifindex,
        kind=link.kind,
        mac=link.mac,
        mtu=link.mtu,
        shared=facts.parent is not None,
        hardware=facts.hardware,
        parent_mtu=facts.parent_mtu,
        rdma=facts.rdma.name,
        character_devices=facts.rdma.character_devices + own,
    )


def _kept(name: str, device: Device, listed: Object | None) -> Known:
    return Known(device=structs.replace(device, ifindex=0), listed=listed or {"name": name, "attributes": {}})
