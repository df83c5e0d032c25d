"""One connection to a runtime, from RegisterPlugin to its end.

1. Connect, RegisterPlugin.   2. The runtime asks Configure and Synchronize.   3. Hooks, until either side goes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from podwire import logs
from podwire.nri import hooks
from podwire.nri.plugin import Plugin, subscription
from podwire.nri.runtime import Runtime, told_by
from podwire.nri.updates import Updates
from podwire.protocols.grpc_status import DeadlineExceeded, InvalidArgument, RpcError, Unavailable, Unknown
from podwire.protocols.nri import VERSION, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import Gathered
from podwire.protocols.nri.events import Event, Subscription, from_state_change
from podwire.protocols.nri.names import PluginId
from podwire.protocols.ttrpc import call, mux
from podwire.transports.mux_connection import MuxConnection, Services

_log = logging.getLogger("podwire.nri.stub")

REGISTRATION_TIMEOUT = 5.0
"""Seconds for the runtime to answer RegisterPlugin."""
WELCOME = 15.0
"""Seconds after which it is strange that a runtime has not synchronized a plugin; it may be busy with another one."""
UPDATE_TIMEOUT = 10.0
"""Seconds for the runtime to carry out an UpdateContainers."""
SHUTDOWN_GRACE = 2.0
"""Seconds for hooks to end by themselves when the plugin stops; a runtime waits no longer for them by default."""
FAREWELL = 1.0
"""Seconds for hooks that were cancelled then to be answered."""
HOOK_SHARE = 0.95
"""How much of the runtime's time a hook has: an answer that comes too late costs a plugin its connection, a refusal in
time costs one call."""

Done = TypeVar("Done")
Connect = Callable[[MuxConnection], Awaitable[None]]


class Stub:
    """Serves one plugin on one connection."""

    def __init__(self, plugin: Plugin, me: PluginId, *, config: str = "", grace: float = SHUTDOWN_GRACE) -> None:
        self._plugin, self._me, self._config, self._grace = plugin, me, config, grace
        self._wanted = Subscription(0)
        self._gathered = Gathered()
        self._hooks: dict[asyncio.Task[Any], asyncio.Timeout] = {}
        self._leaving = False
        """From then on requests are refused."""
        self._trunk = MuxConnection(
            Services(methods.PLUGIN, self._handlers()), asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE
        )
        self.was_ready = False

    def _handlers(self) -> dict[str, Callable[[Any], Awaitable[Message]]]:
        own: dict[str, Callable[[Any], Awaitable[Message]]] = {
            methods.CONFIGURE.name: self._configure,
            methods.SYNCHRONIZE.name: self._synchronize,
            methods.SHUTDOWN.name: self._shutdown,
            methods.STATE_CHANGE.name: self._state_change,
        }
        return own | {each.title: partial(self._event, each) for each in Event}

    async def live(self, connect: Connect) -> str:
        """Connect, register, serve; why it ended. Raises OSError, RpcError and MuxConnectionError until it is
        registered."""
        await connect(self._trunk)
        try:
            await self._trunk.call(
                methods.REGISTER_PLUGIN,
                pb.RegisterPluginRequest(plugin_name=self._me.name, plugin_idx=self._me.index, NRI_version=VERSION),
                within=REGISTRATION_TIMEOUT,
            )
            _log.info("registered", extra={"plugin": str(self._me)})
            await asyncio.wait([self._trunk.closed], timeout=WELCOME)
            if not self._trunk.closed.done() and not self.was_ready:
                _log.warning("the runtime has not synchronized the plugin yet", extra={"plugin": str(self._me)})
            return await asyncio.shield(self._trunk.closed)
        finally:
            self._leaving = True
            self._plugin.ready.clear()
            try:
                await self._leave()
            finally:
                self._plugin.nri.session = None  # hooks that were ending could use it until now

    async def update_containers(self, updates: Iterable[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        trace = call.current().traceparent
        answered = await self._trunk.call(
            methods.UPDATE_CONTAINERS,
            pb.UpdateContainersRequest(update=updates),
            within=UPDATE_TIMEOUT,
            metadata=[("traceparent", trace)] if trace else (),
        )
        return list(answered.failed)

    async def _leave(self) -> None:
        """Let requests go on that have begun, cut short those that do not end, close."""
        if not self._trunk.closed.done() and self._hooks:
            await asyncio.wait(self._hooks, timeout=self._grace)
            for limit in self._hooks.values():
                limit.reschedule(asyncio.get_running_loop().time())
            if self._hooks:
                await asyncio.wait(self._hooks, timeout=FAREWELL)
        await self._trunk.close("the plugin stops")

    # What the runtime asks.

    async def _configure(self, request: pb.ConfigureRequest) -> Message:
        runtime = told_by(request)
        self._plugin.runtime = runtime
        configure = partial(self._plugin.configure, request.config or self._config, runtime)
        await self._guarded("Configure", call.current().timeout, configure)
        self._wanted = subscription(self._plugin)
        known = self._wanted.known_to(runtime.nri_version)
        if lost := [each.title for each in Event if each in self._wanted and each not in known]:
            _log.warning("the runtime does not know some hooks", extra=_facts(self._me, runtime, hooks=",".join(lost)))
        # To a runtime no event at all means every event, so whoever wants none takes the rarest.
        return pb.ConfigureResponse(events=known.mask or Event.REMOVE_POD_SANDBOX.bit)

    async def _synchronize(self, request: pb.SynchronizeRequest) -> Message:
        if not self._gathered.add(request):
            return pb.SynchronizeResponse(more=True)
        told, self._gathered = self._gathered, Gathered()
        updates = await self._guarded("Synchronize", call.current().timeout, partial(self._compare, told))
        if not self._leaving:
            self._plugin.nri.session = self
            self._plugin.ready.set()
            self.was_ready = True
        _log.info("synchronized", extra=_facts(self._me, self._plugin.runtime, pods=len(told.pods)))
        return pb.SynchronizeResponse(update=updates or ())

    async def _compare(self, told: Gathered) -> Updates | None:
        """Tell of pods that went unseen, then of those that are there."""
        memory = self._plugin.nri.memory
        for pod in memory.missing_in(told.pods):
            try:
                await self._plugin.pod_vanished(pod)
            except Exception:  # noqa: BLE001 - logged; the others are told all the same
                _log.exception("pod_vanished failed", extra={"plugin": str(self._me), "pod": pod.id})
            memory.forget(pod.id)
        if self._remembers:
            for pod in told.pods:
                memory.learn(pod)
        updates = await self._plugin.synchronize(told.pods, told.containers)
        if not isinstance(updates, Updates | None):
            raise TypeError(f"synchronize returned {type(updates).__name__}, which it cannot")
        return updates

    async def _shutdown(self, _request: pb.Empty) -> Message:
        await self._guarded("Shutdown", call.current().timeout, self._plugin.shutdown)
        return pb.Empty()

    async def _state_change(self, told: pb.StateChangeEvent) -> Message:
        """How runtimes before 0.12 tell of most events."""
        event = from_state_change(told)
        if event is None:
            raise InvalidArgument(f"StateChange: event {told.event} does not travel so")
        await self._event(*event)
        return pb.Empty()

    async def _event(self, event: Event, request: Any) -> Message:
        if event is Event.RUN_POD_SANDBOX and self._remembers:
            self._plugin.nri.memory.learn(request.pod)
        hook = partial(hooks.call, self._plugin, event, request)
        try:
            with logs.about(pod=f"{request.pod.namespace}/{request.pod.name}"):
                return await self._guarded(event.title, self._time(), hook)
        finally:
            if event is self._forgets_at:
                self._plugin.nri.memory.forget(request.pod.id)

    # How a hook runs.

    @property
    def _remembers(self) -> bool:
        """Only for those who hear of a pod's end; it would never be forgotten for others."""
        return Event.STOP_POD_SANDBOX in self._wanted or Event.REMOVE_POD_SANDBOX in self._wanted

    @property
    def _forgets_at(self) -> Event:
        return Event.REMOVE_POD_SANDBOX if Event.REMOVE_POD_SANDBOX in self._wanted else Event.STOP_POD_SANDBOX

    def _time(self) -> float | None:
        """Seconds that a runtime waits for a hook: what Configure said, or less if the call says less."""
        return min(filter(None, (call.current().timeout, self._plugin.runtime.request_timeout)), default=None)

    async def _guarded(self, title: str, seconds: float | None, work: Callable[[], Awaitable[Done]]) -> Done:
        """Run a plugin's method in its time; whatever it raises becomes an RpcError that says it."""
        if self._leaving:
            raise Unavailable(f"{self._me} is stopping, and does no {title} any more")
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the connection answers in tasks
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if seconds is None else seconds * HOOK_SHARE) as limit:
                self._hooks[task] = limit
                return await work()
        except RpcError:
            raise
        except Exception as error:
            if limit.expired():
                raise self._cut_short(title, asyncio.get_running_loop().time() - begun) from error
            _log.exception("a hook failed", extra={"plugin": str(self._me), "hook": title})
            raise Unknown(f"{type(error).__name__}: {error}") from error
        finally:
            self._hooks.pop(task, None)

    def _cut_short(self, title: str, after: float) -> RpcError:
        if self._leaving:
            return Unavailable(f"{self._me} is stopping, and gave {title} up")
        _log.error("a hook took too long", extra={"plugin": str(self._me), "hook": title, "seconds": round(after, 3)})
        return DeadlineExceeded(f"{self._me}: {title} was not done within {after:.3g} s")


def _facts(me: PluginId, runtime: Runtime, **more: object) -> dict[str, object]:
    named = f"{runtime.name} {runtime.version}".strip()
    return {"plugin": str(me), "runtime": named, "nri": runtime.nri_version, **more}
