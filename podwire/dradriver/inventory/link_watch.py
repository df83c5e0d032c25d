"""Keeps the inventory in line with the host by netlink events; nothing is polled."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.inventory.selection import is_never_offered
from podwire.linux.errors import LinuxError
from podwire.linux.net import monitor
from podwire.linux.net.link_moves import LinkEvent, LinkMoves, NamespaceEnded
from podwire.linux.values import Link
from podwire.tasks.debounce import debounced_reader
from podwire.tasks.uncancelled import thread_to_completion

_log = logging.getLogger("podwire.dradriver")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkWatchLimits:
    read: float = 0.05
    """Seconds; debounce of reading events. A pod that just gets its link is not delayed by our reading of them."""
    quiet: float = 0.05
    """Seconds; debounce of looking after that: a link is made in several steps, and links flap."""
    retry: float = 1.0
    """Seconds until a look that failed is retried."""
    events: int = 10_000
    """Events that are kept during one look; more count as lost."""


class LinkWatch:
    """Looks at the host after each event that devices depend on.

    Devices that claims held before must be held (`Inventory.hold`) before it runs.
    """

    def __init__(self, inventory: Inventory, limits: LinkWatchLimits | None = None) -> None:
        self._inventory, self._limits = inventory, limits or LinkWatchLimits()
        self._due = asyncio.Event()
        self._suspects: set[int] = set()
        """Links that may matter: one of podwire's own gets its owner tag a moment after it appears."""
        self._own: set[int] = set()
        """Links that appeared since the last look and do not matter."""
        self._must_look = False
        """Whether a look is due for any other reason."""
        self._events: list[LinkEvent | NamespaceEnded] = []
        self._lost = False
        self._looking = False
        self._error = ""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until cancelled, in the network namespace that the inventory was opened in. The sockets are open before the
        first look, so that no event is missed between the two."""
        inventory, limits = self._inventory, self._limits
        inventory.subscribers.on_stale(self._request_look)
        with contextlib.ExitStack() as stack:
            host = stack.enter_context(contextlib.closing(monitor.Monitor(inventory.netns)))
            moves = stack.enter_context(contextlib.closing(LinkMoves(inventory.netns)))
            stack.enter_context(debounced_reader(host.fileno(), limits.read, lambda: self._read_host(host)))
            stack.enter_context(debounced_reader(moves.fileno(), limits.read, lambda: self._read_moves(moves)))
            stack.callback(self._stop_timer)
            await self._look(again=True)
            while True:
                await self._due.wait()
                await asyncio.sleep(limits.quiet)
                self._due.clear()
                if self._must_look or self._suspects:
                    await self._look()

    def _request_look(self) -> None:
        self._must_look = True
        self._due.set()

    def _read_host(self, host: monitor.Monitor) -> None:
        for event in host.read():
            if event.what == monitor.LINK and event.link is not None:
                self._on_link(event.link, event.gone)
            elif self._matters(event):
                self._request_look()

    def _on_link(self, link: Link, gone: bool) -> None:
        index = link.ifindex
        self._suspects.discard(index)
        self._own.discard(index)
        if self._inventory.is_device(index):
            self._request_look()
        elif is_never_offered(link):
            self._own |= set() if gone else {index}
        else:  # also one that is gone: the kernel does not report the routes that went with it
            self._suspects.add(index)
            self._due.set()

    def _matters(self, event: monitor.Changed) -> bool:
        index = event.ifindex
        match event.what:
            case monitor.NEXT_HOP:
                return index not in self._own and self._inventory.concerns(index)
            case monitor.ADDRESS | monitor.TRAFFIC:
                return self._inventory.is_device(index)
            case monitor.ANYTHING:
                return True
        return False

    def _read_moves(self, moves: LinkMoves) -> None:
        events = moves.read()
        self._lost = self._lost or moves.lost
        moves.lost = False
        # An event that follows a kept one may be about the same link, whose new location is known after the look.
        if self._looking or self._events or self._concern(events):
            self._events += events
            if len(self._events) > self._limits.events:
                self._events, self._lost = [], True
        if self._lost or (not self._looking and self._events):
            self._request_look()

    def _concern(self, events: Iterable[LinkEvent | NamespaceEnded]) -> bool:
        """Whether events are about a device: one that leaves the host, or one that is in another namespace."""
        locations = self._inventory.locations()
        namespaces = {netns for netns, _ in locations}
        for event in events:
            if isinstance(event, NamespaceEnded):
                if event.netns in namespaces:
                    return True
            elif event.netns is None:
                if event.gone and self._inventory.is_device(event.link.ifindex):
                    return True
            elif (event.netns, event.link.ifindex) in locations:
                return True
        return False

    async def _look(self, *, again: bool = False) -> None:
        events, self._events = self._events, []
        lost, self._lost = self._lost or again, False
        self._looking, self._must_look = True, False
        self._suspects.clear()
        self._own.clear()
        try:
            # Completed also when this task is cancelled: the sockets of the look are closed afterwards.
            pause = await thread_to_completion(self._inventory.look, events, lost=lost)
            self._error = ""
        except LinuxError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.error("cannot list links of the host; retrying", extra={"error": str(error)})
            self._lost, pause = True, self._limits.retry
        finally:
            self._looking = False
        if self._events and self._concern(self._events):
            self._request_look()
        else:
            self._events = []
        self._stop_timer()
        if pause is not None:
            self._timer = asyncio.get_running_loop().call_later(pause, self._request_look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
