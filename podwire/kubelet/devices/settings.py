"""Settings of the device manager."""

from dataclasses import dataclass, field

from podwire.kubelet.devices.plugin import Limits
from podwire.kubelet.devices.topology import BEST_EFFORT

AT_START, AT_ADMISSION = "container", "admission"
"""When plugins allocate: right before a container is created, or for the whole pod before its sandbox is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    grace: float = 300.0
    """Seconds for which the Node keeps a resource whose plugin is gone."""
    allocate: str = AT_START
    topology: str = BEST_EFFORT
    """Topology policy: the NUMA alignment of a container's devices."""
    limits: Limits = field(default_factory=Limits)


DEFAULT = DeviceSettings()
