"""Configuration of the bridge plugin, and what follows from the addresses that a pod gets. Pure."""

from ipaddress import ip_interface, ip_network
from typing import NamedTuple

from podwire.cniplugins import masquerading
from podwire.cniplugins.bridge import spoofing
from podwire.cniplugins.ipam_delegate import ipam_type
from podwire.cniplugins.pod_link import check_mtu, mac_from_address, requested_mac
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, overriding_dns
from podwire.protocols.cni.values import Interface, Object, looked_up, taken
from podwire.protocols.cni.verbs import Invocation, is_ifname

_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "vlan": (0,),
    "vlanTrunk": ([],),
    "preserveDefaultVlan": (False, True),
    "enabledad": (False,),
}
"""Keys of the reference plugin that this one does not have, with the values that make no difference."""


class Settings(NamedTuple):
    bridge: str = "cni0"
    is_gateway: bool = False
    is_default_gateway: bool = False
    force_address: bool = False
    ip_masq: bool = False
    mtu: int = 0
    """0 is the kernel's default."""
    hairpin: bool = False
    promiscuous: bool = False
    isolated: bool = False
    disabled: bool = False
    """Whether the pod's end stays down (`disableContainerInterface`): a program of the pod sets it up."""
    trusted: bool = False
    """Whether a pod may be a DHCP server or a router for others; see `linux/nft/port_guard.py`."""
    dns: DNS | None = None
    """None is that of IPAM."""
    mac: str = ""


def parse_settings(config: PluginConfig, invocation: Invocation) -> Settings:
    raw = config.raw
    for key, harmless in _UNSUPPORTED.items():
        value = looked_up(raw, key)
        if value is not None and value not in harmless:
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {value!r} is not supported by podwire's bridge")
    spoofing.parse_guard(raw)  # raises for a value of a wrong type
    masquerading.check_backend(raw)
    default = taken(raw, "isDefaultGateway", bool, False)
    settings = Settings(
        bridge=taken(raw, "bridge", str, "") or "cni0",
        is_gateway=taken(raw, "isGateway", bool, False) or default,
        is_default_gateway=default,
        force_address=taken(raw, "forceAddress", bool, False),
        ip_masq=taken(raw, "ipMasq", bool, False),
        mtu=taken(raw, "mtu", int, 0),
        hairpin=taken(raw, "hairpinMode", bool, False),
        promiscuous=taken(raw, "promiscMode", bool, False),
        isolated=taken(raw, "portIsolation", bool, False),
        disabled=is_disabled(raw),
        trusted=taken(raw, "trustedPort", bool, False),
        dns=overriding_dns(taken(raw, "dns", dict, {}), "dns."),
        mac=requested_mac(config, invocation),
    )
    if not is_ifname(settings.bridge):
        raise CniError(Code.BAD_CONFIG, f"bridge: {settings.bridge!r} is not a valid interface name")
    check_mtu(settings.mtu)
    if settings.hairpin and settings.promiscuous:
        message = "cannot set hairpin mode and promiscuous mode at the same time"
        raise CniError(Code.BAD_CONFIG, message, "hairpinMode, promiscMode")
    if settings.disabled and ipam_type(raw):
        message = "cannot use IPAM when DisableContainerInterface flag is set"
        raise CniError(Code.BAD_CONFIG, message, "disableContainerInterface")
    return settings


def is_disabled(raw: Object) -> bool:
    return taken(raw, "disableContainerInterface", bool, False)


class Plan(NamedTuple):
    """Addresses, routes and MAC address of the pod's link, and gateways of the bridge."""

    ips: tuple[IP, ...] = ()
    gateways: tuple[Interface, ...] = ()
    """Addresses of the bridge."""
    routes: tuple[Route, ...] = ()
    mac: str = ""
    dns: DNS = DNS()


def make_plan(settings: Settings, given: Result, interface: int) -> Plan:
    """`interface` is the index of the pod's interface in the result."""
    ips = tuple(_with_gateway(ip, settings)._replace(interface=interface) for ip in given.ips)
    gateways = [ip_interface((ip.gateway, ip.address.network.prefixlen)) for ip in ips if ip.gateway is not None]
    return Plan(
        ips=ips,
        gateways=tuple(gateways) if settings.is_gateway else (),
        routes=given.routes + (_default_routes(ips, given.routes) if settings.is_default_gateway else ()),
        mac=settings.mac or mac_from_address(ips),
        dns=given.dns if settings.dns is None else settings.dns,
    )


def _with_gateway(ip: IP, settings: Settings) -> IP:
    if ip.gateway is not None or not settings.is_gateway:
        return ip
    return ip._replace(gateway=ip.address.network.network_address + 1)


def _default_routes(ips: tuple[IP, ...], routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Returns a default route for each family without one that has a gateway."""
    present = {route.dst.version for route in routes if route.dst.prefixlen == 0 and route.gw is not None}
    missing: dict[int, Route] = {}
    for ip in ips:
        if ip.gateway is not None and ip.gateway.version not in present:
            anywhere = ip_network("0.0.0.0/0" if ip.gateway.version == 4 else "::/0")
            missing.setdefault(ip.gateway.version, Route(anywhere, ip.gateway))
    return tuple(missing.values())
