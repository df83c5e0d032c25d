"""Links of the host: recorded before a pod can have them, restored whenever they return.

A link that is on the host again after it was elsewhere no longer belongs to its holder, whatever the kubelet still
reports: CNI DEL or the end of the pod's namespace returned it. So it is restored at once, before another pod gets it.
"""

import logging
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from podwire.deviceplugin.config import Interfaces
from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.devices import Device, Handed
from podwire.deviceplugin.host_view import View, found_elsewhere
from podwire.deviceplugin.ports import Unusable
from podwire.deviceplugin.records import PoolRecords, Record
from podwire.deviceplugin.selection import Candidate, ids, reserved, wants
from podwire.failpoints import declare, failpoint
from podwire.linux.errors import LinuxError, NoSuchLink
from podwire.linux.net.borrow import LinkSnapshot, rename_back, restore_link, snapshot_of, was_moved
from podwire.linux.net.link_locations import LinkLocations
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded, no_carrier
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.snapshot_addresses import SavedAddresses
from podwire.linux.net.sysfs import Hardware
from podwire.linux.values import Link


class Action(Enum):
    NOTHING = auto()
    MARK_OUT = auto()
    """Record that a pod has it."""
    RESTORE = auto()
    ADOPT = auto()
    """An administrator changed it on the host: record it as it is now, if no pod turns out to have it."""


def decide(record: Record, now: LinkSnapshot | None, *, left: bool, fresh: bool, held: bool | None) -> Action:
    """`now` is None while it is not on the host; `held` is None while no kubelet has answered.

    left: it was elsewhere since it was restored last; fresh: this is the first look since the plugin started.
    """
    if now is None:
        return Action.NOTHING if record.out else Action.MARK_OUT
    if left:
        return Action.RESTORE
    if held or held is None:
        return Action.MARK_OUT if held and not record.out else Action.NOTHING
    if record.out or (fresh and was_moved(record.snapshot, now)):
        return Action.RESTORE
    return Action.ADOPT if now != record.snapshot else Action.NOTHING


RECORDED = declare("device-plugin.recorded", "a device is recorded, and the kubelet does not know it yet")
OUT = declare("device-plugin.out", "a device is recorded as out, and Allocate is not answered yet")
RESTORED = declare("device-plugin.restored", "a device is restored, and recorded as out")

_log = logging.getLogger("podwire.deviceplugin")
_CDI_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_MOST_ID = 63


@dataclass(slots=True)
class _Known:
    """A device and its state."""

    record: Record
    hardware: Hardware
    link: Link | None = None
    """None while it is not on the host."""
    left: bool = False
    """It was elsewhere since it was restored last."""
    fresh: bool = True
    """It was not seen since the plugin started."""
    pending: LinkSnapshot | None = None
    """How an administrator changed it on the host; adopted if no pod has it."""
    explained: bool = True
    """Whether a pod may have it; False when it is absent and the kubelet reports no pod with it."""
    asked: bool = False
    """Whether the kubelet was asked for pods since it left or was changed."""
    trouble: str = ""


class InterfacePool:
    def __init__(
        self,
        settings: Settings,
        source: Interfaces,
        records: PoolRecords,
        host: NamespaceHandle,
        owner_of: Callable[[int, str], str],
    ) -> None:
        """`owner_of` claims a link for a pool; returns the pool that has it."""
        self.settings = settings
        self._source, self._records, self._host = source, records, host
        self._owner_of = owner_of
        self._where = LinkLocations()
        self._known = {key: _Known(record, Hardware()) for key, record in records.read().items()}
        self._left_out: dict[str, str] = {}
        self._searched = self._dropped = False

    def learn(self, events: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        self._where.learn(events)
        if lost:
            self._where.doubt()
            self._searched = False

    def look(self, view: View, held: Collection[str] | None) -> None:
        self._where.present(view.links)
        candidates = {index: Candidate(link, view.hardware[index]) for index, link in view.links.items()}
        self._find(candidates, view)
        self._discover(candidates, view)
        self._search()
        self._write()
        failpoint(RECORDED)
        for key, known in self._known.items():
            self._tend(key, known, view, held)
        self._write()

    def _find(self, candidates: dict[int, Candidate], view: View) -> None:
        """Updates the links of known devices."""
        links = self._links(candidates)
        for key, known in self._known.items():
            found = links.get(key)
            if found is None:
                if known.link is not None:
                    known.explained, known.asked = True, False
                known.link, known.left, known.pending = None, True, None
                continue
            if self._where.deleted(key):  # another link took its place
                snapshot = snapshot_of(found.link, view.addresses.get(found.link.ifindex, ()))
                known.record, known.left, known.trouble = Record(snapshot, known.record.out), False, ""
            elif self._where.away(key) is not None:  # it left and returned since the last look
                known.left, known.pending = True, None
            known.link, known.hardware = found.link, found.hardware
            self._where.at_home(key, found.link.ifindex)
            self._owner_of(found.link.ifindex, self.settings.name)

    def _links(self, candidates: dict[int, Candidate]) -> dict[str, Candidate]:
        """Returns the link of each device that is on the host: the followed one, or that of its hardware or name."""
        followed = {self._where.device_at(index): one for index, one in candidates.items()}
        strangers = [one for index, one in candidates.items() if self._where.device_at(index) is None]
        by_address = {one.hardware.pci: one for one in strangers if one.hardware.pci}
        by_name = {(one.link.name, one.link.kind): one for one in strangers if not one.hardware.pci}
        found: dict[str, Candidate] = {}
        for key, known in self._known.items():
            away = self._where.away(key)
            one = followed.get(key) or by_address.get(key)
            if one is None and (away is None or away.place is None):
                one = by_name.get((known.record.snapshot.name, known.record.snapshot.kind))
            if one is not None:
                found[key] = one
        return found

    def _discover(self, candidates: dict[int, Candidate], view: View) -> None:
        wanted = {index: candidate for index, candidate in candidates.items() if wants(self._source, candidate)}
        # A card that returns from a pod is listed before its event is read, and sysfs may not show its hardware yet: it
        # is not another device.
        away = {
            (known.record.snapshot.name, known.record.snapshot.kind)
            for known in self._known.values()
            if known.link is None
        }
        for index, key in ids(wanted).items():
            one = wanted[index]
            returns = (one.link.name, one.link.kind) in away
            if self._where.device_at(index) is not None or key in self._known or returns:
                continue
            why = reserved(one.link, view.uplinks) or self._unfit(index, key)
            if why:
                if self._left_out.get(one.link.name) != why:
                    self._left_out[one.link.name] = why
                    facts = {"pool": self.settings.name, "link": one.link.name, "error": why}
                    _log.warning("left out link of pool", extra=facts)
                continue
            snapshot = snapshot_of(one.link, view.addresses.get(index, ()))
            self._known[key] = _Known(Record(snapshot), one.hardware, one.link, fresh=False)
            self._where.at_home(key, index)
            _log.info("found device for pool", extra={"pool": self.settings.name, "device": key, "link": one.link.name})

    def _unfit(self, index: int, key: str) -> str:
        if len(key) > _MOST_ID or (self.settings.cdi and not _CDI_NAME.fullmatch(key)):
            return f"{key!r} is not a valid device id"
        owner = self._owner_of(index, self.settings.name)
        return "" if owner == self.settings.name else f"it belongs to the pool {owner}"

    def _search(self) -> None:
        """Searches once for devices that were out before the plugin started."""
        missing = {key: known.record.snapshot for key, known in self._known.items() if known.link is None}
        if not self._searched and missing:
            for key, (netns, link) in found_elsewhere(self._host.netlink, missing).items():
                self._where.elsewhere(key, netns, link)
        self._searched = True

    def _tend(self, key: str, each: _Known, view: View, held: Collection[str] | None) -> None:
        now = each.link and snapshot_of(each.link, view.addresses.get(each.link.ifindex, ()))
        action = decide(each.record, now, left=each.left, fresh=each.fresh, held=None if held is None else key in held)
        each.fresh = each.fresh and (now is None or held is None)
        match action:
            case Action.RESTORE:
                self._restore(key, each, held)
            case Action.MARK_OUT:
                each.record = each.record._replace(out=True)
            case Action.ADOPT:
                each.asked = each.asked and each.pending == now
                each.pending = now
            case Action.NOTHING:
                each.pending = None

    def _restore(self, key: str, each: _Known, held: Collection[str] | None) -> None:
        if each.link is None:
            return
        try:
            changed = self._restore_link(each.link.ifindex, each.record.snapshot)
            failpoint(RESTORED)
        except NoSuchLink:  # it left again; an event will come
            return
        except LinuxError as error:
            each.trouble = str(error)
            each.left = True
            _log.error("cannot restore device", extra={"pool": self.settings.name, "device": key, "error": str(error)})
            return
        each.left, each.trouble = False, ""
        each.link = each.link._replace(name=each.record.snapshot.name)
        each.record = each.record._replace(out=held is None or key in held)
        if changed:
            _log.info("restored device on the host", extra={"pool": self.settings.name, "device": key})

    def _restore_link(self, index: int, wanted: LinkSnapshot) -> bool:
        """Returns whether something had to be restored. Raises LinkExists when another link has its name."""
        addresses = SavedAddresses(self._host.netlink).list().get(index, ())
        if snapshot_of(self._host.links.get(index), addresses) == wanted:
            return False
        rename_back(self._host, index, wanted)
        restore_link(self._host, index, wanted)
        return True

    def asked(self) -> None:
        for known in self._known.values():
            known.asked = True

    def confirm(self, held: Collection[str]) -> None:
        self._drop_lost(held)
        for key, known in self._known.items():
            if not known.asked:
                continue
            known.explained = key in held or known.link is not None
            if key not in held and known.pending is not None and not known.record.out:
                known.record = Record(known.pending)
            known.pending = None
        self._write()

    def _drop_lost(self, held: Collection[str]) -> None:
        """Drops, once, recorded devices that do not exist: they went while the plugin was not running."""
        if self._dropped or not self._searched:
            return
        self._dropped = True
        for key in [name for name, known in self._known.items() if known.fresh and known.link is None]:
            if key not in held and self._where.away(key) is None:
                del self._known[key]
                _log.warning("dropped device that no longer exists", extra={"pool": self.settings.name, "device": key})

    def devices(self) -> tuple[Device, ...]:
        return tuple(
            Device(key, self._why(key, known), known.hardware.numa) for key, known in sorted(self._known.items())
        )

    def _why(self, key: str, each: _Known) -> str:
        name = each.record.snapshot.name
        if each.trouble:
            return each.trouble
        if each.link is not None:
            return no_carrier(each.link) if self._source.carrier else ""
        if self._where.deleted(key):
            return f"{name} was deleted"
        if not each.explained:
            return f"{name} is not on this host, and no pod has it"
        away = self._where.away(key)
        if away is not None and away.link is not None and self._source.carrier:
            return no_carrier(away.link)
        return ""

    def hand(self, ids: Sequence[str]) -> tuple[Handed, ...]:
        for key in ids:
            if key not in self._known:
                raise Unusable(f"{key}: is not a device of the pool {self.settings.name}")
            if why := self._why(key, self._known[key]):
                raise Unusable(f"{key}: {why}")
        for key in ids:
            self._known[key].record = self._known[key].record._replace(out=True)
            self._known[key].pending = None
        self._records.mark_out({key: self._known[key].record for key in ids})
        failpoint(OUT)
        return tuple(self._handed(key, self._known[key]) for key in ids)

    def described(self, device: str) -> Handed | None:
        each = self._known.get(device)
        return None if each is None else self._handed(device, each)

    def waits(self) -> bool:
        return any(known.record.out or known.left or known.pending is not None for known in self._known.values())

    def close(self) -> None:
        """Nothing to remove: its links are the host's."""

    def _handed(self, key: str, each: _Known) -> Handed:
        was, hardware = each.record.snapshot, each.hardware
        info = {"id": key, "name": was.name, "mac": was.mac, "mtu": was.attributes.mtu}
        info |= {"pciAddress": hardware.pci} if hardware.pci else {}
        info |= {} if hardware.numa is None else {"numaNode": hardware.numa}
        return Handed(value=key, info=info, link=was.name, on_host=each.link is not None)

    def _write(self) -> None:
        self._records.write({key: known.record for key, known in self._known.items()})
