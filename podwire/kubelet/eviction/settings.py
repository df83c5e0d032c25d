"""Settings of the eviction manager."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from podwire.kubelet.eviction.thresholds import Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """Times in seconds. The thresholds are settings of the node, because they reduce what is allocatable."""

    period: float = 10.0
    """Between two looks at the node, unless the kernel reports memory pressure earlier."""
    transition_period: float = 300.0
    """A condition of pressure stays for this long after it was last observed, so that it does not flap."""
    grace: int = 1
    """Grace period of the containers of an evicted pod."""
    soft: tuple[Threshold, ...] = ()
    """Soft thresholds; they do not reduce what is allocatable."""
    soft_grace: int = 0
    """The longest grace period of the containers of a pod that is evicted for a soft threshold."""
    minimum_reclaim: Mapping[str, Threshold] = field(default_factory=dict)
    """By signal: how much more than its threshold must be available until eviction ends."""
    cleanup: float = 30.0
    """How long the next eviction waits until an evicted pod is removed from the node."""
    call: float = 60.0
    """Timeout of a call to the runtime: it may have to measure the layers of containers."""
    rest: float = 20.0
    """A pod is measured again no earlier than this many times the time that measuring it took."""
