"""Selects the host link that a configuration means: by name, MAC address, path in sysfs, PCI or auxiliary address.

The runtime's `deviceID` is one of the two addresses, or the name of a link that has neither.
"""

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from podwire.cniplugins.pod_link import check_mac
from podwire.linux.values import Link
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, decode_dns
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import is_ifname

DEVICES = "/sys/devices/"
BUSES = {"pciBusID": "/sys/bus/pci/devices", "deviceID": "/sys/bus/auxiliary/devices"}
_USERSPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")


class Settings(NamedTuple):
    device: str = ""
    hwaddr: str = ""
    directory: str = ""
    """The device's directory in sysfs; its `net` has the names of links."""
    dns: DNS = DNS()

    @property
    def selector(self) -> str:
        return self.device or self.hwaddr or self.directory


def parse_settings(config: PluginConfig) -> Settings:
    """The first key that is given decides; `deviceID` of the runtime precedes `pciBusID`."""
    raw = config.raw
    if taken(raw, "useInterfaceNetwork", bool, False):
        raise CniError(Code.UNSUPPORTED_FIELD, "useInterfaceNetwork: true is not supported by podwire's host-device")
    dns = decode_dns(taken(raw, "dns", dict, {}), "dns.")
    device, hwaddr = taken(raw, "device", str, ""), taken(raw, "hwaddr", str, "").lower()
    path = taken(raw, "kernelpath", str, "")
    if device:
        if not is_ifname(device):
            raise CniError(Code.BAD_CONFIG, f"device: {device!r} is not a valid interface name")
        return Settings(device=device, dns=dns)
    if hwaddr:
        try:
            return Settings(hwaddr=check_mac(hwaddr, "hwaddr"), dns=dns)
        except CniError as error:
            message = f'failed to find host device: failed to parse MAC address "{hwaddr}": {error.msg}'
            raise CniError(error.code, message, error.details) from error
    if path:
        path = os.path.normpath(path)
        if not f"{path}/".startswith(DEVICES):
            message = f'kernel device path "{path}" must be absolute and begin with {DEVICES}'
            details = f"kernelpath: {path} is not below {DEVICES}"
            raise CniError(Code.BAD_CONFIG, f"failed to find host device: {message}", details)
        return Settings(directory=path, dns=dns)
    device_id = taken(config.runtime, "deviceid", str, "", "runtimeConfig.")
    if is_ifname(device_id) and not any(os.path.isdir(os.path.join(bus, device_id)) for bus in BUSES.values()):
        return Settings(device=device_id, dns=dns)  # the device id of a link without hardware is its name
    return Settings(directory=_find_on_bus(config, device_id), dns=dns)


def _find_on_bus(config: PluginConfig, device_id: str) -> str:
    """Returns the directory of a PCI or auxiliary device."""
    name = device_id or taken(config.raw, "pciBusID", str, "")
    if not name:
        raise CniError(Code.BAD_CONFIG, 'specify either "device", "hwaddr", "kernelpath" or "pciBusID"')
    if "/" in name or name in (".", ".."):
        raise CniError(Code.BAD_CONFIG, f"pciBusID, deviceID: {name!r} is not a device address")
    for key in BUSES if device_id else ("pciBusID",):
        directory = os.path.join(BUSES[key], name)
        if os.path.isdir(directory):
            driver = os.path.basename(os.path.realpath(os.path.join(directory, "driver")))
            if driver in _USERSPACE:
                raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {name} is driven by {driver} and has no link")
            return directory
    raise CniError(Code.BAD_CONFIG, f"{'deviceID' if device_id else 'pciBusID'}: device {name} does not exist")


def select_link(
    settings: Settings, links: Iterable[Link], list_names: Callable[[str], list[str]] | None = None
) -> Link | None:
    """Returns the link that is meant; `list_names` lists the links of a directory in sysfs."""
    names = [settings.device] if settings.device else []
    if settings.directory:
        names = (list_names or links_in)(settings.directory)
    for link in links:
        if link.name in names or (settings.hwaddr and link.mac == settings.hwaddr):
            return link
    return None


def links_in(directory: str) -> list[str]:
    """Returns the first link of a device; that of a virtio device is in a directory below."""
    levels = [directory, *(os.path.join(directory, name) for name in _listed(directory) if name.startswith("virtio"))]
    names = [name for level in levels for name in _listed(os.path.join(level, "net"))]
    return names[:1]


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
