"""What a bridge's configuration asks for, and what follows from the addresses that a pod gets. Pure."""

import re
from ipaddress import ip_interface, ip_network
from typing import NamedTuple

from podwire.cniplugins.bridge.plugin import spoofing
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, decode_dns
from podwire.protocols.cni.values import Address, Interface, Object, looked_up, taken
from podwire.protocols.cni.verbs import Invocation, is_ifname

ARGS = ("MAC", "IP", "GATEWAY")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", re.ASCII)
_REFUSED: dict[str, tuple[object, ...]] = {
    "vlan": (0,),
    "vlanTrunk": ([],),
    "preserveDefaultVlan": (False, True),
    "enabledad": (False,),
    "disableContainerInterface": (False,),
    "ipMasqBackend": ("", "nftables"),
}
"""Keys of the reference plugin that this one does not have, with the values that make no difference."""
_LARGEST_MTU = 65535


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
    dns: DNS = DNS()
    mac: str = ""


def parse_settings(config: PluginConfig, invocation: Invocation) -> Settings:
    raw = config.raw
    _refuse(raw)
    spoofing.guard_of(raw)  # what is no boolean is told before anything is done
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
        dns=decode_dns(taken(raw, "dns", dict, {}), "dns."),
        mac=wanted_mac(config, invocation),
    )
    if not is_ifname(settings.bridge):
        raise CniError(Code.BAD_CONFIG, f"bridge: {settings.bridge!r} is no name for a link")
    if not 0 <= settings.mtu <= _LARGEST_MTU:
        raise CniError(Code.BAD_CONFIG, f"mtu: {settings.mtu} is not between 0 and {_LARGEST_MTU}")
    if settings.hairpin and settings.promiscuous:
        raise CniError(Code.BAD_CONFIG, "hairpinMode and promiscMode exclude each other")
    return settings


def _refuse(raw: Object) -> None:
    for key, harmless in _REFUSED.items():
        value = looked_up(raw, key)
        if value is not None and value not in harmless:
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {value!r} is not supported by podwire's bridge")


def wanted_mac(config: PluginConfig, invocation: Invocation) -> str:
    """The MAC address that is asked for: by capability, else by `args.cni`, else by CNI_ARGS."""
    given = (
        taken(config.runtime, "mac", str, "", "runtimeConfig.")
        or taken(config.args, "mac", str, "", "args.cni.")
        or args.parsed(invocation.args, ARGS).get("MAC", "")
    )
    if given and not _MAC.fullmatch(given):
        raise CniError(Code.BAD_CONFIG, f"mac: {given!r} is no MAC address")
    return given.lower()


class Plan(NamedTuple):
    """What a pod's addresses mean for its link and for the bridge."""

    ips: tuple[IP, ...] = ()
    gateways: tuple[Interface, ...] = ()
    """Addresses of the bridge."""
    routes: tuple[Route, ...] = ()
    mac: str = ""
    dns: DNS = DNS()


def planned(settings: Settings, given: Result, link: int) -> Plan:
    """`link` is the place of the pod's interface in the result."""
    ips = tuple(_with_gateway(each, settings)._replace(interface=link) for each in given.ips)
    routes = given.routes + (_default_routes(ips, given.routes) if settings.is_default_gateway else ())
    gateways = tuple(
        ip_interface((each.gateway, each.address.network.prefixlen)) for each in ips if each.gateway is not None
    )
    return Plan(
        ips=ips,
        gateways=gateways if settings.is_gateway else (),
        routes=routes,
        mac=settings.mac or mac_of(ips),
        dns=settings.dns if settings.dns != DNS() else given.dns,
    )


def _with_gateway(ip: IP, settings: Settings) -> IP:
    if ip.gateway is not None or not settings.is_gateway:
        return ip
    return ip._replace(gateway=ip.address.network.network_address + 1)


def _default_routes(ips: tuple[IP, ...], routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """One for each family that has none with a gateway yet."""
    has = {each.dst.version for each in routes if each.dst.prefixlen == 0 and each.gw is not None}
    missing: dict[int, Route] = {}
    for each in ips:
        if each.gateway is not None and each.gateway.version not in has:
            anywhere = ip_network("0.0.0.0/0" if each.gateway.version == 4 else "::/0")
            missing.setdefault(each.gateway.version, Route(anywhere, each.gateway))
    return tuple(missing.values())


def gateway_of(route: Route, ips: tuple[IP, ...]) -> Address | None:
    """A route without a gateway goes by that of the first address of its family."""
    if route.gw is not None:
        return route.gw
    return next((each.gateway for each in ips if each.address.version == route.dst.version and each.gateway), None)


def mac_of(ips: tuple[IP, ...]) -> str:
    """A MAC address that follows from the IP address, so that nobody remembers a wrong one when an address is given
    to the next pod. Empty, for the kernel to choose, without addresses."""
    first = next((each for each in ips if each.address.version == 4), ips[0] if ips else None)
    return "" if first is None else (b"\x0a\x58" + first.address.ip.packed[-4:]).hex(":")
