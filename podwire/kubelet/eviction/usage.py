"""Resource usage of pods, as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    memory: int = 0
    """The working set."""
    disk: int = 0
    """Writable layers of its instances, and their logs."""
    inodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    containers: Mapping[str, ContainerUsage] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    """Bytes by name of an emptyDir on the disk."""
    other_disk: int = 0
    """/etc/hosts, termination messages."""
    other_inodes: int = 0
    """Of volumes and the files above."""
    pids: int = 0
    complete: bool = True
    """Whether all directories were measured to their end; if not, the amounts are lower bounds."""

    @property
    def memory(self) -> int:
        return sum(container.memory for container in self.containers.values())

    @property
    def disk(self) -> int:
        return (
            sum(container.disk for container in self.containers.values()) + sum(self.volumes.values()) + self.other_disk
        )

    @property
    def inodes(self) -> int:
        return sum(container.inodes for container in self.containers.values()) + self.other_inodes

    def of(self, resource: str) -> int:
        return {"memory": self.memory, "ephemeral-storage": self.disk, "inodes": self.inodes, "pids": self.pids}[
            resource
        ]
