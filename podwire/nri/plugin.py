"""The class to subclass: define the hooks that you want, and the runtime is asked for no others."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from podwire.nri.adjustment import Adjustment
from podwire.nri.errors import NotConnected
from podwire.nri.hooks import METHODS
from podwire.nri.pod_cache import PodCache
from podwire.nri.runtime import Runtime
from podwire.nri.updates import Updates
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event, Subscription
from podwire.protocols.ttrpc import call

_CLEANING = (Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX)


class Asks(Protocol):
    """The connection as far as a plugin uses it."""

    async def update_containers(self, updates: Iterable[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]: ...


@dataclass(slots=True)
class Kept:
    """What the base class keeps for itself, under one name that a subclass must leave alone."""

    memory: PodCache = field(default_factory=PodCache)
    session: Asks | None = None


class Plugin:
    """A plugin of NRI.

    Hooks are asked one at a time unless the runtime is told otherwise. What one raises is answered with its sentence:
    the runtime then refuses RunPodSandbox, UpdatePodSandbox, CreateContainer, StartContainer and UpdateContainer, and
    only logs it for the others. An `RpcError` keeps its code.
    """

    name: str = ""
    index: str = "50"
    """Two digits; plugins are asked in this order."""

    ready: asyncio.Event
    """Set from the end of Synchronize until the connection ends."""
    runtime: Runtime
    """Who asks; known from Configure on."""
    nri: Kept

    def __new__(cls, *_: Any, **__: Any) -> Self:
        # Here and not in __init__, which subclasses have for themselves and need not call.
        self = super().__new__(cls)
        self.ready, self.runtime, self.nri = asyncio.Event(), Runtime(), Kept()
        return self

    # The beginning and the end.

    async def configure(self, config: str, runtime: Runtime) -> None:
        """The plugin's configuration, empty when there is none. Raising keeps the plugin out."""

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:
        """All that is there, at the beginning of every connection; hooks tell of everything after it."""

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        """A pod that was known, and went while there was no connection; told before `synchronize`.

        `netns_of` still knows it here. Only for plugins with `stop_pod_sandbox` or `remove_pod_sandbox`.
        """

    async def shutdown(self) -> None:
        """The runtime says that it will end."""

    # Pods.

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Its network is there, and it is not ready yet. Raising keeps it from starting."""

    async def update_pod_sandbox(
        self, pod: pb.PodSandbox, overhead: pb.LinuxResources, resources: pb.LinuxResources
    ) -> None:
        """It is to have other resources."""

    async def post_update_pod_sandbox(self, pod: pb.PodSandbox) -> None: ...

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Its containers have stopped, and its network is there yet."""

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        """Nothing of it is left."""

    # Containers.

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        """It can be changed now, and only now."""

    async def post_create_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Its process is there, and waits."""

    async def post_start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def update_container(
        self, pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
    ) -> Updates | None:
        """It is to have other resources; updates of this very container replace them."""

    async def post_update_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def stop_container(self, pod: pb.PodSandbox, container: pb.Container) -> Updates | None:
        """Its process has ended."""

    async def remove_container(self, pod: pb.PodSandbox, container: pb.Container) -> None: ...

    async def validate(self, request: pb.ValidateContainerAdjustmentRequest) -> str | None:
        """Judge what all plugins made of a container: a reason to refuse it, or nothing."""

    # What a hook may ask.

    def netns_of(self, pod: pb.PodSandbox | str) -> str:
        """The path of a pod's network namespace, also in hooks in which runtimes leave it out; empty when it has none.

        Remembered from RunPodSandbox and Synchronize for plugins with `stop_pod_sandbox` or `remove_pod_sandbox`.
        """
        return self.nri.memory.netns_of(pod)

    @property
    def traceparent(self) -> str:
        """Inside a hook: the W3C trace context that the runtime sent; empty when it sent none."""
        return call.current().traceparent

    async def update_containers(self, updates: Updates) -> list[pb.ContainerUpdate]:
        """Change containers without being asked; those that failed. Raises NotConnected, RpcError, MuxConnectionError.

        Not from within a hook: several runtimes wait for the hook first. Hooks return their updates.
        """
        if self.nri.session is None:
            raise NotConnected("there is no runtime at the moment")
        return await self.nri.session.update_containers(updates)


def handles(plugin: Plugin, event: Event) -> bool:
    """Whether a plugin has a method of its own for an event, by its class or set on itself."""
    method = METHODS[event]
    return method in vars(plugin) or getattr(type(plugin), method) is not getattr(Plugin, method)


def subscription(plugin: Plugin) -> Subscription:
    """The events of the hooks that are defined; who cleans up after pods is also told where they were."""
    wanted = [each for each in Event if handles(plugin, each)]
    if any(each in wanted for each in _CLEANING):
        wanted.append(Event.RUN_POD_SANDBOX)
    return Subscription.of(*wanted)
