"""Who else is asked in a pod's life: what sandboxes and containers call at each step, and nobody at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.container import Container
from podwire.runtime.sandboxes.sandbox import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDraft:
    """A container before it is made: what others may still change of it."""

    spec: Mapping[str, Any]
    limits: Limits
    links: Mapping[str, str]
    """Links of the host that move into its network namespace, and what they are called there."""


class Hooks(Protocol):
    """Told of each step, in this order. What raises an RpcError keeps the step from happening."""

    async def run_pod(self, sandbox: Sandbox) -> None:
        """Its network stands, nobody has seen it yet. Raises RpcError."""
        ...

    async def update_pod(
        self, sandbox: Sandbox, overhead: pb.LinuxContainerResources, resources: pb.LinuxContainerResources
    ) -> None:
        """Its sums of resources change. Raises RpcError."""
        ...

    async def updated_pod(self, sandbox: Sandbox) -> None: ...

    async def stop_pod(self, sandbox: Sandbox) -> bool:
        """Its containers have stopped, its network still stands. Whether there was anybody to tell."""
        ...

    async def remove_pod(self, sandbox: Sandbox) -> None: ...

    async def create(self, sandbox: Sandbox, container: Container, draft: ContainerDraft) -> ContainerDraft:
        """A container is about to be made; how it is to be instead. Raises RpcError."""
        ...

    async def created(self, sandbox: Sandbox, container: Container) -> None: ...

    def waits_for_start(self) -> bool:
        """Whether somebody wants to know a container's process before it runs anything."""
        ...

    async def start(self, sandbox: Sandbox, container: Container, pid: int) -> None:
        """Raises RpcError."""
        ...

    async def started(self, sandbox: Sandbox, container: Container) -> None: ...

    async def update(self, sandbox: Sandbox, container: Container, limits: Limits) -> Limits:
        """New limits are about to be set; which instead. Raises RpcError."""
        ...

    async def updated(self, sandbox: Sandbox, container: Container) -> None: ...

    async def stopped(self, sandbox: Sandbox, container: Container) -> bool:
        """Its process is gone. Whether there was anybody to tell."""
        ...

    async def removed(self, sandbox: Sandbox, container: Container) -> None: ...
