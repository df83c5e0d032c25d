"""What happens to sandboxes and containers, told to whoever listens; nobody waits for a slow listener."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb

BEHIND = 1000
"""Events that a listener may be behind before it is cut; it lists anew and listens again."""


class Events:
    """A bounded queue per listener. `describe` gives the pod's status at the moment of an event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: set[asyncio.Queue[pb.ContainerEventResponse | None]] = set()
        self.describe: Callable[[Any], tuple[pb.PodSandboxStatus, list[pb.ContainerStatus]]] | None = None

    def sandbox(self, sandbox: Any, kind: str) -> None:
        """A sandbox is reported like a container with its own id."""
        self._tell(sandbox.id, sandbox, kind)

    def container(self, id_: str, sandbox: Any, kind: str) -> None:
        self._tell(id_, sandbox, kind)

    def _tell(self, id_: str, sandbox: Any, kind: str) -> None:
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
            if queue.qsize() >= BEHIND:
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    async def listen(self) -> AsyncIterator[pb.ContainerEventResponse]:
        """Everything from now on, until the listener falls behind or goes."""
        queue: asyncio.Queue[pb.ContainerEventResponse | None] = asyncio.Queue()
        self._listeners.add(queue)
        with contextlib.ExitStack() as stack:
            stack.callback(self._listeners.discard, queue)
            while (event := await queue.get()) is not None:
                yield event
