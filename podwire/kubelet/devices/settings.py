"""How devices are managed."""

from dataclasses import dataclass, field

from podwire.kubelet.devices.plugin import Limits
from podwire.kubelet.devices.topology import BEST_EFFORT

AT_START, AT_ADMISSION = "container", "admission"
"""When plugins are asked to allocate: right before a container is made, or for all of a pod before its sandbox is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    grace: float = 300.0
    """Seconds that the Node goes on naming a resource whose plugin has gone."""
    allocate: str = AT_START
    topology: str = BEST_EFFORT
    """How near to each other the devices of a container have to be."""
    limits: Limits = field(default_factory=Limits)


DEFAULT = DeviceSettings()
