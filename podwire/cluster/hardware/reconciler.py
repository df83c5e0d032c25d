"""Keeps `/sys/class/net` of a node in step with its links, and its cards whole.

A card's entry stays where it was while its link is in a pod, and its live files are not there then: whoever hears that
the link is back finds its hardware at once, without a moment in which it has none. For the same reason a card that
gets another name has both for a moment: who brings a link home renames it on the way. An entry of any other link comes
and goes with the link.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from podwire.cluster.hardware import switch
from podwire.cluster.hardware.pci_functions import Function, functions, links
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.hardware.sysfs_mount import SYS, write
from podwire.cluster.hardware.sysfs_tree import CLASS_NET, class_entry, shown
from podwire.linux.errors import LinuxError
from podwire.linux.net import monitor
from podwire.linux.net.link_moves import RemoteLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork

_log = logging.getLogger("podwire.hardware")

NEVER = ("device", "subsystem", "speed", "duplex", "iflink")
"""What a card says of itself, whatever its link is made of."""

LINGER_SECONDS = 1.0
"""How long a card is found by its old name, too."""


class Places(NamedTuple):
    """What is in class/net, and below which names each card has a directory."""

    entries: dict[str, str]
    """Names, and where their symlinks lead."""
    cards: dict[str, frozenset[str]]
    """By the card's own name."""


def settled(
    cards: Mapping[str, Function],
    present: Mapping[str, str],
    others: Collection[str],
    known: Mapping[str, frozenset[str]],
) -> Places:
    """How it should be. `present` are the names of cards that are on the node, `known` those that each is shown by and
    may go on to be shown by."""
    taken = {*others, *present.values()}
    entries = {other: class_entry(other, None) for other in others}
    shown_as = {}
    for name, card in cards.items():
        now = present.get(name)
        shown_as[name] = known.get(name, frozenset()) | {now or name}
        for one in shown_as[name]:
            if one == now or one not in taken:  # while a card is elsewhere, another link may have its name
                entries[one] = class_entry(one, card)
    return Places(entries, shown_as)


class CardReconciler:
    """On the node. `far` is a descriptor of the switch's namespace, which the node has no path to."""

    def __init__(self, profile: Profile, far: int, mark: str, root: Path = SYS) -> None:
        self._cards = {link.name: link for link in links(functions(profile))}
        self._far, self._mark, self._root = far, mark, root
        self._trouble = ""

    async def run(self) -> None:
        """Until cancelled: after each change of links, here or on the switch."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with contextlib.ExitStack() as stack:
            for link_monitor in (monitor.Monitor(), monitor.Monitor(self._far)):
                stack.callback(link_monitor.close)
                loop.add_reader(link_monitor.fileno(), _hear, link_monitor, changed)
                stack.callback(loop.remove_reader, link_monitor.fileno())
            changed.set()
            lingers = True
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_SECONDS if lingers else None):
                        await changed.wait()
                lingers = changed.is_set()
                changed.clear()
                self.settle(lingering=lingers)

    def settle(self, *, lingering: bool = False) -> None:
        """1. Cards that ended are made anew.  2. Entries follow names. What fails is told once, and tried at the next
        change."""
        try:
            with KernelNetwork(self._far) as far, KernelNetwork() as node:
                for card in switch.install(far, switch.own_namespace(), self._cards.values(), self._mark):
                    _log.info("made anew", extra={"card": card.name})
                near = node.links.list()
                present = switch.names(far.links.list(), near, self._number())
            self._show({link.name for link in near}, present, lingering=lingering)
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:
                _log.warning("cards are not as they should be", extra={"why": str(error)})
            self._trouble = str(error)

    def _number(self) -> int | None:
        with Netlink() as here:
            return RemoteLinks(here).number(self._far)

    def _show(self, names: Collection[str], present: Mapping[str, str], *, lingering: bool) -> None:
        there = {name: self._shown_as(card) for name, card in self._cards.items()}
        known = {name: found for name, found in there.items() if lingering or name not in present}
        wanted = settled(self._cards, present, set(names) - set(present.values()), known)
        for name, card in self._cards.items():
            for fresh in wanted.cards[name] - there[name]:
                attributes = _listed(self._root / "devices/virtual/net/lo") - set(NEVER)
                self._put(card, fresh, attributes)
        self._enter(wanted.entries)
        for name, card in self._cards.items():
            for old in there[name] - wanted.cards[name]:
                shutil.rmtree(self._root / card.place / "net" / old)

    def _put(self, each: Function, name: str, attributes: Collection[str]) -> None:
        """A directory that is whole when it is there; it is made beside, where relative symlinks are the same."""
        place, beside = self._root / each.place, self._root / each.place / "new"
        shutil.rmtree(beside, ignore_errors=True)
        entries = shown(each, name, attributes)
        write(self._root, {path.replace("/net/", "/new/", 1): what for path, what in entries.items()})
        (beside / name).rename(place / "net" / name)
        beside.rmdir()

    def _shown_as(self, each: Function) -> frozenset[str]:
        return _listed(self._root / each.place / "net")

    def _enter(self, wanted: Mapping[str, str]) -> None:
        below = self._root / CLASS_NET
        for name in _listed(below):
            if name not in wanted or str((below / name).readlink()) != wanted[name]:
                (below / name).unlink()
        for name, target in wanted.items():
            with contextlib.suppress(FileExistsError):
                (below / name).symlink_to(target)


def _listed(directory: Path) -> frozenset[str]:
    return frozenset(path.name for path in directory.iterdir())


def _hear(each: monitor.Monitor, changed: asyncio.Event) -> None:
    with contextlib.suppress(LinuxError):
        if any(one.what in (monitor.LINK, monitor.ANYTHING) for one in each.read()):
            changed.set()
