"""The devices of this node: their plugins register here, and pods are given what they want of them."""

from podwire.kubelet.devices.errors import DevicesNotReady
from podwire.kubelet.devices.manager import DeviceManager, Listeners
from podwire.kubelet.devices.run_options import DeviceRunOptions
from podwire.kubelet.devices.settings import DeviceSettings
from podwire.kubelet.devices.topology import TopologyAffinityError

__all__ = [
    "DeviceManager",
    "DeviceRunOptions",
    "DeviceSettings",
    "DevicesNotReady",
    "Listeners",
    "TopologyAffinityError",
]
