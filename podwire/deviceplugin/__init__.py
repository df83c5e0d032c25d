"""Network devices as extended resources: pools of them, offered to any kubelet by the device-plugin protocol."""

from podwire.deviceplugin.config import Config, load
from podwire.deviceplugin.inventory import Stock
from podwire.deviceplugin.plugin import Paths, Plugin
from podwire.deviceplugin.ports import Kubelet

__all__ = ["Config", "Kubelet", "Paths", "Plugin", "Stock", "load"]
