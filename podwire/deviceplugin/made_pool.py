"""Links made for pods: one that returns is deleted, and a new one is made in its place.

They are made before the kubelet knows them: a pod's network is set up before its containers' devices are allocated.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.deviceplugin.config import Make
from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.devices import Device, Handed
from podwire.deviceplugin.host_view import View, found_elsewhere
from podwire.deviceplugin.made_links import host_end, is_lent, is_ours, make_link, parent_trouble, remove_link
from podwire.deviceplugin.ports import Unusable
from podwire.deviceplugin.records import PoolRecords, Record
from podwire.linux.errors import LinuxError
from podwire.linux.net.borrow import snapshot_of
from podwire.linux.net.link_locations import LinkLocations
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded, no_carrier
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.sysfs import Sysfs
from podwire.linux.net.taps import DEVICE
from podwire.linux.values import Link

CNI_MARK = "podwire:"
"""Begins the alias of a link that a CNI plugin of ours has put into a pod, until DEL takes it away."""

_log = logging.getLogger("podwire.deviceplugin")


@dataclass(slots=True)
class _Known:
    link: Link | None = None
    """None while it is not on the host."""
    left: bool = False
    """It was elsewhere; it is not handed out again."""
    out: bool = False
    """Whether a pod has it, as far as is known."""
    explained: bool = True
    """Whether a pod may have it; False when it is absent and the kubelet reports no pod with it."""
    asked: bool = False
    """Whether the kubelet was asked for pods since it left."""
    trouble: str = ""
    lent: bool = False
    """The host's end of a veth says that the other end is in another namespace, also when the record is lost."""


class MadePool:
    def __init__(self, settings: Settings, source: Make, records: PoolRecords, sysfs: Sysfs, netlink: Netlink) -> None:
        self.settings = settings
        self._source, self._records, self._sysfs, self._netlink = source, records, sysfs, netlink
        self._recorded = records.read()
        self._where = LinkLocations()
        self._known = {f"{source.prefix}{number}": _Known() for number in range(source.count)}
        self._parent: Link | None = None
        self._searched = False

    def learn(self, events: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        self._where.learn(events)
        if lost:
            self._where.doubt()
            self._searched = False

    def look(self, view: View, held: Collection[str] | None) -> None:
        self._where.present(view.links)
        self._parent = view.named(self._source.parent)
        named = {link.name: link for link in view.links.values()}
        followed = {self._where.device_at(index): link for index, link in view.links.items()}
        for name, known in self._known.items():
            known.lent = is_lent(named.get(host_end(name)), self.settings.name)
            self._find(name, known, view, followed.get(name), named.get(name))
        self._search()
        for name, known in self._known.items():
            if held is not None:
                known.out = name in held
            self._tend(name, known)
        self._records.write(self._recorded)

    def _find(self, name: str, each: _Known, view: View, found: Link | None, named: Link | None) -> None:
        away = self._where.away(name)
        if found is None and named is not None and (away is None or away.place is None):
            if not is_ours(named, self.settings.name, view):
                each.link, each.trouble = None, f"a link {name} exists that this pool did not make"
                return
            found = named
        each.trouble = ""
        if found is not None:
            each.link, each.left = found, each.left or away is not None  # it left and returned since the last look
            self._where.at_home(name, found.ifindex)
        elif each.link is not None:
            each.link, each.left, each.explained, each.asked = None, True, True, False

    def _search(self) -> None:
        """Searches once for links that pods had before the plugin started."""
        missing = [name for name, known in self._known.items() if known.link is None and name in self._recorded]
        if not self._searched and missing:
            wanted = {name: self._recorded[name].snapshot for name in missing}
            for name, (netns, link) in found_elsewhere(self._netlink, wanted).items():
                self._where.elsewhere(name, netns, link)
                self._known[name].left = True
        self._searched = True

    def _tend(self, name: str, each: _Known) -> None:
        """Makes links that are missing and that no pod has; deletes and makes again those that returned."""
        away = self._where.away(name)
        if each.trouble or (each.link is not None and not each.left):
            return
        if each.link is not None and each.out and each.link.alias.startswith(CNI_MARK):
            return  # CNI DEL has not finished
        elsewhere = each.link is None and (each.lent or (away is not None and away.place is not None))
        if elsewhere or (each.link is None and (each.out or (each.explained and name in self._recorded))):
            return
        if parent_trouble(self._source, self._parent) or self._parent is None:
            return
        try:
            if each.link is not None:
                remove_link(self._netlink, each.link.ifindex)
                each.link = None
            self._where.forget(name)
            each.link = make_link(self._netlink, self._source, name, self.settings.name, self._parent)
        except LinuxError as error:
            each.trouble = str(error)
            _log.error(
                "cannot make link for pool", extra={"pool": self.settings.name, "link": name, "error": str(error)}
            )
            return
        each.left, each.explained = False, True
        self._recorded[name] = Record(snapshot_of(each.link, ()))
        self._where.at_home(name, each.link.ifindex)

    def asked(self) -> None:
        for known in self._known.values():
            known.asked = True

    def confirm(self, held: Collection[str]) -> None:
        for name, known in self._known.items():
            if known.asked:
                known.explained = name in held or known.link is not None

    def devices(self) -> tuple[Device, ...]:
        numa = self._sysfs.hardware(self._source.parent).numa
        trouble = parent_trouble(self._source, self._parent)
        return tuple(Device(name, trouble or self._why(name, known), numa) for name, known in self._known.items())

    def _why(self, name: str, each: _Known) -> str:
        if each.trouble:
            return each.trouble
        if each.link is not None:
            return ""
        if self._where.deleted(name):
            return f"{name} was deleted"
        away = self._where.away(name)
        if each.lent and each.explained and away is None:
            return ""
        if away is None or not each.explained:
            return f"{name} is not on this host, and no pod has it"
        return no_carrier(away.link) if away.link is not None and self._source.kind == "macvlan" else ""

    def hand(self, ids: Sequence[str]) -> tuple[Handed, ...]:
        trouble = parent_trouble(self._source, self._parent)
        for name in ids:
            if name not in self._known:
                raise Unusable(f"{name}: is not a device of the pool {self.settings.name}")
            if why := trouble or self._why(name, self._known[name]):
                raise Unusable(f"{name}: {why}")
        for name in ids:
            self._known[name].out = True
        return tuple(self._handed(name) for name in ids)

    def described(self, device: str) -> Handed | None:
        return self._handed(device) if device in self._known else None

    def waits(self) -> bool:
        return any(known.out or known.left or known.link is None for known in self._known.values())

    def close(self) -> None:
        """Deletes the links that no pod has."""
        for name, known in self._known.items():
            if known.link is not None and not known.out:
                remove_link(self._netlink, known.link.ifindex)
                self._recorded.pop(name, None)
        self._records.write(self._recorded)

    def _handed(self, name: str) -> Handed:
        link = self._known[name].link
        info: dict[str, Any] = {"id": name, "name": name, "kind": self._source.kind, "parent": self._source.parent}
        info |= {"mac": link.mac, "mtu": link.mtu} if link is not None else {}
        files = (DEVICE,) if self._source.kind == "tap" else ()
        return Handed(value=name, info=info, files=files, link=name, on_host=link is not None)
