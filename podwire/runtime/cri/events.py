"""GetContainerEvents: events of sandboxes and containers for any number of listeners; none waits for a slow one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.limits import RuntimeLimits


class Events:
    """A bounded queue per listener. `describe` returns the pod's status at the time of an event."""

    def __init__(self, clock: Clock, limits: RuntimeLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or RuntimeLimits()
        self._listeners: set[asyncio.Queue[pb.ContainerEventResponse | None]] = set()
        self.describe: Callable[[Any], tuple[pb.PodSandboxStatus, list[pb.ContainerStatus]]] | None = None

    def sandbox(self, sandbox: Any, kind: str) -> None:
        """Publishes an event of a sandbox, which looks like a container with the sandbox's id."""
        self._publish(sandbox.id, sandbox, kind)

    def container(self, id_: str, sandbox: Any, kind: str) -> None:
        self._publish(id_, sandbox, kind)

    def _publish(self, id_: str, sandbox: Any, kind: str) -> None:
        if not self._listeners or self.describe is None:
            return
        status, containers = self.describe(sandbox)
        event = pb.ContainerEventResponse(
            container_id=id_,
            container_event_type=f"CONTAINER_{kind}_EVENT",
            created_at=int(self._clock.wall() * 1e9),
            pod_sandbox_status=status,
            containers_statuses=containers,
        )
        for queue in list(self._listeners):
            if queue.qsize() >= self._limits.queued_events:
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    async def listen(self) -> AsyncIterator[pb.ContainerEventResponse]:
        """Yields all events from now on, until the listener falls behind or leaves."""
        queue: asyncio.Queue[pb.ContainerEventResponse | None] = asyncio.Queue()
        self._listeners.add(queue)
        with contextlib.ExitStack() as stack:
            stack.callback(self._listeners.discard, queue)
            while (event := await queue.get()) is not None:
                yield event
