"""One look at the host: its links, and all that is known of those that can be offered. Synchronous."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwire.dradriver.inventory.config import Config
from podwire.dradriver.inventory.devices import Facts, Programs
from podwire.dradriver.inventory.selection import Choice, chosen
from podwire.dradriver.inventory.uplinks import below
from podwire.linux.net import ebpf
from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.link_moves import RemoteLinks
from podwire.linux.net.link_speeds import Speeds
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.sysfs import Hardware, Sysfs
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Interface, Link

_DEEPEST = 8
"""Links made on links made on links …"""


class View(NamedTuple):
    links: Mapping[int, Link]
    facts: Mapping[int, Facts]
    """Of those that can be offered."""
    left_out: Mapping[str, str]
    """The others by name, and why."""
    unclear: frozenset[int] = frozenset()
    """Of those that can be offered, the links that sysfs does not show although it shows others of this namespace: they
    came, left or were renamed between the two readings, so their hardware is not known."""


class Host:
    """A network namespace that is looked at, open until it is closed: the calling thread's own, or that at a path."""

    def __init__(self, sysfs: Sysfs, netns: str | Path | None = None) -> None:
        self._sysfs, self._netns = sysfs, netns
        self._hardware: dict[Link, Hardware | None] = {}
        """Links as sysfs shows them, read once in each look; None for a link that it does not show."""
        with contextlib.ExitStack() as undo:
            self._netlink = Netlink(netns)
            undo.callback(self._netlink.close)
            self._speeds = Speeds(netns)
            undo.pop_all()
        self.distant = RemoteLinks(self._netlink)

    def close(self) -> None:
        self._netlink.close()
        self._speeds.close()

    def look(self, config: Config) -> View:
        """Raises LinuxError."""
        self._hardware = {}
        links = {link.ifindex: link for link in KernelLinks(self._netlink).list()}
        routes = [route for family in (4, 6) for route in KernelRoutes(self._netlink).list(family)]
        choices, left_out = chosen(links, routes, config)
        addresses: dict[int, tuple[Interface, ...]] = {}
        for address in KernelAddresses(self._netlink).list() if choices else ():
            addresses[address.ifindex] = (*addresses.get(address.ifindex, ()), address.interface)
        programs = self._programs(choices)
        facts = {
            index: self._facts(choice, links, addresses.get(index, ()))._replace(programs=programs[index])
            for index, choice in choices.items()
        }
        unknown = frozenset(index for index, choice in choices.items() if self._shown(choice.link) is None)
        shown = (link for index, link in links.items() if link.name != "lo" and index not in unknown)
        is_ours = any(self._shown(link) is not None for link in shown)
        return View(links, facts, left_out, unknown if is_ours else frozenset())

    def _shown(self, link: Link) -> Hardware | None:
        if link not in self._hardware:
            shows = self._sysfs.knows(link.name, link.ifindex, link.mac)
            self._hardware[link] = self._sysfs.hardware(link.name) if shows else None
        return self._hardware[link]

    def hardware(self, link: Link) -> Hardware:
        """As of the last look."""
        return self._shown(link) or Hardware()

    def _facts(self, choice: Choice, links: Mapping[int, Link], addresses: tuple[Interface, ...]) -> Facts:
        link, hardware = choice.link, self.hardware(choice.link)
        speed = self._sysfs.speed(link.name) if self._shown(link) is not None else None
        facts = Facts(
            link=link,
            hardware=hardware,
            place=self._place(link, links),
            addresses=addresses,
            speed=speed if speed is not None else self._speeds.of(link.name),
            parent=choice.parent,
        )
        if not hardware.pci:
            return facts
        return facts._replace(rdma=self._sysfs.rdma(link.name), parent_mtu=self._parent_mtu(hardware, links))

    def _place(self, link: Link, links: Mapping[int, Link]) -> Hardware:
        """The hardware below a link; the other end of a cable is not below it."""
        for _ in range(_DEEPEST):
            hardware = self.hardware(link)
            parent = links.get(below(link)) if link.kind != "veth" else None
            if hardware.pci or parent is None:
                return hardware
            link = parent
        return Hardware()

    def _parent_mtu(self, hardware: Hardware, links: Mapping[int, Link]) -> int | None:
        if not hardware.parent_link:
            return None
        here = next((link.mtu for link in links.values() if link.name == hardware.parent_link), None)
        return here if here is not None else self._sysfs.mtu(hardware.parent_link)

    def _programs(self, choices: Mapping[int, Choice]) -> dict[int, Programs]:
        """Those of eBPF, by link. Nobody tells when TCX gets one: that is seen at the next look."""
        if not choices:
            return {}
        classifiers = ebpf.classifiers(self._netlink)
        with visit(self._netns) if self._netns is not None else contextlib.nullcontext():
            return {
                index: Programs(choice.link.xdp, tuple(classifiers.get(index, ())), tuple(ebpf.tcx(index)))
                for index, choice in choices.items()
            }
