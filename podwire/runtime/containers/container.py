"""One container: what is known of it, and small questions about it."""

import asyncio
from dataclasses import dataclass, field

from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import AlreadyExists
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.ports import Exited
from podwire.runtime.records import ContainerRecord


@dataclass(slots=True)
class Container:
    """One container as the runtime knows it. Calls that change it take turns."""

    record: ContainerRecord
    config: pb.ContainerConfig
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when plugins know that it has exited."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def running(self) -> bool:
        return self.record.state == "running"

    @property
    def limits(self) -> Limits:
        """What it may use."""
        return self.record.limits or limits_of(self.config.linux.resources)


def same(container: Container, config: pb.ContainerConfig) -> str:
    if container.config != config:
        raise AlreadyExists(f"config.metadata: {config.metadata.name!r} is the name of container {container.id}")
    return container.id


def reason_of(exited: Exited, *, oom: bool) -> str:
    if not exited.known:
        return "Unknown"
    if oom and exited.code == 137:
        return "OOMKilled"
    return "Completed" if exited.code == 0 else "Error"


async def happens(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
