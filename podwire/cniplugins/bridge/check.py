"""Whether a pod's link, and what belongs to it, is still as it was made. Changes nothing."""

from ipaddress import ip_interface

from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge.links import FORWARDING
from podwire.cniplugins.bridge.plugin import spoofing
from podwire.cniplugins.bridge.settings import Settings, gateway_of
from podwire.cniplugins.netfilter import Netfilter
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.values import MAIN, Link
from podwire.protocols.cni import results
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result
from podwire.protocols.cni.versions import LATEST


def check_all(netns: str, settings: Settings, record: Record, previous: Result, netfilter: Netfilter) -> None:
    made = results.decode(record.result, LATEST)
    with KernelNetwork() as host:
        check_host(host, settings, record, made)
        if settings.is_gateway:
            check_gateways(host, settings, made)
    with KernelNetwork(netns) as pod:
        check_pod(pod, netns, previous, made)
    if settings.ip_masq:
        check_masquerade(record, made, netfilter)
    spoofing.check_guard(netfilter, record, made.interfaces[-1].mac, [each.address.ip for each in made.ips])


def check_host(host: KernelNetwork, settings: Settings, record: Record, made: Result) -> None:
    """The bridge is one and up; the host's end is ours, up, and in it. Its MAC address may be changed by others."""
    bridge = _found(host, settings.bridge)
    _agree(bridge.kind == "bridge", f"{bridge.name} is no bridge")
    _agree(bridge.up, f"the bridge {bridge.name} is down")
    link = _found(host, record.link)
    _agree(record.marks(link.alias), f"{link.name} is not ours")
    _agree(link.up, f"{link.name} is down")
    _agree(link.master == bridge.ifindex, f"{link.name} is not in the bridge {bridge.name}")
    was = next((each.mtu for each in made.interfaces if each.name == link.name), 0)
    _agree(was in (0, link.mtu), f"{link.name} has the MTU {link.mtu} and not {was}")
    _agree(link.hairpin == settings.hairpin, f"hairpinMode of {link.name} was changed")
    _agree(link.isolated == settings.isolated, f"portIsolation of {link.name} was changed")


def check_gateways(host: KernelNetwork, settings: Settings, made: Result) -> None:
    """The bridge is still where pods send what is not for their network, and this host passes it on."""
    has = {each.interface for each in host.addresses.list(_found(host, settings.bridge).ifindex)}
    sysctls = KernelSysctls()
    for each in made.ips:
        if each.gateway is not None:
            gateway = ip_interface((each.gateway, each.address.network.prefixlen))
            _agree(gateway in has, f"{settings.bridge} has no address {gateway}")
            _agree(sysctls.read(FORWARDING[gateway.version]) == "1", f"{FORWARDING[gateway.version]} is not 1")


def check_pod(pod: KernelNetwork, netns: str, previous: Result, made: Result) -> None:
    """The pod's end, its addresses and routes are there; others may be, too."""
    told = made.interfaces[-1]
    told = next((each for each in previous.interfaces if each.name == told.name and each.sandbox == netns), told)
    _agree(told.sandbox == netns, f"prevResult is of the namespace {told.sandbox}")
    link = _found(pod, told.name)
    _agree(link.up, f"{link.name} is down")
    _agree(_same_mac(link, told), f"{link.name} has the MAC address {link.mac} and not {told.mac}")
    _agree(told.mtu in (0, link.mtu), f"{link.name} has the MTU {link.mtu} and not {told.mtu}")
    addresses = {each.interface for each in pod.addresses.list(link.ifindex)}
    for each in made.ips:
        _agree(each.address in addresses, f"{link.name} has no address {each.address}")
    for route in made.routes:
        there = pod.routes.list(route.dst.version, MAIN if route.table is None else route.table)
        gateway = gateway_of(route, made.ips)
        by = [each for each in there if each.destination == route.dst and gateway in (None, each.gateway)]
        _agree(bool(by), f"there is no route to {route.dst}" + (f" by {gateway}" if gateway else ""))
        asked = route.priority, route.mtu, route.advmss
        like = any(_alike(asked, (each.metric, each.mtu, each.advmss)) for each in by)
        _agree(like, f"metric, MTU or MSS of the route to {route.dst} was changed")


def _alike(asked: tuple[int, ...], has: tuple[int, ...]) -> bool:
    """0 asks for nothing."""
    return all(one in (0, other) for one, other in zip(asked, has, strict=True))


def check_masquerade(record: Record, made: Result, netfilter: Netfilter) -> None:
    sets = {f"{nat.MASQUERADE}{each.address.version}" for each in made.ips}
    keys = {each.key for found in nat.marked(sets, record.marks, netfilter.elements).values() for each in found}
    for each in made.ips:
        _agree(each.address.ip.packed in keys, f"{each.address.ip} is not masqueraded")


def _found(network: KernelNetwork, name: str) -> Link:
    try:
        return network.links.get(name)
    except linux.NoSuchLink as error:
        raise CniError(Code.NOT_AS_ADDED, f"there is no link {name}") from error


def _same_mac(link: Link, told: Interface) -> bool:
    return not told.mac or link.mac == told.mac.lower()


def _agree(right: bool, otherwise: str) -> None:
    if not right:
        raise CniError(Code.NOT_AS_ADDED, otherwise)
