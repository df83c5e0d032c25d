"""One plugin that is connected: how it is asked, one request at a time, and what becomes of it when it fails."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from podwire.interfaces import Tap
from podwire.nri.adaptation.statistics import Record
from podwire.protocols.grpc_status import RpcError, Unimplemented, from_code
from podwire.protocols.nri import methods
from podwire.protocols.nri.events import ALL, Event, Subscription, as_state_change
from podwire.protocols.nri.names import PluginId
from podwire.transports.mux_connection import MuxConnection, MuxConnectionError
from podwire.transports.tapped import Tapped

log = logging.getLogger(__name__)

CALLER = "ContainerRuntime"
"""As the diagrams call whoever sits in this chair."""
TIGHT = 0.8
"""The share of its time from which on a plugin that answers is worth a warning."""


class PluginLost(Exception):
    """This plugin does not answer, now and in future: go on without it."""


class ConnectedPlugin:
    """A plugin as the host sees it, from its registration to its end."""

    def __init__(
        self,
        plugin: PluginId,
        connection: MuxConnection,
        record: Record,
        lose: "Callable[[ConnectedPlugin, str], None]",
        *,
        within: float,
        concurrent: bool,
    ) -> None:
        self.id = plugin
        self.connection = connection
        self.record = record
        self._lose = lose
        self.within = within
        """Seconds that a hook may take."""
        self.events: Subscription = ALL
        self._chose = False
        self.is_active = False
        """Whether it has been synchronized."""
        self.is_gone = False
        self._settled = asyncio.Event()
        self._turn = None if concurrent else asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.by_state_change = False
        """Whether it is told of events as before NRI 0.12."""
        self._tapped = Tapped(None, caller=CALLER, callee=str(plugin))

    def watched_by(self, tap: Tap | None) -> None:
        self._tapped = Tapped(tap, caller=CALLER, callee=str(self.id))

    def subscribe(self, wanted: Subscription) -> None:
        """To what it chose. Who chooses nothing gets everything, and is not asked again what it turns out not to know:
        containerd would fail every container for the sake of a plugin that never said it validates."""
        self._chose = bool(wanted.mask)
        self.events = wanted if self._chose else ALL

    def activate(self) -> None:
        """It knows the node: hooks that waited for that may go."""
        self.is_active = True
        self._enter("active")
        self.record.registered += 1
        self._settled.set()

    def synchronizing(self) -> None:
        self._enter("synchronizing")

    def gone(self, why: str) -> bool:
        """Nobody is to ask it any more; whether that is news."""
        if self.is_gone:
            return False
        self.is_gone = True
        self._enter("gone")
        self.record.last_error = why
        self._settled.set()
        self.connection.abort(why)
        return True

    def _enter(self, state: str) -> None:
        self.record.state, self.record.since = state, asyncio.get_running_loop().time()

    async def ask(self, event: Event, request: Any) -> Any:
        """Its answer. Raises RpcError for what it answered, and Lost.

        Waiting for its turn, and for the end of its Synchronize, is not counted as the plugin's time. Who gives up
        waiting here does not end the call: nothing takes it back, so the plugin keeps its turn until it answers.
        """
        loop = asyncio.get_running_loop()
        came = loop.time()
        if not self._settled.is_set():
            await self._settled.wait()
        if self._turn is not None:
            await self._turn.acquire()
        call = loop.create_task(self._call(event, request, came), name=f"NRI {event.title} of {self.id}")
        self._under_way.add(call)
        call.add_done_callback(self._ended)
        return await asyncio.shield(call)

    def _ended(self, call: asyncio.Task[Any]) -> None:
        self._under_way.discard(call)
        if not call.cancelled():
            call.exception()  # known, even if nobody waits for it any more

    async def finish(self) -> None:
        """After the end of its connection: see the calls end that were under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _call(self, event: Event, request: Any, came: float) -> Any:
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            if self.is_gone:
                raise PluginLost(f"{self.id} is gone")
            with self._tapped.call(f"NRI {event.title}", request) as passing:
                response = await self._exchange(event, request)
                passing.answered(response)
        except RpcError as error:
            if isinstance(error, Unimplemented) and not self._chose:
                self.events = Subscription(self.events.mask & ~event.bit)
                return event.method.response()
            self._done(event, begun - came, clock() - begun, str(error))
            raise from_code(error.code, f"NRI plugin {self.id}, {event.title}: {error}") from error
        except MuxConnectionError as error:
            self._done(event, begun - came, clock() - begun, str(error))
            self._lose(self, f"{event.title}: {error}")  # before the next has its turn
            raise PluginLost(f"{event.title}: {error}") from error
        finally:
            if self._turn is not None:
                self._turn.release()
        self._done(event, begun - came, clock() - begun)
        return response

    async def _exchange(self, event: Event, request: Any) -> Any:
        """By the call that is the event's own since 0.12; if it knows that only as StateChange, so from then on."""
        if not (self.by_state_change and event.was_state_change):
            try:
                return await self.connection.call(event.method, request, within=self.within)
            except Unimplemented:
                if not event.was_state_change:
                    raise
        await self.connection.call(methods.STATE_CHANGE, as_state_change(event, request), within=self.within)
        self.by_state_change = True
        return event.method.response()

    def _done(self, event: Event, waited: float, took: float, error: str = "") -> None:
        self.record.told(event.title, waited=waited, took=took, error=error)
        if took < TIGHT * self.within and not error:
            return
        facts = {
            "plugin": str(self.id),
            "hook": event.title,
            "budget": f"{took / self.within:.0%} of {self.within:g} s",
            "queued_ms": round(waited * 1e3, 1),
            "plugin_ms": round(took * 1e3, 1),
        }
        if error:
            log.warning("a hook failed", extra={**facts, "error": error})
        else:
            log.warning("a plugin is close to its time limit", extra=facts)
