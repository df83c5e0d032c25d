"""Configuration of the macvlan plugin. Pure."""

from typing import NamedTuple

from podwire.cniplugins.pod_link import check_mac, requested_mac
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, decode_dns
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import Invocation, is_ifname

MODES = ("bridge", "private", "vepa", "passthru")
_LONGEST_QUEUE = (1 << 32) - 1


class Settings(NamedTuple):
    master: str = ""
    """Empty: the link of the default route."""
    mode: str = "bridge"
    mtu: int = 0
    """0 is that of the master."""
    mac: str = ""
    in_container: bool = False
    """Whether the master is a link of the pod."""
    queue: int = 0
    dns: DNS = DNS()


def parse_settings(config: PluginConfig, invocation: Invocation) -> Settings:
    raw = config.raw
    settings = Settings(
        master=taken(raw, "master", str, ""),
        mode=taken(raw, "mode", str, "") or "bridge",
        mtu=taken(raw, "mtu", int, 0),
        mac=requested_mac(config, invocation) or check_mac(taken(raw, "mac", str, ""), "mac"),
        in_container=taken(raw, "linkInContainer", bool, False),
        queue=taken(raw, "bcqueuelen", int, 0),
        dns=decode_dns(taken(raw, "dns", dict, {}), "dns."),
    )
    if settings.master and not is_ifname(settings.master):
        raise CniError(Code.BAD_CONFIG, f"master: {settings.master!r} is not a valid interface name")
    if settings.mode not in MODES:
        message = f'unknown macvlan mode: "{settings.mode}"'
        raise CniError(Code.BAD_CONFIG, message, f"mode: {settings.mode!r} must be one of {', '.join(MODES)}")
    if not 0 <= settings.queue <= _LONGEST_QUEUE:
        raise CniError(Code.BAD_CONFIG, f"bcqueuelen: {settings.queue} is not between 0 and {_LONGEST_QUEUE}")
    return settings
