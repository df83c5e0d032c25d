"""The hooks that sandboxes and containers call at each step; NRI implements them (nri/nri_hooks.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.container import Container
from podwire.runtime.sandboxes.sandbox import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDraft:
    """A container before it is created: what plugins may still change."""

    spec: Mapping[str, Any]
    limits: Limits
    links: Mapping[str, str]
    """Links of the host that move into its network namespace, and their names there."""


class Hooks(Protocol):
    """Called in this order. A hook that raises an RpcError prevents the step."""

    async def run_pod(self, sandbox: Sandbox) -> None:
        """RunPodSandbox: the network is attached, the sandbox is not listed yet. Raises RpcError."""
        ...

    async def update_pod(
        self, sandbox: Sandbox, overhead: pb.LinuxContainerResources, resources: pb.LinuxContainerResources
    ) -> None:
        """UpdatePodSandbox: the sums of resources change. Raises RpcError."""
        ...

    async def updated_pod(self, sandbox: Sandbox) -> None: ...

    async def stop_pod(self, sandbox: Sandbox) -> bool:
        """StopPodSandbox: containers have stopped, the network is still attached. Returns whether a plugin got it."""
        ...

    async def remove_pod(self, sandbox: Sandbox) -> None: ...

    async def create(self, sandbox: Sandbox, container: Container, draft: ContainerDraft) -> ContainerDraft:
        """CreateContainer: returns the container as plugins adjusted it. Raises RpcError."""
        ...

    async def created(self, sandbox: Sandbox, container: Container) -> None: ...

    def waits_for_start(self) -> bool:
        """Whether a plugin subscribed to StartContainer: it gets the pid before the first instruction."""
        ...

    async def start(self, sandbox: Sandbox, container: Container, pid: int) -> None:
        """StartContainer. Raises RpcError."""
        ...

    async def started(self, sandbox: Sandbox, container: Container) -> None: ...

    async def update(self, sandbox: Sandbox, container: Container, limits: Limits) -> Limits:
        """UpdateContainer: returns the limits as plugins adjusted them. Raises RpcError."""
        ...

    async def updated(self, sandbox: Sandbox, container: Container) -> None: ...

    async def stopped(self, sandbox: Sandbox, container: Container) -> bool:
        """StopContainer: the process is gone. Returns whether a plugin got it."""
        ...

    async def removed(self, sandbox: Sandbox, container: Container) -> None: ...
