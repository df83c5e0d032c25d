"""Beside the plugins that everybody uses: the same results, the same kernel, and each works with the other."""

import shutil
import socket
from pathlib import Path

import pytest

from podwire.linux.net.network import KernelNetwork

PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")


@pytest.fixture(scope="session")
def reference():
    found = next((place for place in PLACES if (place / "bridge").exists()), None)
    assert found is not None, "scripts/setup unpacks the reference plugins"
    return found


@pytest.fixture
def mixed(tmp_path, programs, reference):
    """A directory with our programs but for those that are named."""

    def make(**theirs):
        directory = tmp_path / "mixed"
        shutil.copytree(programs, directory)
        for their in theirs:
            shutil.copy(reference / their.replace("_", "-"), directory / their.replace("_", "-"))
        return directory

    return make


def seen(netns):
    """Kernel objects of a pod, without what the kernel makes by itself."""
    with KernelNetwork(netns) as pod:
        link = pod.links.get("eth0")
        addresses = {str(address.interface) for address in pod.addresses.list(link.ifindex)}
        routes = {
            (str(route.destination), str(route.gateway)) for family in (4, 6) for route in pod.routes.list(family)
        }
    linklocal = {address for address in addresses if address.startswith("fe80")}
    return link.up, link.mtu, addresses - linklocal, {route for route in routes if not route[0].startswith("fe80")}


def reported(result):
    """A result without what differs by chance: MAC addresses and the name of the host's end."""
    names = [(each["name"] if at != 1 else "", each.get("sandbox", "")) for at, each in enumerate(result["interfaces"])]
    return {**result, "interfaces": names, "dns": result.get("dns", {})}


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"isDefaultGateway": True}, id="default gateway"),
        pytest.param({"isDefaultGateway": False, "isGateway": True}, id="gateway"),
        pytest.param({"isDefaultGateway": False, "mtu": 1400}, id="a bare bridge"),
    ],
)
def test_the_same_configuration_gives_the_same_network(host, reference, version, keys, programs):
    host.way = "program"
    config = host.bridge("10.88.0.0/24", "fd88::/64", cniVersion=version, **keys)
    config["ipam"]["routes"] = [{"dst": "10.99.0.0/16"}]
    outcomes = []
    for place in (programs, reference):
        host.programs = place
        path = host.pod("a")
        ours = config | {"bridge": f"br-{place.name}", "name": place.name}
        result = host.add("a", ours)
        outcomes.append((reported(result) | {"interfaces": reported(result)["interfaces"][1:]}, seen(path)))
        if version != "0.3.1" and place == programs:  # theirs does not find a route that it gave a gateway itself
            host.check("a", ours, result)
        host.delete("a", ours)
        host.namespaces.remove("a")
        with KernelNetwork() as here:
            here.links.delete(f"br-{place.name}")
    assert outcomes[0] == outcomes[1]


def test_our_bridge_uses_their_host_local(host, mixed):
    host.programs, host.way = mixed(host_local=True), "program"
    host.pod("a")
    config = host.bridge("10.88.0.0/24", "fd88::/64", cniVersion="1.0.0")
    result = host.add("a", config)
    assert [address["address"] for address in result["ips"]] == ["10.88.0.2/24", "fd88::2/64"]
    assert (host.leases / "10.88.0.2").read_bytes() == b"a\r\neth0"
    host.check("a", config, result)
    host.delete("a", config, "")
    assert host.left() == {}


def test_their_bridge_uses_our_host_local(host, mixed):
    host.programs, host.way = mixed(bridge=True), "program"
    host.pod("a")
    config = host.bridge("10.88.0.0/24", cniVersion="1.0.0")
    result = host.add("a", config)
    assert (host.leases / "10.88.0.2").is_symlink()
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}


def test_leases_of_the_reference_plugin_are_respected_and_released(host, mixed, programs, reference):
    host.way = "program"
    config = {"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": host.bridge()["ipam"]}
    host.programs = reference
    assert host.add("old", config)["ips"][0]["address"] == "10.88.0.2/24"
    host.programs = programs
    assert host.add("new", config)["ips"][0]["address"] == "10.88.0.3/24"
    host.delete("old", config)
    host.delete("new", config)
    assert host.left() == {}


def test_our_port_maps_follow_their_bridge(host, mixed, serving):
    host.programs, host.way = mixed(bridge=True, host_local=True), "program"
    path = host.pod("a")
    previous = host.add("a", host.bridge(cniVersion="1.0.0"))
    mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    config = host.portmap(previous, mapping, cniVersion="1.0.0")
    assert reported(host.add("a", config)) == reported(previous)
    with serving(path, 80) as server, socket.create_connection(("127.0.0.1", 8080), timeout=2):
        server.accept()[0].close()
    host.delete("a", config)


def test_switching_plugins_and_back_loses_and_shares_no_address(host, programs, reference):
    """Each ADD and DEL by either host-local, in the same directory."""
    host.way = "program"
    ipam = host.bridge("10.88.0.0/28", "fd88::/64")["ipam"]
    config = {"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": ipam}
    has = {}
    for number in range(10):
        host.programs = (programs, reference)[number % 2]
        result = host.add(f"c{number}", config)
        has[f"c{number}"] = tuple(address["address"] for address in result["ips"])
    given = [address for addresses in has.values() for address in addresses]
    assert len(set(given)) == len(given) == 20
    for number, id_ in enumerate(has):
        host.programs = (programs, reference)[number // 2 % 2]
        host.check(id_, config, {"cniVersion": "1.0.0", "ips": [{"address": item} for item in has[id_]]})
        host.delete(id_, config)
        taken = {path.name for path in host.leases.iterdir()}
        assert not {item.partition("/")[0] for item in has[id_]} & taken
    host.programs = programs
    host.add("last", config)
    host.delete("last", config)
    host.call("GC", "", config | {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}, "")
    assert host.left() == {}


def test_reference_plugin_continues_after_ours(host, programs, reference):
    host.way = "program"
    config = {"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": host.bridge("10.88.0.0/29")["ipam"]}
    host.programs = programs
    for letter in "ab":
        host.add(letter, config)
    host.delete("a", config)
    host.programs = reference
    assert host.add("c", config)["ips"][0]["address"] == "10.88.0.4/29", "and not what a has just given back"
    host.programs = programs
    assert host.add("d", config)["ips"][0]["address"] == "10.88.0.5/29"
