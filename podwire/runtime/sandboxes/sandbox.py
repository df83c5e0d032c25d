"""One sandbox: its record, its configuration and its locks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.runtime.ports import Attachment
from podwire.runtime.records import SandboxRecord

Result = TypeVar("Result")


@dataclass(slots=True)
class Sandbox:
    """One sandbox. Calls that change it hold its lock."""

    record: SandboxRecord
    config: pb.PodSandboxConfig
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is to be stopped: work for it that waits for others is cancelled."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def ready(self) -> bool:
        return self.record.state == "ready"

    def check_ready(self) -> None:
        if not self.ready:
            raise FailedPrecondition(f"sandbox {self.id} is not ready")

    async def unless_stopped(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does work that may take long, and cancels it when the sandbox is stopped. Raises FailedPrecondition then."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise FailedPrecondition(f"sandbox {self.id} is being stopped")
        finally:
            stopping.cancel()
            working.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)


def attachment_of(sandbox: Sandbox) -> Attachment:
    """Returns what CNI needs to know of a sandbox."""
    metadata = sandbox.config.metadata
    return Attachment(
        id=sandbox.id,
        netns=sandbox.record.network,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        ports=tuple(sandbox.config.port_mappings),
        annotations=dict(sandbox.config.annotations),
    )


def pod_name(sandbox: Sandbox) -> str:
    return f"{sandbox.config.metadata.namespace}/{sandbox.config.metadata.name}"
