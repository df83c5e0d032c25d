"""The interface of a filter plugin: it looks at a pod once, then at each node."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot


class ClusterEvent(enum.Flag):
    """Cluster events that may make an unschedulable pod schedulable."""

    NODE = enum.auto()
    """A node was added, removed, or changed in what a filter looks at."""
    POD_GONE = enum.auto()
    """A pod was deleted, finished, or requests less."""
    POD_CAME = enum.auto()
    """A pod was placed, or its labels changed."""
    DEVICES = enum.auto()
    """A claim, device, device class or taint rule was added, removed or changed."""
    VOLUMES = enum.auto()
    """A volume, volume claim or storage class was added, removed or changed."""


NOTHING = ClusterEvent(0)
ANYTHING = ClusterEvent.NODE | ClusterEvent.POD_GONE | ClusterEvent.POD_CAME

Reasons = Sequence[str]
"""Why a node does not fit, in the words that users see; empty when it fits."""


class Unresolvable(tuple[str, ...]):
    """Reasons that remain whichever pods leave the node: preemption is not tried there."""

    __slots__ = ()


NodeFilter = Callable[[NodeInfo], Reasons]


@dataclass(frozen=True, slots=True)
class Rejected:
    """No node can fit, regardless of its state."""

    why: str
    quiet: bool = False
    """Another component is already working on it: no Event is needed."""


class FilterAborted(Exception):
    """Raised by a node filter: the problem on one node excludes all nodes."""


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    prepare: Callable[[PodInfo, Snapshot], NodeFilter | Rejected | None]
    """Returns None when the pod does not use what this filter is about."""
    retry_on: ClusterEvent
    """Cluster events that may make a failed node pass."""
    explain: Callable[[PodInfo, Snapshot, Sequence[NodeInfo]], str] | None = None
    """Explains failed nodes in more detail than the reasons do."""
    local: bool = False
    """Its result depends on the pod and on one node with its pods, on nothing else."""
