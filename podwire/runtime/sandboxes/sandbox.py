"""One sandbox: what is known of it, and small questions about it."""

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
    """One sandbox as the runtime knows it. Calls that change it take turns."""

    record: SandboxRecord
    config: pb.PodSandboxConfig
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is to be stopped: whoever waits for others on its behalf waits no longer."""

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
        """Do something that may take its time; stopping the sandbox does not wait for it. Raises FailedPrecondition."""
        doing = asyncio.create_task(work)
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise FailedPrecondition(f"sandbox {self.id} is being stopped")
        finally:
            stopping.cancel()
            doing.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)


def attachment(sandbox: Sandbox) -> Attachment:
    """What CNI is told of a sandbox."""
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


def pod_of(sandbox: Sandbox) -> str:
    return f"{sandbox.config.metadata.namespace}/{sandbox.config.metadata.name}"
