"""A view of the host's links, and the search for links in other namespaces."""

from collections.abc import Mapping
from typing import NamedTuple

from podwire.linux.net.borrow import LinkSnapshot
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
    """Links of default routes."""
    hardware: Mapping[int, Hardware] = {}
    """Hardware by link; empty if no pool needs it."""

    def named(self, name: str) -> Link | None:
        return next((link for link in self.links.values() if link.name == name), None)


class Looker:
    """Takes views, one after the other; the hardware of each link is read once."""

    def __init__(self, netlink: Netlink, sysfs: Sysfs | None) -> None:
        """Without `sysfs` no pool needs hardware."""
        self._netlink, self._sysfs = netlink, sysfs
        self._known: dict[tuple[int, str], Hardware] = {}

    def look(self) -> View:
        """Raises LinuxError."""
        view = looked(self._netlink)
        if self._sysfs is None:
            return view
        before, self._known = self._known, {}
        hardware = {}
        for index, link in view.links.items():
            hardware[index] = before.get((index, link.name)) or self._sysfs.hardware(link.name)
            if hardware[index].pci:  # links without hardware are read again: sysfs may show it later
                self._known[index, link.name] = hardware[index]
        return view._replace(hardware=hardware)


def looked(netlink: Netlink) -> View:
    links = {link.ifindex: link for link in KernelLinks(netlink).list()}
    routes = [route for family in (4, 6) for route in KernelRoutes(netlink).list(family)]
    uplinks = frozenset(route.ifindex for route in routes if not route.destination.prefixlen and route.ifindex)
    return View(links, SavedAddresses(netlink).list(), uplinks)


def found_elsewhere(netlink: Netlink, wanted: Mapping[str, LinkSnapshot]) -> dict[str, tuple[int, Link]]:
    """Finds links in other namespaces by kind and MAC address: pods may rename them."""
    keys = {(snapshot.mac, snapshot.kind): key for key, snapshot in wanted.items() if snapshot.mac}
    return {str(key): found for key, found in RemoteLinks(netlink).find(keys).items()}
