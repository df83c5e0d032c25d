"""One container: its record, its configuration and its locks."""

import asyncio
from dataclasses import dataclass, field

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.shim import Exited
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.records import ContainerRecord


@dataclass(slots=True)
class Container:
    """One container. Calls that change it hold its lock."""

    record: ContainerRecord
    config: pb.ContainerConfig
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reported: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when NRI plugins know that it has exited."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def running(self) -> bool:
        return self.record.state == "running"

    @property
    def limits(self) -> Limits:
        """Its resource limits."""
        return self.record.limits or limits_of(self.config.linux.resources)


def exit_reason(exited: Exited, *, oom: bool) -> str:
    """Returns CRI's reason of an exit, as containerd has them."""
    if not exited.known:
        return "Unknown"
    if oom and exited.code == 137:
        return "OOMKilled"
    return "Completed" if exited.code == 0 else "Error"
