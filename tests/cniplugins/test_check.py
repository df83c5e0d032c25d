"""CHECK: whatever is not as ADD made it is noticed, nothing else is, and nothing is changed."""

import subprocess
from ipaddress import ip_interface, ip_network

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.values import Change
from podwire.linux.values import Route

MAPPING = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


@pytest.fixture
def pod(host):
    """Attached with all that can be checked: its namespace, its configurations, its result."""
    config = host.bridge("10.88.0.0/24", "fd88::/64", ipMasq=True, mtu=1400)
    config["ipam"]["routes"] = [{"dst": "10.99.0.0/16", "mtu": 1300, "priority": 7}]

    def attach():
        path = host.pod("a")
        result = host.add("a", config)
        ports = host.portmap(result, MAPPING)
        host.add("a", ports)
        return path, config, ports, result

    return attach


def tamper(what, path, result):
    link = result["interfaces"][1]["name"]
    with KernelNetwork() as here, KernelNetwork(path) as there:
        match what:
            case "MTU of the host's end":
                here.links.change(link, mtu=1390)
            case "MTU of the pod's end":
                there.links.change("eth0", mtu=1390)
            case "gateway":
                here.addresses.delete(here.links.get("cni0").ifindex, ip_interface("fd88::1/64"))
            case "forwarding":
                KernelSysctls().write("net.ipv4.ip_forward", "0")
            case "MTU of a route":
                [old] = [route for route in there.routes.list(4) if route.destination == ip_network("10.99.0.0/16")]
                there.routes.delete(old)
                there.routes.add(Route(old.destination, old.gateway, old.ifindex, metric=7, mtu=1200))
            case "hairpin":
                here.links.set_port(here.links.get(link).ifindex, hairpin=True, isolated=False)
            case "a family's masquerading":
                remap("masquerade6", None)
            case "port map":
                remap("ports4", None)
            case "port map's target":
                remap("ports4", b"\x0a\x58\x00\x63\x00\x50\x00\x00")


def remap(name, data):
    table = KernelElements()
    try:
        found = table.list(name)
        table.change(Change(name, delete=found))
        if data is not None:
            table.change(Change(name, add=[item._replace(data=data) for item in found]))
    finally:
        table.close()


@pytest.mark.parametrize(
    ("what", "reported"),
    [
        ("MTU of the host's end", "has the MTU 1390, expected 1400"),
        ("MTU of the pod's end", "eth0 has the MTU 1390, expected 1400"),
        ("gateway", "cni0 does not have the address fd88::1/64"),
        ("forwarding", "net.ipv4.ip_forward is not 1"),
        ("MTU of a route", "metric, MTU or MSS of the route to 10.99.0.0/16"),
        ("hairpin", "hairpinMode"),
        ("a family's masquerading", "fd88::2 is not masqueraded"),
        ("port map", "host port tcp 8080 is no longer mapped"),
        ("port map's target", "host port tcp 8080 is no longer mapped"),
    ],
)
def test_check_notices_every_change(host, pod, refused, what, reported):
    path, config, ports, result = pod()
    host.check("a", config, result)
    host.check("a", ports, result)
    tamper(what, path, result)
    with refused(101, reported):
        host.check("a", config, result)
        host.check("a", ports, result)


def everything(host):
    ruleset = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    files = {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
        for top in ("ipam", "records")
        for path in (host.root / top).rglob("*")
    }
    return ruleset, links, files


def test_check_changes_nothing(host, pod):
    _, config, ports, result = pod()
    before = everything(host)
    for _ in range(2):
        host.check("a", config, result)
        host.check("a", ports, result)
    assert everything(host) == before


def test_check_reports_a_damaged_record_and_keeps_it(host, pod, refused):
    _, config, ports, result = pod()
    for path in host.records.glob("*/net@a@eth0"):
        path.write_bytes(b"{")
    before = everything(host)
    with refused(101, "bridge cannot read its record"):
        host.check("a", config, result)
    with refused(101, "portmap cannot read its record"):
        host.check("a", ports, result)
    assert everything(host) == before
