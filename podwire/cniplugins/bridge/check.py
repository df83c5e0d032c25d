"""CHECK of the host's side of the bridge plugin. Changes nothing."""

from ipaddress import ip_interface

from podwire.cniplugins import masquerading
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge import spoofing
from podwire.cniplugins.bridge.settings import Settings
from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.pod_check import expect, expect_link
from podwire.cniplugins.veth import FORWARDING
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft import port_guard
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.versions import LATEST


def check_host(host: KernelNetwork, settings: Settings, record: Record, netfilter: Netfilter) -> None:
    made = results.decode(record.result, LATEST)
    bridge = expect_link(host, settings.bridge)
    expect(bridge.kind == "bridge", f"{bridge.name} is not a bridge")
    expect(bridge.up, f"the bridge {bridge.name} is down")
    port = expect_link(host, record.link)
    _check_port(port, bridge, settings, record, made)
    if port.group == port_guard.GROUP:
        expect(
            port_guard.is_guarding(netfilter.elements),
            f"{port.name} is not guarded: the nft chain {port_guard.CHAIN} is missing",
        )
    if settings.is_gateway:
        _check_gateways(host, bridge, made)
    if settings.ip_masq:
        masquerading.check_masqueraded(netfilter, record, made.ips)
    spoofing.check_guard(netfilter, record, made.interfaces[-1].mac, [ip.address.ip for ip in made.ips])


def _check_port(link: Link, bridge: Link, settings: Settings, record: Record, made: Result) -> None:
    """Expects the host's end as it was made; its MAC address may be changed by others."""
    expect(record.owns(link.alias), f"{link.name} is not ours")
    expect(link.up, f"{link.name} is down")
    expect(link.master == bridge.ifindex, f"{link.name} is not a port of the bridge {bridge.name}")
    mtu = next((interface.mtu for interface in made.interfaces if interface.name == link.name), 0)
    expect(mtu in (0, link.mtu), f"{link.name} has the MTU {link.mtu}, expected {mtu}")
    expect(link.hairpin == settings.hairpin, f"hairpinMode of {link.name} was changed")
    expect(link.isolated == settings.isolated, f"portIsolation of {link.name} was changed")


def _check_gateways(host: KernelNetwork, bridge: Link, made: Result) -> None:
    """Expects the bridge to have the gateways' addresses, and the host to forward."""
    present = {address.interface for address in host.addresses.list(bridge.ifindex)}
    sysctls = KernelSysctls()
    for ip in made.ips:
        if ip.gateway is not None:
            gateway = ip_interface((ip.gateway, ip.address.network.prefixlen))
            expect(gateway in present, f"{bridge.name} does not have the address {gateway}")
            forwarding = FORWARDING[gateway.version]
            expect(sysctls.read(forwarding) == "1", f"{forwarding} is not 1")
