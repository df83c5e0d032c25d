"""Cases that no one plugin is about: ids and keys as runtimes write them, delegates and disks that fail, odd limits."""

import json
import resource
import subprocess
from contextlib import suppress
from ipaddress import ip_address

import pytest

from podwire.cniplugins.pod_link import kernel_routes
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.results import IP, Route
from podwire.protocols.cni.values import interface, network

DUAL = ("10.88.0.0/24", "fd88::/64")
MAPPING = {"hostPort": 8080, "containerPort": 80}


@pytest.fixture(params=["program", "daemon"])
def way(request):
    return request.param


@pytest.mark.parametrize("length", [64, 200])
def test_long_container_id_is_valid(host, length):
    id_ = "c" * length
    pod = host.pod("a")
    config = host.bridge(ipMasq=True, ipspoofchk=True)
    result = host.add(id_, config, CNI_NETNS=pod)
    host.add(id_, host.portmap(result, MAPPING), CNI_NETNS=pod)
    host.check(id_, config, result, CNI_NETNS=pod)
    assert host.add(id_, config, CNI_NETNS=pod) == result
    other = host.pod("b")
    host.add("c" * (length - 1) + "d", config, CNI_NETNS=other)
    host.delete(id_, host.portmap(result), netns="")
    host.delete(id_, config, netns="")
    assert len(host.left()["records"]) == 1, "whose id begins the same has lost nothing"
    host.delete("c" * (length - 1) + "d", config, netns="")
    assert host.left() == {}


def test_container_id_too_long_for_a_file_name_is_an_error(host, refused):
    pod = host.pod("a")
    for verb in ("ADD", "CHECK"):
        with refused(4, "CNI_CONTAINERID is longer than 200"):
            host.call(verb, "c" * 201, host.bridge(), CNI_NETNS=pod)
    host.delete("c" * 201, host.bridge())
    assert host.left() == {}


@pytest.mark.parametrize("kind", ["a directory", "not executable", "no program"])
def test_ipam_plugin_that_cannot_be_executed_is_an_error(host, tmp_path, kind, refused):
    host.pod("a")
    mine = tmp_path / "bin" / "mine"
    if kind == "a directory":
        mine.mkdir(parents=True)
    else:
        mine.parent.mkdir()
        mine.write_bytes(b"\x7fELF junk")
        mine.chmod(0o644 if kind == "not executable" else 0o755)
    path = f"{host.begin() if host.way == 'daemon' else host.programs}:{mine.parent}"
    with refused(102 if kind == "no program" else 7, "mine"):
        host.add("a", host.bridge(ipam={"type": "mine"}), CNI_PATH=path)
    assert host.left() == ({"records": ["net@a@eth0"]} if kind == "no program" else {}), "DEL asks it again"


def test_del_without_the_ipam_plugin_cleans_the_rest_and_can_be_repeated(host, tmp_path, refused):
    host.pod("a")
    mine = tmp_path / "bin" / "mine"
    mine.parent.mkdir()
    mine.write_text('#!/bin/sh\ntest $CNI_COMMAND = ADD && echo \'{"ips": [{"address": "10.88.0.9/24"}]}\' || true\n')
    mine.chmod(0o755)
    path = f"{host.begin() if host.way == 'daemon' else host.programs}:{mine.parent}"
    config = host.bridge(ipam={"type": "mine"}, ipMasq=True)
    host.add("a", config, CNI_PATH=path)
    mine.rename(tmp_path / "away")
    with refused(7, "mine is not in CNI_PATH"):
        host.delete("a", config, CNI_PATH=path)
    assert set(host.left()) == {"records"}, "links and rules are gone"
    (tmp_path / "away").rename(mine)
    host.delete("a", config, CNI_PATH=path)
    assert host.left() == {}


@pytest.mark.parametrize("netns", ["/dev/null", "/run/nowhere"])
def test_host_local_alone_does_not_open_the_namespace(host, netns):
    config = host.bridge(*DUAL) | {"type": "host-local"}
    result = host.add("a", config, CNI_NETNS=netns)
    assert [address["address"] for address in result["ips"]] == ["10.88.0.2/24", "fd88::2/64"]
    assert "interfaces" not in result
    host.check("a", config, result, CNI_NETNS=netns)
    host.delete("a", config, netns=netns)
    host.delete("a", config, netns="")
    assert host.left() == {}


def test_two_spellings_of_an_address_are_one(host, refused):
    for name in ("a", "b"):
        host.pod(name)
    host.add("a", host.bridge(*DUAL), CNI_ARGS="IgnoreUnknown=1;IP=fd88::00ab")
    with refused(100, "fd88::ab"):
        host.add("b", host.bridge(*DUAL), CNI_ARGS="IgnoreUnknown=1;IP=FD88:0:0::AB")
    assert host.left()["records"] == ["net@a@eth0"]


def test_del_of_another_interface_changes_nothing(host):
    host.pod("a")
    result = host.add("a", host.bridge(ipMasq=True))
    before = host.left()
    host.delete("a", host.bridge(ipMasq=True), CNI_IFNAME="eth1")
    host.delete("b", host.bridge(ipMasq=True), netns="")
    assert host.left() == before
    host.check("a", host.bridge(ipMasq=True), result)


def test_check_with_the_result_of_another_namespace_fails(host, refused):
    host.pod("a")
    host.pod("b")
    result = host.add("a", host.bridge())
    result["interfaces"][2]["sandbox"] = host.namespaces.path("b")
    with refused(101, "eth0"):
        host.check("a", host.bridge(), result, CNI_NETNS=host.namespaces.path("b"))


def test_gc_keeps_valid_attachments_without_a_namespace(host):
    host.pod("a")
    config = host.bridge(ipMasq=True)
    host.add("a", config)
    host.namespaces.remove("a")
    stay = [{"containerID": name, "ifname": "eth0"} for name in ("a", "nobody")]
    host.call("GC", "", config | {"cni.dev/valid-attachments": stay}, "")
    assert host.left()["records"] == ["net@a@eth0"]
    assert host.left()["leases"]
    host.call("GC", "", config | {"cni.dev/valid-attachments": stay[1:]}, "")
    assert host.left() == {}


SPELLED = {"ISGATEWAY": True, "ipmasq": True, "HairpinMode": True, "MTU": 1400, "MacSpoofChk": True}


def test_keys_are_case_insensitive(host, refused):
    """As the reference plugins read them."""
    host.pod("a")
    config = host.bridge(isDefaultGateway=False) | SPELLED
    result = host.add("a", config)
    with KernelNetwork() as here:
        link = here.links.get(result["interfaces"][1]["name"])
    assert (link.hairpin, link.mtu) == (True, 1400)
    assert result["ips"][0]["gateway"] == "10.88.0.1"
    assert len(host.left()["elements"]) == 3, "masqueraded and guarded"
    host.check("a", config, result)
    host.delete("a", config)
    assert host.left() == {}
    with refused(2, "vlanTrunk"):
        host.add("a", config | {"VLANTRUNK": [{"id": 5}]})


@pytest.mark.parametrize("place", ["leases", "records"])
def test_full_disk_is_an_error_that_leaves_nothing(host, refused, place):
    folder = host.root / ("ipam" if place == "leases" else "records")
    folder.mkdir()
    syscalls.mount("full", str(folder), "tmpfs", 0, "nr_inodes=16,size=1m,mode=0755")
    host.way = "in process" if host.way == "daemon" else host.way  # a daemon would do what its own mounts say
    config = host.bridge(*DUAL, ipMasq=True)
    for name in ("before", "a"):
        host.pod(name)
    before = host.add("before", config)
    left = host.left()
    with suppress(OSError):
        for number in range(99):
            (folder / f"filled{number}").touch()
    with refused(5, "No space left"):
        host.add("a", config)
    assert host.left() == left
    host.check("before", config, before)
    for path in folder.glob("filled*"):
        path.unlink()
    result = host.add("a", config)
    host.check("a", config, result)
    for name in ("before", "a"):
        host.delete(name, config)
    assert host.left() == {}


def test_few_descriptors_are_enough_or_an_error(host):
    """By programs of their own."""
    host.way = "program"
    host.pod("a")

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))

    done = subprocess.run(
        [host.programs / "bridge"],
        input=json.dumps(host.bridge(ipMasq=True)).encode(),
        env=host.environment("ADD", "a"),
        capture_output=True,
        check=False,
        preexec_fn=few,
    )
    output = json.loads(done.stdout)
    assert (done.returncode == 0) is ("ips" in output), done
    host.delete("a", host.bridge(ipMasq=True))
    assert host.left() == {}


@pytest.mark.parametrize("family", [4, 6])
def test_several_gateways_become_a_multipath_route(host, family):
    pod = host.pod("a")
    config = host.bridge(*DUAL, isDefaultGateway=False, isGateway=True)
    far, near = {4: ("10.9.0.0/16", "10.88.0"), 6: ("fd99::/64", "fd88:")}[family]
    gateways = [f"{near}{'.' if family == 4 else ':'}{last}" for last in (7, 8)]
    config["ipam"]["routes"] = [{"dst": far, "gw": gateway} for gateway in gateways]
    result = host.add("a", config)
    with KernelNetwork(pod) as inside:
        there = [route for route in inside.routes.list(family) if str(route.destination) == far]
        assert sorted(str(item.gateway) for item in there) == gateways
    host.check("a", config, result)


def test_routes_of_one_destination_are_merged():
    ips = (IP(interface("10.88.0.2/24", ""), ip_address("10.88.0.1")),)
    far = network("10.9.0.0/16", "")
    one, other = ip_address("10.88.0.7"), ip_address("10.88.0.8")
    routes = [Route(far, one), Route(far, other), Route(far, one), Route(far, other, priority=5), Route(far)]
    found = kernel_routes(3, ips, routes)
    assert [(item.gateway, item.others, item.metric) for item in found] == [
        (one, (other, ip_address("10.88.0.1")), 0),
        (other, (), 5),
    ]
