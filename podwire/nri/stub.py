"""The plugin side of one connection to a runtime, from RegisterPlugin to its end.

1. Connect, RegisterPlugin.   2. The runtime calls Configure and Synchronize.   3. Hooks, until either side closes.

A runtime closes the connection of a plugin that answers too late, and a plugin without a connection protects no pod. So
a hook is cancelled shortly before the runtime's timeout and answered with DEADLINE_EXCEEDED, which fails one call.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.message import Message

from podwire import logs
from podwire.nri.adjustment import Adjustment, Updates
from podwire.nri.plugin import METHODS, Plugin, Runtime, subscription
from podwire.protocols.grpc_status import DeadlineExceeded, InvalidArgument, RpcError, Unavailable, Unknown
from podwire.protocols.nri import VERSION, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import Gathered
from podwire.protocols.nri.events import Event, Subscription, from_state_change, nri_version_of
from podwire.protocols.nri.names import PluginId
from podwire.protocols.ttrpc import call, mux
from podwire.transports.mux_connection import MuxConnection, Services

_log = logging.getLogger("podwire.nri.stub")

_UPDATING = {Event.UPDATE_CONTAINER: pb.UpdateContainerResponse, Event.STOP_CONTAINER: pb.StopContainerResponse}
SHUTDOWN_GRACE = 2.0
"""Seconds for hooks to end by themselves when the plugin stops; a runtime waits no longer for them by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Timeouts of a plugin's side of the connection, in seconds."""

    registration_timeout: float = 5.0
    """For the runtime to answer RegisterPlugin."""
    synchronize_warning: float = 15.0
    """A warning is logged if the runtime has not synchronized the plugin by then; it may be busy."""
    update_timeout: float = 10.0
    """For the runtime to answer UpdateContainers."""
    cancel_grace: float = 1.0
    """For hooks that were cancelled at shutdown to be answered."""
    hook_share: float = 0.95
    """The share of the runtime's timeout that a hook has."""
    first_pause: float = 0.1
    longest_pause: float = 3.0
    """Between attempts to connect; shorter than runtimes wait for a plugin that is being restarted."""
    stable: float = 10.0
    """After which a connection counts as successful, so that pauses start anew."""


DEFAULT_LIMITS = Limits()


Connect = Callable[[MuxConnection], Awaitable[None]]


class Stub:
    """Serves one plugin on one connection."""

    def __init__(
        self,
        plugin: Plugin,
        identity: PluginId,
        *,
        config: str = "",
        grace: float = SHUTDOWN_GRACE,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._plugin, self._identity, self._config, self._grace = plugin, identity, config, grace
        self._limits = limits
        self._events = Subscription(0)
        self._batches = Gathered()
        self._running: dict[asyncio.Task[Any], asyncio.Timeout] = {}
        """Requests that are being handled, with their timeouts."""
        self._stopping = False
        """From then on requests are refused."""
        handlers: dict[str, Callable[[Any], Awaitable[Message]]] = {
            methods.CONFIGURE.name: self._configure,
            methods.SYNCHRONIZE.name: self._synchronize,
            methods.SHUTDOWN.name: self._shutdown,
            methods.STATE_CHANGE.name: self._state_change,
            **{event.title: partial(self._call_hook, event) for event in Event},
        }
        self._connection = MuxConnection(
            Services(methods.PLUGIN, handlers), asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE
        )
        self.was_ready = False
        """Whether the plugin was synchronized."""

    async def serve(self, connect: Connect) -> str:
        """Connects, registers, serves; returns why the connection ended.

        Raises OSError, RpcError and MuxConnectionError until it is registered.
        """
        await connect(self._connection)
        try:
            await self._connection.call(
                methods.REGISTER_PLUGIN,
                pb.RegisterPluginRequest(
                    plugin_name=self._identity.name, plugin_idx=self._identity.index, NRI_version=VERSION
                ),
                within=self._limits.registration_timeout,
            )
            _log.info("registered with the runtime", extra={"plugin": str(self._identity)})
            await asyncio.wait([self._connection.closed], timeout=self._limits.synchronize_warning)
            if not self._connection.closed.done() and not self.was_ready:
                _log.warning("runtime has not synchronized the plugin yet", extra={"plugin": str(self._identity)})
            return await self._connection.wait_closed()
        finally:
            self._stopping = True
            self._plugin.ready.clear()
            try:
                await self._stop()
            finally:
                self._plugin.nri.connection = None  # hooks that were ending could use it until now

    async def update_containers(self, updates: Iterable[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Returns the updates that failed. Raises RpcError, MuxConnectionError."""
        trace = call.current().traceparent
        response = await self._connection.call(
            methods.UPDATE_CONTAINERS,
            pb.UpdateContainersRequest(update=updates),
            within=self._limits.update_timeout,
            metadata=[("traceparent", trace)] if trace else (),
        )
        return list(response.failed)

    async def _stop(self) -> None:
        """Waits for the requests under way, cancels those that do not end in time, closes the connection."""
        if not self._connection.closed.done() and self._running:
            await asyncio.wait(self._running, timeout=self._grace)
            for timeout in self._running.values():
                timeout.reschedule(asyncio.get_running_loop().time())
            if self._running:
                await asyncio.wait(self._running, timeout=self._limits.cancel_grace)
        await self._connection.close("the plugin stops")

    # The Plugin service, which the runtime calls.

    async def _configure(self, request: pb.ConfigureRequest) -> Message:
        runtime = Runtime(
            name=request.runtime_name,
            version=request.runtime_version,
            nri_version=nri_version_of(request),
            registration_timeout=request.registration_timeout / 1000,
            request_timeout=request.request_timeout / 1000,
        )
        self._plugin.runtime = runtime
        async with self._deadline("Configure", call.current().timeout):
            await self._plugin.configure(request.config or self._config, runtime)
        self._events = subscription(self._plugin)
        known = self._events.known_to(runtime.nri_version)
        if unknown := [event.title for event in Event if event in self._events and event not in known]:
            fields = _fields(self._identity, runtime, hooks=",".join(unknown))
            _log.warning("runtime does not support some hooks", extra=fields)
        # A runtime takes an empty mask for all events, so a plugin without hooks subscribes to the rarest event.
        return pb.ConfigureResponse(events=known.mask or Event.REMOVE_POD_SANDBOX.bit)

    async def _synchronize(self, request: pb.SynchronizeRequest) -> Message:
        if not self._batches.add(request):
            return pb.SynchronizeResponse(more=True)
        node, self._batches = self._batches, Gathered()
        async with self._deadline("Synchronize", call.current().timeout):
            await self._report_vanished_pods(node)
            updates = await self._plugin.synchronize(node.pods, node.containers)
            if not isinstance(updates, Updates | None):
                raise TypeError(f"synchronize returned {type(updates).__name__} instead of Updates or None")
        if not self._stopping:
            self._plugin.nri.connection = self
            self._plugin.ready.set()
            self.was_ready = True
        fields = _fields(self._identity, self._plugin.runtime, pods=len(node.pods))
        _log.info("synchronized with the runtime", extra=fields)
        return pb.SynchronizeResponse(update=updates or ())

    async def _report_vanished_pods(self, node: Gathered) -> None:
        """Reports cached pods that ended while there was no connection, and caches those that exist."""
        pods = self._plugin.nri.pods
        for pod in pods.missing_in(node.pods):
            try:
                await self._plugin.pod_vanished(pod)
            except Exception:  # noqa: BLE001 - logged; the other pods are reported all the same
                _log.exception("pod_vanished hook failed", extra={"plugin": str(self._identity), "pod": pod.id})
            pods.remove(pod.id)
        if self._caches_pods:
            for pod in node.pods:
                pods.put(pod)

    async def _shutdown(self, _request: pb.Empty) -> Message:
        async with self._deadline("Shutdown", call.current().timeout):
            await self._plugin.shutdown()
        return pb.Empty()

    async def _state_change(self, request: pb.StateChangeEvent) -> Message:
        """Handles StateChange, by which runtimes before NRI 0.12 send most events."""
        event = from_state_change(request)
        if event is None:
            raise InvalidArgument(f"StateChange: event {request.event} is not sent as a StateChange")
        await self._call_hook(*event)
        return pb.Empty()

    async def _call_hook(self, event: Event, request: Any) -> Message:
        """Calls the plugin's method for an event. Raises RpcError."""
        if event is Event.RUN_POD_SANDBOX and self._caches_pods:
            self._plugin.nri.pods.put(request.pod)
        runtime_timeout = self._plugin.runtime.request_timeout
        timeout = min(filter(None, (call.current().timeout, runtime_timeout)), default=None)
        try:
            with logs.about(pod=f"{request.pod.namespace}/{request.pod.name}"):
                async with self._deadline(event.title, timeout):
                    method = METHODS[event]
                    returned = getattr(self._plugin, method)(*_arguments(event, request))
                    if not inspect.isawaitable(returned):
                        raise TypeError(f"{method} must be an `async def`")
                    return _response(event, await returned)
        finally:
            if event is self._last_pod_event:
                self._plugin.nri.pods.remove(request.pod.id)

    @property
    def _caches_pods(self) -> bool:
        """Only for plugins that get the end of a pod; for others it would never leave the cache."""
        return Event.STOP_POD_SANDBOX in self._events or Event.REMOVE_POD_SANDBOX in self._events

    @property
    def _last_pod_event(self) -> Event:
        return Event.REMOVE_POD_SANDBOX if Event.REMOVE_POD_SANDBOX in self._events else Event.STOP_POD_SANDBOX

    @asynccontextmanager
    async def _deadline(self, title: str, seconds: float | None) -> AsyncIterator[None]:
        """Cancels the block shortly before the runtime's timeout; every exception becomes an RpcError that says it."""
        if self._stopping:
            raise Unavailable(f"{title}: plugin {self._identity} is stopping")
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the connection handles requests in tasks
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if seconds is None else seconds * self._limits.hook_share) as timeout:
                self._running[task] = timeout
                yield
        except RpcError:
            raise
        except Exception as error:
            if timeout.expired():
                raise self._expired(title, asyncio.get_running_loop().time() - began) from error
            _log.exception("hook raised an exception", extra={"plugin": str(self._identity), "hook": title})
            raise Unknown(f"{type(error).__name__}: {error}") from error
        finally:
            self._running.pop(task, None)

    def _expired(self, title: str, after: float) -> RpcError:
        if self._stopping:
            return Unavailable(f"{title}: cancelled, because plugin {self._identity} is stopping")
        fields = {"plugin": str(self._identity), "hook": title, "seconds": round(after, 3)}
        _log.error("hook exceeded its deadline", extra=fields)
        return DeadlineExceeded(f"{self._identity}: {title} was not done within {after:.3g} s")


def _fields(identity: PluginId, runtime: Runtime, **more: object) -> dict[str, object]:
    named = f"{runtime.name} {runtime.version}".strip()
    return {"plugin": str(identity), "runtime": named, "nri": runtime.nri_version, **more}


def _arguments(event: Event, request: Any) -> tuple[Any, ...]:
    """The fields of a request in their order; a validator gets the request itself."""
    if event is Event.VALIDATE_CONTAINER_ADJUSTMENT:
        return (request,)
    return tuple(getattr(request, field.name) for field in request.DESCRIPTOR.fields)


def _response(event: Event, returned: object) -> Message:
    """The response for what a hook returned. Raises TypeError for a type that the hook cannot return."""
    match event, returned:
        case _, None:
            pass
        case Event.CREATE_CONTAINER, Adjustment():
            return pb.CreateContainerResponse(adjust=returned.message, update=returned.others)
        case ((Event.UPDATE_CONTAINER | Event.STOP_CONTAINER), Updates()):
            updated: Message = _UPDATING[event](update=returned)
            return updated
        case Event.VALIDATE_CONTAINER_ADJUSTMENT, str():
            return pb.ValidateContainerAdjustmentResponse(reject=bool(returned), reason=returned)
        case _:
            raise TypeError(f"{METHODS[event]} returned {type(returned).__name__}, which it cannot")
    empty: Message = event.method.response()
    return empty
