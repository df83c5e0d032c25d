"""Which link of this host is meant: by its name, its MAC address, its place in sysfs, its PCI or auxiliary address.

The runtime's `deviceID` is one of the two addresses, or the name of a link that has neither."""

import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from podwire.linux.values import Link
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, decode_dns
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import is_ifname

DEVICES = "/sys/devices/"
BUSES = {"pciBusID": "/sys/bus/pci/devices", "deviceID": "/sys/bus/auxiliary/devices"}
_USERSPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)


class Settings(NamedTuple):
    device: str = ""
    hwaddr: str = ""
    directory: str = ""
    """In sysfs; the names in its `net` are those of links."""
    dns: DNS = DNS()

    @property
    def told(self) -> str:
        return self.device or self.hwaddr or self.directory


def parse_settings(config: PluginConfig) -> Settings:
    """The first that is given, in this order; `deviceID` of the runtime goes before `pciBusID`."""
    raw = config.raw
    if taken(raw, "useInterfaceNetwork", bool, False):
        raise CniError(Code.UNSUPPORTED_FIELD, "useInterfaceNetwork: true is not supported by podwire's host-device")
    dns = decode_dns(taken(raw, "dns", dict, {}), "dns.")
    device, hwaddr = taken(raw, "device", str, ""), taken(raw, "hwaddr", str, "").lower()
    path = taken(raw, "kernelpath", str, "")
    if device:
        if not is_ifname(device):
            raise CniError(Code.BAD_CONFIG, f"device: {device!r} is no name of a link")
        return Settings(device=device, dns=dns)
    if hwaddr:
        if not _MAC.fullmatch(hwaddr):
            raise CniError(Code.BAD_CONFIG, f"hwaddr: {hwaddr!r} is no MAC address")
        return Settings(hwaddr=hwaddr, dns=dns)
    if path:
        path = os.path.normpath(path)
        if not f"{path}/".startswith(DEVICES):
            raise CniError(Code.BAD_CONFIG, f"kernelpath: {path} is not below {DEVICES}")
        return Settings(directory=path, dns=dns)
    asked = taken(config.runtime, "deviceid", str, "", "runtimeConfig.")
    if is_ifname(asked) and not any(os.path.isdir(os.path.join(each, asked)) for each in BUSES.values()):
        return Settings(device=asked, dns=dns)  # device plugins call a link without hardware by its name
    return Settings(directory=_on_bus(config), dns=dns)


def _on_bus(config: PluginConfig) -> str:
    """The directory of a PCI or auxiliary device."""
    asked = taken(config.runtime, "deviceid", str, "", "runtimeConfig.")
    name = asked or taken(config.raw, "pciBusID", str, "")
    if not name:
        raise CniError(Code.BAD_CONFIG, "one of device, hwaddr, kernelpath and pciBusID is needed")
    if "/" in name or name in (".", ".."):
        raise CniError(Code.BAD_CONFIG, f"pciBusID, deviceID: {name!r} is no address of a device")
    for key in BUSES if asked else ("pciBusID",):
        directory = os.path.join(BUSES[key], name)
        if os.path.isdir(directory):
            driver = os.path.basename(os.path.realpath(os.path.join(directory, "driver")))
            if driver in _USERSPACE:
                raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {name} is driven by {driver} and has no link")
            return directory
    raise CniError(Code.BAD_CONFIG, f"{'deviceID' if asked else 'pciBusID'}: there is no device {name}")


def chosen(settings: Settings, links: Iterable[Link], named: Callable[[str], list[str]] | None = None) -> Link | None:
    """The link that is meant; `named` tells which links sysfs has for a directory."""
    names = [settings.device] if settings.device else []
    if settings.directory:
        names = (named or links_in)(settings.directory)
    for each in links:
        if each.name in names or (settings.hwaddr and each.mac == settings.hwaddr):
            return each
    return None


def links_in(directory: str) -> list[str]:
    """The first link of a device; that of a virtio device is one floor deeper."""
    floors = [directory, *(os.path.join(directory, each) for each in _listed(directory) if each.startswith("virtio"))]
    found = [each for floor in floors for each in _listed(os.path.join(floor, "net"))]
    return found[:1]


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
