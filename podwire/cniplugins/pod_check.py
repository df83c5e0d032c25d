"""CHECK of the pod's end of a link, shared by all plugins that make one. Changes nothing."""

from podwire.cniplugins.pod_link import gateway_of
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import MAIN, Link
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result, Route


def expect(condition: bool, otherwise: str) -> None:
    """Raises code 101 with a message if something is not as ADD made it."""
    if not condition:
        raise CniError(Code.NOT_AS_ADDED, otherwise)


def expect_link(network: KernelNetwork, name: str) -> Link:
    try:
        return network.links.get(name)
    except linux.NoSuchLink as error:
        raise CniError(Code.NOT_AS_ADDED, f"link {name} does not exist") from error


def check_pod(pod: KernelNetwork, netns: str, previous: Result, made: Result, *, up: bool = True) -> None:
    """Expects the pod's interface with the addresses and routes of ADD; there may be others.

    MAC address and MTU are those of `prevResult`: a later plugin of the chain may have changed them.
    """
    expected = made.interfaces[-1]
    reported = (link for link in previous.interfaces if link.name == expected.name and link.sandbox == netns)
    expected = next(reported, expected)
    expect(expected.sandbox == netns, f"prevResult is of the namespace {expected.sandbox}")
    link = expect_link(pod, expected.name)
    expect(link.up or not up, f"{link.name} is down")
    same_mac = not expected.mac or link.mac == expected.mac.lower()
    expect(same_mac, f"{link.name} has the MAC address {link.mac}, expected {expected.mac}")
    expect(expected.mtu in (0, link.mtu), f"{link.name} has the MTU {link.mtu}, expected {expected.mtu}")
    addresses = {address.interface for address in pod.addresses.list(link.ifindex)}
    for ip in made.ips:
        expect(ip.address in addresses, f"{link.name} does not have the address {ip.address}")
    for route in made.routes:
        _check_route(pod, route, made)


def _check_route(pod: KernelNetwork, route: Route, made: Result) -> None:
    gateway = gateway_of(route, made.ips)
    table = MAIN if route.table is None else route.table
    present = [
        candidate
        for candidate in pod.routes.list(route.dst.version, table)
        if candidate.destination == route.dst and gateway in (None, candidate.gateway)
    ]
    via = f" via {gateway}" if gateway else ""
    expect(bool(present), f"the route to {route.dst}{via} does not exist")
    requested = route.priority, route.mtu, route.advmss
    alike = any(_matches(requested, (candidate.metric, candidate.mtu, candidate.advmss)) for candidate in present)
    expect(alike, f"metric, MTU or MSS of the route to {route.dst} was changed")


def _matches(requested: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    """0 requests nothing."""
    return all(want in (0, have) for want, have in zip(requested, actual, strict=True))
