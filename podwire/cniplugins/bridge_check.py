"""Whether a pod's link, and what belongs to it, is still as it was made. Changes nothing."""

from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge_settings import Settings, gateway_of
from podwire.cniplugins.netfilter import Netfilter
from podwire.linux import errors as linux
from podwire.linux.network import KernelNetwork
from podwire.linux.values import MAIN, Link
from podwire.protocols.cni import results
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result
from podwire.protocols.cni.versions import LATEST


def check_all(netns: str, settings: Settings, record: Record, previous: Result, netfilter: Netfilter) -> None:
    made = results.decode(record.result, LATEST)
    with KernelNetwork() as host:
        check_host(host, settings, record)
    with KernelNetwork(netns) as pod:
        check_pod(pod, netns, previous, made)
    if settings.ip_masq:
        check_masquerade(record, made, netfilter)


def check_host(host: KernelNetwork, settings: Settings, record: Record) -> None:
    """The bridge is one and up; the host's end is ours, up, and in it. Its MAC address may be changed by others."""
    bridge = _found(host, settings.bridge)
    _agree(bridge.kind == "bridge", f"{bridge.name} is no bridge")
    _agree(bridge.up, f"the bridge {bridge.name} is down")
    link = _found(host, record.link)
    _agree(record.marks(link.alias), f"{link.name} is not ours")
    _agree(link.up, f"{link.name} is down")
    _agree(link.master == bridge.ifindex, f"{link.name} is not in the bridge {bridge.name}")
    _agree(link.hairpin == settings.hairpin, f"hairpinMode of {link.name} was changed")
    _agree(link.isolated == settings.isolated, f"portIsolation of {link.name} was changed")


def check_pod(pod: KernelNetwork, netns: str, previous: Result, made: Result) -> None:
    """The pod's end, its addresses and routes are there; others may be, too."""
    told = made.interfaces[-1]
    told = next((each for each in previous.interfaces if each.name == told.name and each.sandbox == netns), told)
    _agree(told.sandbox == netns, f"prevResult is of the namespace {told.sandbox}")
    link = _found(pod, told.name)
    _agree(link.up, f"{link.name} is down")
    _agree(_same_mac(link, told), f"{link.name} has the MAC address {link.mac} and not {told.mac}")
    addresses = {each.interface for each in pod.addresses.list(link.ifindex)}
    for each in made.ips:
        _agree(each.address in addresses, f"{link.name} has no address {each.address}")
    for route in made.routes:
        there = pod.routes.list(route.dst.version, MAIN if route.table is None else route.table)
        gateway = gateway_of(route, made.ips)
        found = any(each.destination == route.dst and gateway in (None, each.gateway) for each in there)
        _agree(found, f"there is no route to {route.dst}" + (f" by {gateway}" if gateway else ""))


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
