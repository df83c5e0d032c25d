"""Reconciles `/sys/class/net` of a node with its links, and recreates cards whose links ended.

The entry of a card stays while its link is in a pod, without its live files: a watcher that sees the link return finds
its hardware at once. For the same reason a card that is renamed has both entries for a moment: a link is renamed on the
way back from a pod. The entry of any other link follows the link.
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
"""Files that a card provides itself, whatever its link is."""

OLD_NAME_SECONDS = 1.0
"""Time for which a renamed card keeps its old entry."""


class ClassNet(NamedTuple):
    """The entries of class/net, and the names under which each card has a directory."""

    entries: dict[str, str]
    """Names, and the targets of their symlinks."""
    cards: dict[str, frozenset[str]]
    """By the card's own name."""


def desired_entries(
    cards: Mapping[str, Function],
    present: Mapping[str, str],
    others: Collection[str],
    known: Mapping[str, frozenset[str]],
) -> ClassNet:
    """Returns the desired entries. Pure.

    `present` has the present names of cards that are on the node, `known` the names under which each is shown already.
    """
    taken = {*others, *present.values()}
    entries = {other: class_entry(other, None) for other in others}
    shown_as = {}
    for name, card in cards.items():
        now = present.get(name)
        shown_as[name] = known.get(name, frozenset()) | {now or name}
        for one in shown_as[name]:
            if one == now or one not in taken:  # while a card is in a pod, another link may have its name
                entries[one] = class_entry(one, card)
    return ClassNet(entries, shown_as)


class CardReconciler:
    """Runs on the node. `far` is a descriptor of the switch's namespace, to which the node has no path."""

    def __init__(self, profile: Profile, far: int, tag: str, root: Path = SYS) -> None:
        self._cards = {link.name: link for link in links(functions(profile))}
        self._far, self._tag, self._root = far, tag, root
        self._last_error = ""

    async def run(self) -> None:
        """Works until cancelled: reconciles after each change of links, here or on the switch."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with contextlib.ExitStack() as stack:
            for link_monitor in (monitor.Monitor(), monitor.Monitor(self._far)):
                stack.callback(link_monitor.close)
                loop.add_reader(link_monitor.fileno(), _on_link_event, link_monitor, changed)
                stack.callback(loop.remove_reader, link_monitor.fileno())
            changed.set()
            keep_old = True
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(OLD_NAME_SECONDS if keep_old else None):
                        await changed.wait()
                keep_old = changed.is_set()
                changed.clear()
                self.reconcile(keep_old_names=keep_old)

    def reconcile(self, *, keep_old_names: bool = False) -> None:
        """1. Recreate cards that ended.  2. Update entries. A failure is logged once, and retried after the next
        change."""
        try:
            with KernelNetwork(self._far) as far, KernelNetwork() as node:
                for card in switch.install(far, switch.own_namespace(), self._cards.values(), self._tag):
                    _log.info("recreated simulated card", extra={"card": card.name})
                near = node.links.list()
                present = switch.names(far.links.list(), near, self._number())
                # A card that moved meanwhile has no far end in this view, and must not be taken for another link.
                stayed = {(link.ifindex, link.name) for link in near} & {
                    (link.ifindex, link.name) for link in node.links.list()
                }
            self._show({name for _, name in stayed}, present, keep_old_names=keep_old_names)
            self._last_error = ""
        except OSError as error:
            if str(error) != self._last_error:
                _log.warning("cannot reconcile simulated cards", extra={"error": str(error)})
            self._last_error = str(error)

    def _number(self) -> int | None:
        with Netlink() as here:
            return RemoteLinks(here).number(self._far)

    def _show(self, names: Collection[str], present: Mapping[str, str], *, keep_old_names: bool) -> None:
        shown_before = {name: self._shown_as(card) for name, card in self._cards.items()}
        kept = {name: found for name, found in shown_before.items() if keep_old_names or name not in present}
        desired = desired_entries(self._cards, present, set(names) - set(present.values()), kept)
        for name, card in self._cards.items():
            for fresh in desired.cards[name] - shown_before[name]:
                attributes = _listed(self._root / "devices/virtual/net/lo") - set(NEVER)
                self._put(card, fresh, attributes)
        self._enter(desired.entries)
        for name, card in self._cards.items():
            for old in shown_before[name] - desired.cards[name]:
                shutil.rmtree(self._root / card.place / "net" / old)

    def _put(self, card: Function, name: str, attributes: Collection[str]) -> None:
        """Creates a directory atomically: it is built next to its place, where relative symlinks are the same, and
        renamed."""
        place, temporary = self._root / card.place, self._root / card.place / "new"
        shutil.rmtree(temporary, ignore_errors=True)
        entries = shown(card, name, attributes)
        write(self._root, {path.replace("/net/", "/new/", 1): what for path, what in entries.items()})
        (temporary / name).rename(place / "net" / name)
        temporary.rmdir()

    def _shown_as(self, card: Function) -> frozenset[str]:
        return _listed(self._root / card.place / "net")

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


def _on_link_event(link_monitor: monitor.Monitor, changed: asyncio.Event) -> None:
    with contextlib.suppress(LinuxError):
        if any(event.what in (monitor.LINK, monitor.ANYTHING) for event in link_monitor.read()):
            changed.set()
