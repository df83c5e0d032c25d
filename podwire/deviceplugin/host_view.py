"""The links of the host as one look finds them, and those that went elsewhere."""

from collections.abc import Mapping
from typing import NamedTuple

from podwire.deviceplugin.snapshots import Snapshot
from podwire.linux.net.link_moves import RemoteLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.snapshot_addresses import SavedAddress, SavedAddresses
from podwire.linux.net.sysfs import Hardware, Sysfs
from podwire.linux.values import Link


class View(NamedTuple):
    links: Mapping[int, Link]
    addresses: Mapping[int, tuple[SavedAddress, ...]]
    uplinks: frozenset[int]
    """Those that a default route goes through."""
    hardware: Mapping[int, Hardware] = {}
    """What each link is; empty where no pool asks for it."""

    def named(self, name: str) -> Link | None:
        return next((each for each in self.links.values() if each.name == name), None)


class Looker:
    """Takes looks, one after the other. What a link is made of is read once for each."""

    def __init__(self, netlink: Netlink, sysfs: Sysfs | None) -> None:
        """Without `sysfs` nobody asks for hardware."""
        self._netlink, self._sysfs = netlink, sysfs
        self._known: dict[tuple[int, str], Hardware] = {}

    def look(self) -> View:
        """Raises LinuxError."""
        view = looked(self._netlink)
        return view._replace(hardware=self._hardware(self._sysfs, view.links)) if self._sysfs else view

    def _hardware(self, sysfs: Sysfs, links: Mapping[int, Link]) -> dict[int, Hardware]:
        """A link without any may be one whose hardware is not shown yet, and is asked for again."""
        before, self._known = self._known, {}
        found = {}
        for index, link in links.items():
            found[index] = before.get((index, link.name)) or sysfs.hardware(link.name)
            if found[index].pci:
                self._known[index, link.name] = found[index]
        return found


def looked(netlink: Netlink) -> View:
    links = {each.ifindex: each for each in KernelLinks(netlink).list()}
    routes = [each for family in (4, 6) for each in KernelRoutes(netlink).list(family)]
    uplinks = frozenset(each.ifindex for each in routes if not each.destination.prefixlen and each.ifindex)
    return View(links, SavedAddresses(netlink).list(), uplinks)


def found_elsewhere(netlink: Netlink, wanted: Mapping[str, Snapshot]) -> dict[str, tuple[int, Link]]:
    """Those of the wanted that are in other namespaces, by kind and MAC address: a pod calls them what it likes."""
    keys = {(each.mac, each.kind): key for key, each in wanted.items() if each.mac}
    return {str(key): found for key, found in RemoteLinks(netlink).find(keys).items()}
