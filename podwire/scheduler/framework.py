"""What a filter is: it looks at a pod once, then judges nodes."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot


class Happening(enum.Flag):
    """What happens in a cluster and may make room for a pod that found none."""

    NODE = enum.auto()
    """A node came, went, or changed in what a filter looks at."""
    POD_GONE = enum.auto()
    """A pod was deleted, ended, or holds less."""
    POD_CAME = enum.auto()
    """A pod was placed, or has other labels."""
    DEVICES = enum.auto()
    """A claim, a device, a class of devices or a rule about them came, went or changed."""


NOTHING = Happening(0)
ANYTHING = Happening.NODE | Happening.POD_GONE | Happening.POD_CAME

Judge = Callable[[NodeInfo], Sequence[str]]
"""The reasons why a node will not do, in the words that users see; none when it will."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No node at all will do, whatever it is like."""

    why: str
    quiet: bool = False
    """Somebody is at work on it already: no Event is needed."""


class Hopeless(Exception):
    """Raised by a judge: what it met on a node keeps the pod from every node."""


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    prepare: Callable[[PodInfo, Snapshot], Judge | Refused | None]
    """None when the pod does not ask for what this filter is about."""
    helped_by: Happening
    """What may make a node pass that did not."""
    tell: Callable[[PodInfo, Snapshot, Sequence[NodeInfo]], str] | None = None
    """More than the reasons say, of nodes that failed, in sentences."""
