"""One plugin that is connected: how it is called, one request at a time, and what happens when it fails."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from podwire.interfaces import Tap
from podwire.nri.adaptation.statistics import PluginRecord
from podwire.protocols.grpc_status import RpcError, Unimplemented, from_code
from podwire.protocols.nri import methods
from podwire.protocols.nri.events import ALL, Event, Subscription, as_state_change
from podwire.protocols.nri.names import PluginId
from podwire.tasks.uncancelled import Uncancelled
from podwire.transports.mux_connection import MuxConnection, MuxConnectionError
from podwire.transports.tapped import Tapped

log = logging.getLogger(__name__)

CALLER = "ContainerRuntime"
"""The runtime's name in traces."""


class PluginLost(Exception):
    """This plugin does not answer, now and in future: go on without it."""


class ConnectedPlugin:
    """A plugin from its registration to the end of its connection.

    States (in `record.state`): registering → synchronizing → active → gone. Calls wait until it is active or gone.
    """

    def __init__(
        self,
        plugin: PluginId,
        connection: MuxConnection,
        record: PluginRecord,
        lose: "Callable[[ConnectedPlugin, str], None]",
        *,
        timeout: float,
        concurrent: bool,
        slow_share: float,
        state_change: bool = False,
        tap: Tap | None = None,
    ) -> None:
        self.id = plugin
        self.connection = connection
        self.record = record
        self._lose = lose
        self.timeout = timeout
        """Seconds that a hook may take."""
        self._slow_share = slow_share
        """The share of them from which on an answer is worth a warning."""
        self.events: Subscription = ALL
        self._chose_events = False
        self.is_active = False
        """Whether it has been synchronized."""
        self.is_gone = False
        self._active_or_gone = asyncio.Event()
        self._lock = None if concurrent else asyncio.Lock()
        self._calls = Uncancelled()
        self.uses_state_change = state_change
        """Whether it gets events as StateChange, as before NRI 0.12."""
        self._tapped = Tapped(tap, caller=CALLER, callee=str(plugin))

    def subscribe(self, events: Subscription) -> None:
        """Subscribes it to the events of its Configure response.

        A plugin that names no event gets all, and is not called again for one that it does not implement: containerd
        would fail every container because of a plugin that never said that it validates.
        """
        self._chose_events = bool(events.mask)
        self.events = events if self._chose_events else ALL

    def synchronizing(self) -> None:
        self._enter("synchronizing")

    def activate(self) -> None:
        """Its Synchronize is done: calls that waited for that go on."""
        self.is_active = True
        self._enter("active")
        self.record.registered += 1
        self._active_or_gone.set()

    def close(self, error: str) -> bool:
        """Ends it; calls fail with PluginLost from now on. Returns False if it was gone already."""
        if self.is_gone:
            return False
        self.is_gone = True
        self._enter("gone")
        self.record.last_error = error
        self._active_or_gone.set()
        self.connection.abort(error)
        return True

    def _enter(self, state: str) -> None:
        self.record.state, self.record.since = state, asyncio.get_running_loop().time()

    async def drain(self) -> None:
        """After the end of its connection: waits until the calls under way have ended."""
        await self._calls.drain(self.timeout)

    async def call(self, event: Event, request: Any) -> Any:
        """Returns its response. Raises RpcError for an error response, PluginLost.

        Waiting for the end of its Synchronize and of earlier calls does not count as the plugin's time. A caller that
        is cancelled does not end a call that was sent: nothing takes it back, so the plugin keeps its lock until it
        answers, and gets no other request meanwhile.
        """
        arrived = asyncio.get_running_loop().time()
        if not self._active_or_gone.is_set():
            await self._active_or_gone.wait()
        if self._lock is not None:
            await self._lock.acquire()
        call = self._calls.start(self._send(event, request, arrived))
        call.add_done_callback(_retrieve_exception)
        await asyncio.wait([call])  # not `await call`, which would cancel it with the caller
        return call.result()

    async def _send(self, event: Event, request: Any, arrived: float) -> Any:
        """Sends one call, by the event's own method or, for plugins older than NRI 0.12, as StateChange."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            if self.is_gone:
                raise PluginLost(f"{self.id} is gone")
            with self._tapped.call(f"NRI {event.title}", request) as passing:
                response = None
                if not (self.uses_state_change and event.was_state_change):
                    try:
                        response = await self.connection.call(event.method, request, within=self.timeout)
                    except Unimplemented:
                        if not event.was_state_change:
                            raise
                if response is None:
                    message = as_state_change(event, request)
                    await self.connection.call(methods.STATE_CHANGE, message, within=self.timeout)
                    self.uses_state_change = True
                    response = event.method.response()
                passing.answered(response)
        except RpcError as error:
            if isinstance(error, Unimplemented) and not self._chose_events:
                self.events = Subscription(self.events.mask & ~event.bit)
                return event.method.response()
            self._record_call(event, began - arrived, clock() - began, str(error))
            raise from_code(error.code, f"NRI plugin {self.id}, {event.title}: {error}") from error
        except MuxConnectionError as error:
            self._record_call(event, began - arrived, clock() - began, str(error))
            self._lose(self, f"{event.title}: {error}")  # before the next call gets the lock
            raise PluginLost(f"{event.title}: {error}") from error
        finally:
            if self._lock is not None:
                self._lock.release()
        self._record_call(event, began - arrived, clock() - began)
        return response

    def _record_call(self, event: Event, waited: float, took: float, error: str = "") -> None:
        self.record.add_call(event.title, waited=waited, took=took, error=error)
        if took < self._slow_share * self.timeout and not error:
            return
        fields = {
            "plugin": str(self.id),
            "hook": event.title,
            "budget": f"{took / self.timeout:.0%} of {self.timeout:g} s",
            "queued_ms": round(waited * 1e3, 1),
            "plugin_ms": round(took * 1e3, 1),
        }
        if error:
            log.warning("hook of NRI plugin failed", extra={**fields, "error": error})
        else:
            log.warning("NRI plugin is close to its timeout", extra=fields)


def _retrieve_exception(call: "asyncio.Task[Any]") -> None:
    """The error was recorded; asyncio must not report it as unretrieved when the caller was cancelled."""
    if not call.cancelled():
        call.exception()
