"""Settings of a node, and the interface to its machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from podwire.kubelet.eviction.thresholds import DEFAULT, Threshold
from podwire.linux.machine import Facts, FreeResources
from podwire.linux.net.listeners import Listener
from podwire.linux.values import IP
from podwire.objects.nodes import Taint


class PressureEvents(Protocol):
    """Readable, for an event loop, while there is an unread event. `linux.proc.pressure.MemoryPressure` is one."""

    def fileno(self) -> int: ...

    def read(self) -> bool:
        """Whether there was an event since the last call."""
        ...

    def close(self) -> None: ...


class Machine(Protocol):
    """`linux.machine.KernelMachine` is one; called in worker threads."""

    def facts(self) -> Facts: ...

    def left(self, path: str) -> FreeResources: ...

    def addresses(self) -> tuple[IP, ...]: ...

    def listeners(self) -> frozenset[Listener]: ...

    def apparmor(self) -> bool: ...

    def memory_pressure(self) -> PressureEvents:
        """Must be closed. Raises LinuxError where the kernel has none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Intervals in seconds."""

    lease_duration: int = 40
    """A renewal holds for this long."""
    lease_period: float = 10.0
    """Between two renewals: three may fail."""
    renew_timeout: float = 10.0
    report_period: float = 300.0
    """After this time the status is reported although nothing has changed."""
    backoff: tuple[float, float] = (0.2, 5.0)
    """First and longest pause between attempts of a failed request."""


DEFAULT_LIMITS = NodeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    name: str
    addresses: tuple[str, ...] = ()
    """Addresses of the node; when empty, the one of the machine's default route."""
    pod_cidrs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    max_pods: int = 110
    pod_pids: int = 4096
    """Processes and threads of a pod at most; -1 for no limit of its own. Its containers have equal shares."""
    port: int = 10250
    """Port of the kubelet's server."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Quantities by resource that are reserved for the system and the kubelet."""
    directory: str = "/var/lib"
    """A directory on the disk that pods write to."""
    thresholds: tuple[Threshold, ...] = DEFAULT
    """Hard eviction thresholds."""


def default_name() -> str:
    """The host's name as a node's name: in lower case."""
    return os.uname().nodename.strip().lower()
