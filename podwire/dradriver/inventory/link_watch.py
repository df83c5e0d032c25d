"""The inventory kept in line with the host, by what the kernel tells; nothing is asked in turns."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from podwire.dradriver.hearing import heard
from podwire.dradriver.inventory.listing import Listing
from podwire.dradriver.inventory.selection import is_nobodys
from podwire.linux.errors import LinuxError
from podwire.linux.net import monitor
from podwire.linux.net.link_moves import LinkEvent, LinkMoves, NamespaceEnded
from podwire.linux.values import Link

HEAR_SECONDS, QUIET_SECONDS = 0.05, 0.05
"""How long what the kernel tells is let lie, and how long one then waits for more before looking: a link is made in
several steps, and links flap. A pod that is just getting its link is not kept waiting by those who hear of it."""
AGAIN_SECONDS = 1.0
"""Until a look that failed is tried again."""
MOST_TOLD = 10_000
"""Of what was told during one look; more counts as lost."""

_log = logging.getLogger("podwire.dradriver")


class Following:
    """Looks at the host whenever something happened that devices depend on."""

    def __init__(self, inventory: Listing) -> None:
        self._inventory = inventory
        self._due = asyncio.Event()
        self._suspects: set[int] = set()
        """Links of which it is not known yet whether they matter: one of podwire's own gets its tag a moment later."""
        self._own: set[int] = set()
        """Links that came since the last look, and do not matter."""
        self._sure = False
        """Whether a look is due for any other reason."""
        self._told: list[LinkEvent | NamespaceEnded] = []
        self._lost = False
        self._looks = False
        self._trouble = ""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until cancelled. The sockets are open before the first look, so nothing falls between the two."""
        inventory = self._inventory
        inventory.subscribers.look_at(self._stale)
        with contextlib.ExitStack() as stack:
            host = stack.enter_context(contextlib.closing(monitor.Monitor(inventory.netns)))
            travels = stack.enter_context(contextlib.closing(LinkMoves(inventory.netns)))
            stack.enter_context(heard(host.fileno(), HEAR_SECONDS, lambda: self._heard_host(host)))
            stack.enter_context(heard(travels.fileno(), HEAR_SECONDS, lambda: self._heard_travels(travels)))
            stack.callback(self._stop_timer)
            await self._look(again=True)
            while True:
                await self._due.wait()
                await asyncio.sleep(QUIET_SECONDS)
                self._due.clear()
                if self._sure or self._suspects:
                    await self._look()

    def _stale(self) -> None:
        self._sure = True
        self._due.set()

    def _heard_host(self, host: monitor.Monitor) -> None:
        for each in host.read():
            if each.what == monitor.LINK and each.link is not None:
                self._heard_link(each.link, each.gone)
            elif self._matters(each):
                self._stale()

    def _heard_link(self, link: Link, gone: bool) -> None:
        index = link.ifindex
        self._suspects.discard(index)
        self._own.discard(index)
        if self._inventory.is_device(index):
            self._stale()
        elif is_nobodys(link):
            self._own |= set() if gone else {index}
        else:  # also one that is gone: the routes through it went without a word
            self._suspects.add(index)
            self._due.set()

    def _matters(self, change: monitor.Changed) -> bool:
        index = change.ifindex
        match change.what:
            case monitor.NEXT_HOP:
                return index not in self._own and self._inventory.concerns(index)
            case monitor.ADDRESS | monitor.TRAFFIC:
                return self._inventory.is_device(index)
            case monitor.ANYTHING:
                return True
        return False

    def _heard_travels(self, travels: LinkMoves) -> None:
        told = travels.read()
        self._lost = self._lost or travels.lost
        travels.lost = False
        # What follows on something that is kept may be about the same link, whose new place is known after the look.
        if self._looks or self._told or self._concern(told):
            self._keep(told)
        if self._lost or (not self._looks and self._told):
            self._stale()

    def _keep(self, told: Iterable[LinkEvent | NamespaceEnded]) -> None:
        self._told += told
        if len(self._told) > MOST_TOLD:
            self._told, self._lost = [], True

    def _concern(self, told: Iterable[LinkEvent | NamespaceEnded]) -> bool:
        """Whether it is about a device: one of the host that leaves, or one that is elsewhere."""
        places = self._inventory.places()
        numbers = {netns for netns, _ in places}
        for each in told:
            if isinstance(each, NamespaceEnded):
                if each.netns in numbers:
                    return True
            elif each.netns is None:
                if each.gone and self._inventory.is_device(each.link.ifindex):
                    return True
            elif (each.netns, each.link.ifindex) in places:
                return True
        return False

    async def _look(self, *, again: bool = False) -> None:
        told, self._told = self._told, []
        lost, self._lost = self._lost or again, False
        self._looks, self._sure = True, False
        self._suspects.clear()
        self._own.clear()
        try:
            wait = await _finished(self._inventory, told, lost)
            self._trouble = ""
        except LinuxError as error:
            self._failed(error)
            self._lost, wait = True, AGAIN_SECONDS
        finally:
            self._looks = False
        if self._told and self._concern(self._told):
            self._stale()
        else:
            self._told = []
        self._stop_timer()
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._stale)

    def _failed(self, error: LinuxError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("links cannot be looked at; tried again", extra={"why": str(error)})

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _finished(inventory: Listing, told: list[LinkEvent | NamespaceEnded], lost: bool) -> float | None:
    """A look is finished also when nobody waits for it any more: its sockets are closed afterwards."""
    return await asyncio.shield(asyncio.to_thread(inventory.look, told, lost=lost))
