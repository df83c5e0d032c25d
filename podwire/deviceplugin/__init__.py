"""Network devices as extended resources, in pools, for any kubelet with the device-plugin protocol."""

from podwire.deviceplugin.config import Config, load
from podwire.deviceplugin.inventory import Inventory
from podwire.deviceplugin.plugin import Paths, Plugin
from podwire.deviceplugin.ports import Kubelet

__all__ = ["Config", "Inventory", "Kubelet", "Paths", "Plugin", "load"]
