"""The devices of a node: links of the host, links that pods have, and their health.

A device that a claim holds stays in the inventory as it was, wherever its link is. Looks are synchronous, one at a
time; their results can be read from any thread.

A look is not atomic: links move between namespaces while their listing, their files in sysfs and their netlink events
are read. A device has the same name in every look all the same, because a link that these three disagree about is not
named anew:

| the listing has a link | and | then it is |
|---|---|---|
| with the PCI device of a held device | events still say that it is in a pod | the held device |
| with the MAC address of a held virtual device | the same, and it has just appeared | left out for this look |
| that was a device of hardware | sysfs does not show it | the same device, as it was |
| that is new | sysfs does not show it, and shows others | left out, up to `patience` |

The last three are looked at again soon.
"""

import logging
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from podwire.dradriver.claims.allocations import Device
from podwire.dradriver.inventory.config import Config, Shared
from podwire.dradriver.inventory.devices import GONE, NO_CARRIER, Facts, attributes, entry, published, tainted
from podwire.dradriver.inventory.filter import Filter
from podwire.dradriver.inventory.health import Condition, Health, HealthTracker
from podwire.dradriver.inventory.host_view import Host, View
from podwire.dradriver.inventory.selection import is_never_offered, labels
from podwire.dradriver.inventory.subscribers import Subscribers
from podwire.interfaces import Clock
from podwire.linux.net.link_locations import LinkLocations
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded, no_carrier
from podwire.linux.net.sysfs import Hardware, Sysfs
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A device, and its entry in the ResourceSlice without taints."""

    device: Device
    listed: Object


@dataclass(slots=True)
class _Held:
    known: Known
    macs: set[str]
    """MAC addresses that its link may have: a claim can set another one."""
    holders: set[str] = field(default_factory=set)


class Inventory:
    """Opened in the network namespace of the links: the calling thread's, or that at a path."""

    def __init__(
        self, *, sysfs: Sysfs, clock: Clock, config: Config | None = None, netns: str | Path | None = None
    ) -> None:
        """Raises BadConfig for an invalid filter; LinuxError."""
        self.config, self.netns, self._clock = config or Config(), netns, clock
        self._filter = Filter(self.config.filter)
        self._health_tracker = HealthTracker(self.config.patience)
        self._host = Host(sysfs, netns)
        self._lock = threading.RLock()
        self._locations = LinkLocations()
        self._known: dict[str, Known] = {}
        self._held: dict[str, _Held] = {}
        self._on_host: dict[str, Link] = {}
        self._never_offered: frozenset[int] = frozenset()
        self._health: Mapping[str, Health] = {}
        self._devices: tuple[Object, ...] = ()
        self._left_out: dict[str, str] = {}
        self._logged: dict[tuple[str, str], str] = {}
        self._searched: set[str] = set()
        """Devices that were searched in all namespaces and not found."""
        self._mentioned: set[tuple[str, str]] = set()
        self._unclear: dict[int, float] = {}
        """Links of the host that sysfs does not show, by index, and since when."""
        self._looked = False
        self.subscribers = Subscribers()

    def close(self) -> None:
        with self._lock:
            self._host.close()

    def find(self, device: str) -> Device | None:
        """Returns a device, also while it is in a pod; None if it does not exist."""
        known = self._known.get(device)
        return known.device if known is not None else None

    def listed(self, device: str) -> Object | None:
        """Returns the slice entry of a device without taints; stored by the caller, for `hold` after a restart."""
        known = self._known.get(device)
        return known.listed if known is not None else None

    @property
    def looked(self) -> bool:
        """Whether there was a look yet: before that the devices are not known."""
        return self._looked

    def devices(self) -> tuple[Object, ...]:
        """Returns the slice entries of all devices, sorted."""
        return self._devices

    def left_out(self) -> Mapping[str, str]:
        """Returns the host's links that are not devices, with the reasons."""
        return self._left_out

    def health(self) -> Mapping[str, Health]:
        return self._health

    def hold(
        self, name: str, by: str, *, device: Device | None = None, listed: Object | None = None, mac: str = ""
    ) -> None:
        """Keeps a device in the inventory as it is now, or as it was recorded (`device`, `listed`); per holder.

        `mac` is the MAC address in the pod, if it is another one. Raises LookupError for a device that does not exist
        and was not recorded.
        """
        with self._lock:
            held = self._held.get(name)
            if held is None:
                known = self._known.get(name)
                if device is not None:
                    known = Known(device=structs.replace(device, ifindex=0), listed=listed or _listed_from(device))
                if known is None:
                    raise LookupError(name)
                held = self._held[name] = _Held(known, {known.device.mac})
                self._known[name] = known
            held.holders.add(by)
            held.macs |= {mac} if mac else set()
            if self._looked:
                self._list()

    def release(self, device: str, by: str) -> None:
        """Ends a hold. After the last one the device is what its link is, so a look is requested."""
        with self._lock:
            held = self._held.get(device)
            if held is None:
                return
            held.holders.discard(by)
            if not held.holders:
                del self._held[device]
        self.subscribers.stale()

    def look(self, events: Sequence[LinkEvent | NamespaceEnded] = (), *, lost: bool = False) -> float | None:
        """Reads the host. Returns after how many seconds to look again, if nothing happens. Raises LinuxError.

        `events` came since the last look; `lost` means that there were more.
        """
        with self._lock:
            self._mentioned = set()
            self._locations.learn(events)
            if lost:
                self._locations.doubt()
                self._searched = set()
            view = self._host.look(self.config)
            self._locations.present(view.links)
            self._never_offered = frozenset(index for index, link in view.links.items() if is_never_offered(link))
            moving = self._still_unclear(view.unclear)
            on_host = self._find_held(view, moving)
            self._on_host = {name: view.links[index] for name, index in on_host.items()}
            self._left_out = dict(view.left_out)
            before = self._known
            self._known = self._held_devices(view, on_host) | self._free_devices(view, on_host, moving)
            self._search()
            for name in before.keys() - self._known.keys():
                self._locations.forget(name)
            first, self._looked = not self._looked, True
            self._list(first=first)
            self._logged = {key: why for key, why in self._logged.items() if key in self._mentioned}
            return 0.0 if moving else self._health_tracker.waits(self._clock.monotonic())

    def changes(self) -> AsyncIterator[None]:
        """`async for _ in inventory.changes()`: at once, and whenever devices or their health change."""
        return self.subscribers.changes()

    def concerns(self, ifindex: int) -> bool:
        """Whether a link of the host can become a device."""
        return ifindex not in self._never_offered

    def is_device(self, ifindex: int) -> bool:
        """Whether a link of the host is a device, or was one a moment ago."""
        return self._locations.follows(ifindex)

    def locations(self) -> frozenset[tuple[int, int]]:
        """Returns the locations of devices in other namespaces: namespace id and index there."""
        found = (self._locations.away(name) for name in list(self._held))
        return frozenset(location.place for location in found if location is not None and location.place is not None)

    def _still_unclear(self, unclear: Collection[int]) -> set[int]:
        """Returns the links whose hardware may still become known; those that wait for longer than the patience have
        none."""
        now = self._clock.monotonic()
        self._unclear = {index: self._unclear.get(index, now) for index in unclear}
        return {index for index, since in self._unclear.items() if now - since < self.config.patience}

    def _find_held(self, view: View, moving: set[int]) -> dict[str, int]:
        """Finds the links of held devices on the host, by their followed moves, else by their identity.

        Adds links to `moving` that may be held devices whose events were not read yet.
        """
        on_host: dict[str, int] = {}
        for index, link in view.links.items():
            key = self._locations.device_at(index)
            held = self._held.get(key) if isinstance(key, str) else None
            # An index is reused after its link is gone; a link of another kind is another link.
            if held is not None and link.kind == held.known.device.kind:
                on_host[str(key)] = index
        for name, held in self._held.items():
            if name in on_host:
                continue
            free = (link for link in view.links.values() if link.ifindex not in on_host.values())
            same = [link for link in free if self._is_same(link, held) and not self._is_another(link.ifindex, name)]
            same.sort(key=lambda link: link.mac not in held.macs)
            away = self._locations.away(name)
            if same and (held.known.device.hardware.pci or away is None or away.place is None):
                on_host[name] = same[0].ifindex
            else:
                moving |= {link.ifindex for link in same if self._locations.is_newcomer(link.ifindex)}
        return on_host

    def _is_another(self, ifindex: int, name: str) -> bool:
        """Whether a link of the host is known to be another device: ports and representors of a card share its PCI
        address."""
        key = self._locations.device_at(ifindex)
        return key is not None and key != name and key in self._known

    def _is_same(self, link: Link, held: _Held) -> bool:
        device = held.known.device
        if link.kind != device.kind:
            return False
        if device.shared:  # it never leaves the host; one of the same name replaces it
            return link.name == device.link
        hardware = self._host.hardware(link) if device.hardware.pci else Hardware()
        if hardware.pci:
            return hardware.pci == device.hardware.pci and hardware.port == device.hardware.port
        return link.mac in held.macs

    def _held_devices(self, view: View, on_host: Mapping[str, int]) -> dict[str, Known]:
        """Held devices stay as they were; shared ones, which stay on the host, are updated."""
        found = {}
        for name, held in self._held.items():
            index = on_host.get(name)
            facts = view.facts.get(index) if index is not None else None
            if facts is not None and facts.parent is not None and held.known.device.shared:
                held.known = self._known_as(name, facts)
            device = structs.replace(held.known.device, ifindex=index or 0)
            found[name] = held.known = replace(held.known, device=device)
            if index is not None:
                self._locations.at_home(name, index)
        return found

    def _free_devices(self, view: View, on_host: Mapping[str, int], moving: set[int]) -> dict[str, Known]:
        found = {}
        for index in moving:
            name = self._locations.device_at(index)
            if isinstance(name, str) and name in self._known and name not in self._held and index in view.facts:
                found[name] = self._known[name]
                self._on_host[name] = view.links[index]
        free = {index: fact for index, fact in view.facts.items() if index not in {*on_host.values(), *moving}}
        names = labels(
            {index: (facts.link.name, facts.hardware) for index, facts in free.items()}, {*self._held, *found}
        )
        for index, facts in free.items():
            name = names.get(index, "")
            why = self._filter.why_not(attributes(facts)) if name else "another device has its name"
            self._log_once(name or facts.link.name, "", why, "left out link of the host")
            if why:
                self._left_out[facts.link.name] = why
            else:
                found[name] = self._known_as(name, facts)
                self._on_host[name] = facts.link
                self._locations.at_home(name, index)
        return found

    def _known_as(self, name: str, facts: Facts) -> Known:
        good, bad = published(attributes(facts))
        for attribute in attributes(facts):
            self._log_once(name, attribute, bad.get(attribute, ""), "left out attribute of device")
        return Known(device=_device(name, facts), listed=entry(name, facts, good))

    def _search(self) -> None:
        """Searches devices that are not on the host in all namespaces with an id."""
        lost = {name for name in self._held if name not in self._on_host and not self._locations.deleted(name)}
        unseen = [name for name in lost if (away := self._locations.away(name)) is None or away.place is None]
        if not self._searched.issuperset(unseen):
            held = {name: self._held[name] for name in unseen}
            wanted = {(mac, entry.known.device.kind): name for name, entry in held.items() for mac in entry.macs if mac}
            for name, (netns, link) in self._host.distant.find(wanted).items():
                self._locations.elsewhere(name, netns, link)
        self._searched = set(unseen)

    def _list(self, *, first: bool = False) -> None:
        """Updates the published devices and their health, and notifies subscribers of changes."""
        wall = self._clock.wall()
        conditions = {name: self._condition(name, known) for name, known in self._known.items()}
        health = self._health_tracker.update(conditions, self._clock.monotonic(), wall)
        for name, state in health.items():
            self._log_once(name, "health", state.message, "device became unhealthy", "device became healthy")
        devices = tuple(
            tainted(known.listed, taint, self.config.taint, health[name].since)
            if (taint := health[name].taint)
            else known.listed
            for name, known in sorted(self._known.items())
        )
        changed = (devices, health) != (self._devices, self._health)
        self._devices, self._health = devices, health
        if changed or first:
            self.subscribers.notify()

    def _condition(self, name: str, known: Known) -> Condition | None:
        link, where = self._on_host.get(name), self._locations
        if link is None and where.deleted(name):
            return Condition(GONE, f"{known.device.link} was deleted", certain=True)
        away = where.away(name)
        if link is None and (away is None or away.place is None):
            return Condition(GONE, f"{known.device.link} was not found on this machine")
        seen = link or (away.link if away else None)
        # A bridge has carrier when one of its ports has; the first port may be a claim's.
        why = no_carrier(seen) if seen is not None and seen.kind != "bridge" else ""
        return Condition(NO_CARRIER, why) if why else None

    def _log_once(self, device: str, what: str, error: str, message: str, recovered: str = "") -> None:
        """Logs a problem once, and its end."""
        self._mentioned.add((device, what))
        before = self._logged.get((device, what), "")
        if before == error:
            return
        self._logged[device, what] = error
        facts = {"device": device} | ({"attribute": what} if what not in ("", "health") else {})
        if error:
            _log.warning(message, extra=facts | {"error": error})
        elif recovered:
            _log.info(recovered, extra=facts)


def _listed_from(device: Device) -> Object:
    """The slice entry of a device whose published entry was lost, as far as its record tells."""
    link = Link(0, device.link, device.kind, device.mac, device.mtu, up=True, state="up")
    facts = Facts(link=link, hardware=device.hardware, place=device.hardware, parent_mtu=device.parent_mtu)
    if device.shared:
        facts = facts._replace(parent=Shared(interface=device.link))
    return entry(device.name, facts, published(attributes(facts))[0])


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
