"""Configuration of the ptp plugin. Pure."""

from typing import NamedTuple

from podwire.cniplugins.ipam_delegate import ipam_type
from podwire.cniplugins.masquerading import check_backend
from podwire.cniplugins.pod_link import check_mtu
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, overriding_dns
from podwire.protocols.cni.values import taken


class Settings(NamedTuple):
    ip_masq: bool = False
    mtu: int = 0
    """0 is the kernel's default."""
    dns: DNS | None = None
    """None is that of IPAM."""


def parse_settings(config: PluginConfig) -> Settings:
    raw = config.raw
    settings = Settings(
        ip_masq=taken(raw, "ipMasq", bool, False),
        mtu=taken(raw, "mtu", int, 0),
        dns=overriding_dns(taken(raw, "dns", dict, {}), "dns."),
    )
    check_backend(raw)
    check_mtu(settings.mtu)
    if not ipam_type(raw):
        raise CniError(Code.BAD_CONFIG, "no plugin name provided", "ipam.type: missing; ptp needs addresses")
    return settings
