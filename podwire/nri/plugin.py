"""The class to subclass: define the hooks that you need; the plugin is subscribed to these events only."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from podwire.nri.adjustment import Adjustment, Updates
from podwire.nri.errors import NotConnected
from podwire.nri.pod_cache import PodCache
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event, Subscription
from podwire.protocols.ttrpc import call


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The runtime, as its Configure describes it. Times are in seconds; 0 where it does not say."""

    name: str = ""
    version: str = ""
    nri_version: str = ""
    """From Configure, or known from its release; empty when neither."""
    registration_timeout: float = 0.0
    request_timeout: float = 0.0
    """Seconds that it waits for a hook to answer."""


METHODS = {event: event.name.lower() for event in Event} | {Event.VALIDATE_CONTAINER_ADJUSTMENT: "validate"}
"""The method of a plugin that handles an event."""
_END_OF_POD = (Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX)


class Connection(Protocol):
    """The runtime's service, while the plugin is connected."""

    async def update_containers(self, updates: Iterable[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]: ...


@dataclass(slots=True)
class State:
    """State of the base class, under one attribute that a subclass must not touch."""

    pods: PodCache = field(default_factory=PodCache)
    connection: Connection | None = None


class Plugin:
    """An NRI plugin.

    Hooks are called one at a time unless the runtime is configured otherwise. An exception becomes an error response
    with its message: the runtime then fails RunPodSandbox, UpdatePodSandbox, CreateContainer, StartContainer and
    UpdateContainer, and logs it for the others. An `RpcError` keeps its code.
    """

    name: str = ""
    index: str = "50"
    """Two digits; plugins are called in this order."""

    ready: asyncio.Event
    """Set from the end of Synchronize until the connection ends."""
    runtime: Runtime
    """Known from Configure on."""
    nri: State

    def __new__(cls, *_: Any, **__: Any) -> Self:
        # Not in __init__, so that subclasses need not call super().__init__().
        self = super().__new__(cls)
        self.ready, self.runtime, self.nri = asyncio.Event(), Runtime(), State()
        return self

    # The connection.

    async def configure(self, config: str, runtime: Runtime) -> None:
        """Receives the plugin's configuration, empty when there is none. An exception ends the registration."""

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:
        """Receives all pods and containers at the start of every connection; hooks report everything after it."""

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        """Reports a known pod that ended while there was no connection; called before `synchronize`.

        `netns_of` still works for it here. Only for plugins with `stop_pod_sandbox` or `remove_pod_sandbox`.
        """

    async def shutdown(self) -> None:
        """The runtime shuts down."""

    # Pods.

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Its network is set up, and it is not ready yet. An exception keeps it from starting."""

    async def update_pod_sandbox(
        self, pod: pb.PodSandbox, overhead: pb.LinuxResources, resources: pb.LinuxResources
    ) -> None:
        """Its resources are about to change."""

    async def post_update_pod_sandbox(self, pod: pb.PodSandbox) -> None: ...

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Its containers have stopped, and its network still exists."""

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """It was removed."""

    # Containers.

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        """Returns what to adjust in a container before it is created."""

    async def post_create_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Its process exists, and has not been started yet."""

    async def post_start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def update_container(
        self, pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
    ) -> Updates | None:
        """Its resources are about to change; updates of this very container replace them."""

    async def post_update_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def stop_container(self, pod: pb.PodSandbox, container: pb.Container) -> Updates | None:
        """Its process has ended."""

    async def remove_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def validate(self, request: pb.ValidateContainerAdjustmentRequest) -> str | None:
        """Validates what all plugins adjusted: returns a reason to reject it, or None."""

    # For use in hooks.

    def netns_of(self, pod: pb.PodSandbox | str) -> str:
        """The path of a pod's network namespace, also in hooks in which runtimes leave it out; empty when it has none.

        Cached from RunPodSandbox and Synchronize for plugins with `stop_pod_sandbox` or `remove_pod_sandbox`.
        """
        return self.nri.pods.netns_of(pod)

    @property
    def traceparent(self) -> str:
        """Inside a hook: the W3C trace context that the runtime sent; empty when it sent none."""
        return call.current().traceparent

    async def update_containers(self, updates: Updates) -> list[pb.ContainerUpdate]:
        """Updates containers outside of a hook; returns the updates that failed.

        Raises NotConnected, RpcError, MuxConnectionError. Do not call it within a hook: several runtimes wait for the
        hook first. Hooks return their updates.
        """
        if self.nri.connection is None:
            raise NotConnected("the plugin is not connected to a runtime at the moment")
        return await self.nri.connection.update_containers(updates)


def handles(plugin: Plugin, event: Event) -> bool:
    """Whether a plugin has a method of its own for an event, by its class or set on itself."""
    method = METHODS[event]
    return method in vars(plugin) or getattr(type(plugin), method) is not getattr(Plugin, method)


def subscription(plugin: Plugin) -> Subscription:
    """The events of the hooks that are defined; RunPodSandbox, too, for plugins that clean up after pods."""
    events = [event for event in Event if handles(plugin, event)]
    if any(event in events for event in _END_OF_POD):
        events.append(Event.RUN_POD_SANDBOX)
    return Subscription.of(*events)
