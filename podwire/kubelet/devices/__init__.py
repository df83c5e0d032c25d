"""The device manager: device plugins register here, and pods are given the devices that they request."""

from podwire.kubelet.devices.errors import DevicesNotReady
from podwire.kubelet.devices.manager import DeviceManager
from podwire.kubelet.devices.run_options import DeviceRunOptions
from podwire.kubelet.devices.settings import DeviceSettings
from podwire.kubelet.devices.topology import TopologyAffinityError

__all__ = ["DeviceManager", "DeviceRunOptions", "DeviceSettings", "DevicesNotReady", "TopologyAffinityError"]
