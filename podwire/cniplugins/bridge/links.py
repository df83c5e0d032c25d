"""The bridge itself and its gateway addresses."""

import os
from contextlib import suppress

from podwire.cniplugins.bridge.settings import Plan, Settings
from podwire.cniplugins.pod_link import write_ipv6
from podwire.cniplugins.veth import enable_forwarding
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Interface, Link
from podwire.protocols.cni.errors import CniError, Code

OURS = "podwire"
"""The alias of bridges that this plugin made."""


def ensure_bridge(host: KernelNetwork, settings: Settings) -> Link:
    """Returns the bridge, made if it does not exist, with a MAC address of its own instead of one of its ports'."""
    try:
        bridge = host.links.get(settings.bridge)
    except linux.NoSuchLink:
        mac = (b"\x0a\x58" + os.urandom(4)).hex(":")
        with suppress(linux.LinkExists):  # the ADD of another pod made it at the same time
            host.links.add(Bridge(settings.bridge, settings.mtu, mac, alias=OURS))
        bridge = host.links.get(settings.bridge)
    check_kind(bridge)
    if bridge.alias != OURS and settings.is_gateway:
        host.links.change(
            bridge.ifindex, mac=bridge.mac
        )  # else it takes the lowest one of its ports, as pods come and go
    if bridge.alias == OURS and not bridge.up:  # also one whose maker was killed before this
        write_ipv6(None, bridge.name, accept_ra="0", accept_dad="0")
    if not bridge.up or (settings.promiscuous and not bridge.promiscuous):
        host.links.change(bridge.ifindex, up=True, promiscuous=True if settings.promiscuous else None)
    return bridge


def check_kind(bridge: Link) -> None:
    if bridge.kind != "bridge":
        message = f'failed to create bridge "{bridge.name}": "{bridge.name}" already exists but is not a bridge'
        raise CniError(Code.IN_USE, message, "bridge")


def add_gateways(host: KernelNetwork, bridge: Link, settings: Settings, plan: Plan) -> None:
    """Adds the gateway addresses to the bridge and enables forwarding. Conflicting addresses need `forceAddress`."""
    present = [address.interface for address in host.addresses.list(bridge.ifindex)]
    for gateway in plan.gateways:
        if gateway not in present:
            for other in _conflicting(gateway, present, plan.gateways):
                if not settings.force_address:
                    message = f'"{bridge.name}" already has an IP address different from {gateway}'
                    raise CniError(Code.IN_USE, message, f"it has {other}; forceAddress replaces it")
                with suppress(linux.NoSuchAddress):
                    host.addresses.delete(bridge.ifindex, other)
            with suppress(linux.AddressExists):
                host.addresses.add(bridge.ifindex, gateway)
    enable_forwarding({gateway.version for gateway in plan.gateways})


def _conflicting(gateway: Interface, present: list[Interface], gateways: tuple[Interface, ...]) -> list[Interface]:
    """Returns addresses that exclude a gateway: other IPv4 addresses, and IPv6 addresses of an overlapping network."""
    others = [address for address in present if address.version == gateway.version and address not in gateways]
    if gateway.version == 4:
        return others
    return [other for other in others if other.network.overlaps(gateway.network) and not other.is_link_local]
