"""What a node is told about itself, and what it asks its machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from podwire.linux.machine import Facts, FreeResources
from podwire.linux.values import IP
from podwire.objects.nodes import Taint

MEBI = 1024**2


class Machine(Protocol):
    """`linux.machine.KernelMachine` is one; called in worker threads."""

    def facts(self) -> Facts: ...

    def left(self, path: str) -> FreeResources: ...

    def addresses(self) -> tuple[IP, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What must be left; with less, the node is under pressure. Memory in bytes, the rest as shares of the whole."""

    memory: int = 100 * MEBI
    disk: float = 0.10
    inodes: float = 0.05
    pids: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    name: str
    addresses: tuple[str, ...] = ()
    """The node's own; when empty, that of the machine's default route."""
    pod_cidrs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    max_pods: int = 110
    port: int = 10250
    """Where the kubelet answers the API server."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Quantities by resource that pods do not get: what the system and the kubelet need themselves."""
    directory: str = "/var/lib"
    """On the disk that pods write to."""
    thresholds: Thresholds = Thresholds()


def default_name() -> str:
    """The host's name as a node's name: in lower case."""
    return os.uname().nodename.strip().lower()
