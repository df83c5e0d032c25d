"""Whole links of the node in pods: named, addressed, routed, tuned as claims say; real packets; back as they were."""

import contextlib
import ctypes
import os
from struct import Struct

import pytest

from podwire.linux.net import bpf, ebpf
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.wire import CREATE, EXCL, Request, nested, text, u32
from podwire.linux.proc.namespaces import visit

ODD = "net-nvwhqnk7gy"
"""The device of `mlx5_6`, which is not a DNS label."""


@pytest.fixture(scope="module")
def stage(empty_stage):
    made = empty_stage
    made.up()
    made.driver.start()
    return made


def addresses(link):
    return sorted(
        f"{address['local']}/{address['prefixlen']}" for address in link["addr_info"] if address["scope"] == "global"
    )


def test_a_link_gets_the_claims_address_and_name_and_is_restored(stage, claim):
    stage.veth("lan1", far="192.0.2.1/24")
    stage.veth("mlx5_6")
    stage.offered("lan1", ODD)
    before = stage.dump("lan1", "mlx5")
    stage.run(
        claim("fixed", "lan1", name="eth99", addresses=["192.0.2.99/24"]),
        claim("odd", "mlx5_6", addresses=["198.51.100.1/24"]),
        stage.pod("fixed", "fixed", interfaces="eth99"),
        stage.pod("odd", "odd"),
    )
    assert stage.inside("fixed", "ping -c 1 -W 20 -I eth99 192.0.2.1")
    [device] = stage.claimed_devices("fixed", "True", "Attached")
    assert device["networkData"] == {
        "interfaceName": "eth99",
        "hardwareAddress": before["links"]["lan1"]["address"],
        "ips": ["192.0.2.99/24"],
    }
    assert stage.given("odd") == [ODD]
    stage.deleted("fixed", "odd")
    stage.as_before(before, "lan1", "mlx5")
    stage.never_bare("fixed", "odd")


def test_a_template_the_hosts_own_addresses_two_devices_of_one_request_and_the_same_again(stage, claim):
    stage.veth("own1", "203.0.113.1/24", far="203.0.113.254/24")
    stage.veth("two1")
    stage.veth("two2")
    stage.offered("own1", "two1", "two2")
    before = stage.dump("own", "two")
    stage.run(
        claim("own", "own1", kind="ResourceClaimTemplate"),
        claim("pair", "two1", "two2", count=2),
        stage.pod("carried", "mine=own"),
        stage.pod("pair", "pair", interfaces="two1 two2"),
    )
    [link] = stage.look("carried", "addr show dev net1")
    assert "203.0.113.1/24" in addresses(link)
    assert stage.inside("carried", "ping -c 1 -W 20 203.0.113.254")
    assert sorted(
        device["networkData"]["interfaceName"] for device in stage.claimed_devices("pair", "True", "Attached")
    ) == [
        "two1",
        "two2",
    ]
    stage.deleted("carried", "pair")
    stage.run(stage.pod("again", "mine=own"), stage.pod("pair-again", "pair", interfaces="two1 two2"))
    assert "203.0.113.1/24" in addresses(stage.look("again", "addr show dev net1")[0])
    stage.deleted("again", "pair-again")
    stage.as_before(before, "own", "two")
    stage.never_bare("carried", "pair", "again", "pair-again")


def test_all_that_a_claim_can_tune(stage, claim):
    stage.veth("fast1")
    stage.offered("fast1")
    before = stage.dump("fast")
    stage.run(
        claim(
            "tuned",
            "fast1",
            addresses=["192.0.2.5/24", "2001:db8:0:1::5/96"],
            mtu=8896,
            mac="02:00:00:00:12:34",
            gsoMaxSize=65536,
            groMaxSize=65536,
            gsoIPv4MaxSize=65536,
            groIPv4MaxSize=65536,
            arpIgnore=1,
            arpAnnounce=2,
            forwarding=True,
            ethtool={"features": {"tso": False, "gro": False}},
            routes=[
                {"destination": "10.20.0.0/16", "gateway": "10.30.0.1"},
                {"destination": "10.30.0.1/32", "scope": "link"},
                {"destination": "10.40.0.0/16", "gateway": "192.0.2.1", "table": 100, "metric": 7},
            ],
            rules=[{"priority": 1000, "table": 100, "source": "192.0.2.5/32"}],
            neighbours=[
                {"address": "192.0.2.9", "mac": "02:00:00:00:00:09"},
                {"address": "2001:db8:0:1::9", "mac": "02:00:00:00:00:09"},
            ],
        ),
        stage.pod("tuned", "tuned"),
    )
    [link] = stage.look("tuned", "-d addr show dev net1")
    assert (link["mtu"], link["address"]) == (8896, "02:00:00:00:12:34")
    assert {link[name] for name in ("gso_max_size", "gro_max_size")} == {65536}
    assert addresses(link) == ["192.0.2.5/24", "2001:db8:0:1::5/96"]
    conf = "/proc/sys/net/ipv4/conf/net1"
    assert stage.inside("tuned", f"cat {conf}/arp_ignore {conf}/arp_announce {conf}/forwarding").split() == [
        "1",
        "2",
        "1",
    ]
    routes = {
        (route["dst"], route.get("gateway"), route.get("table"))
        for route in stage.look("tuned", "route show table all")
    }
    assert {("10.20.0.0/16", "10.30.0.1", None), ("10.30.0.1", None, None)} <= routes
    assert ("10.40.0.0/16", "192.0.2.1", "100") in routes
    kernel = [route["dst"] for route in stage.look("tuned", "-6 route show table main dev net1")]
    assert kernel.count("2001:db8:0:1::/96") == 1
    assert [rule["table"] for rule in stage.look("tuned", "rule show") if rule["priority"] == 1000] == ["100"]
    known = {
        (neighbour["dst"], neighbour["lladdr"])
        for neighbour in stage.look("tuned", "neigh show nud permanent dev net1")
    }
    assert {("192.0.2.9", "02:00:00:00:00:09"), ("2001:db8:0:1::9", "02:00:00:00:00:09")} <= known
    stage.deleted("tuned")
    stage.as_before(before, "fast")
    stage.never_bare("tuned")


def test_neighbours_routes_and_rules_of_a_link_move_with_it_and_return(stage, claim):
    stage.veth("nb1", "192.0.2.65/26")
    stage.batch(
        "neigh add 192.0.2.70 lladdr 02:00:00:00:00:70 dev nb1 nud permanent",
        "addr add 2001:db8:2::65/96 dev nb1 nodad",
        "neigh add 2001:db8:2::70 lladdr 02:00:00:00:00:70 dev nb1 nud permanent",
        "route add 10.50.0.0/16 via 192.0.2.70 dev nb1 table 100",
        "rule add from 192.0.2.65 table 100 priority 1100",
    )
    stage.offered("nb1")
    before = stage.dump("nb")
    assert any(route.get("table") == "100" for route in before["routes"])
    stage.run(claim("carrying", "nb1"), stage.pod("carrying", "carrying"))
    known = {neighbour["dst"] for neighbour in stage.look("carrying", "neigh show nud permanent dev net1")}
    assert {"192.0.2.70", "2001:db8:2::70"} <= known
    assert [route["dst"] for route in stage.look("carrying", "route show table 100")] == ["10.50.0.0/16"]
    assert [rule["table"] for rule in stage.look("carrying", "rule show") if rule["priority"] == 1100] == ["100"]
    kernel = [route["dst"] for route in stage.look("carrying", "-6 route show table main dev net1")]
    assert kernel.count("2001:db8:2::/96") == 1
    stage.deleted("carrying")
    stage.as_before(before, "nb")
    stage.never_bare("carrying")


def test_policy_routing_through_a_pod_that_routes(stage, claim):
    stage.veth("wa")
    stage.veth("wb")
    stage.offered("wa", "wap", "wb", "wbp")
    before = stage.dump("wa", "wb")
    via = {"destination": "10.82.0.0/24", "gateway": "10.81.0.1", "table": 100}
    stage.run(
        claim(
            "client",
            "wa",
            addresses=["10.81.0.2/24"],
            routes=[via],
            rules=[{"priority": 1000, "table": 100, "source": "10.81.0.2/32"}],
        ),
        claim("left", "wap", name="left", addresses=["10.81.0.1/24"], forwarding=True),
        claim("right", "wbp", name="right", addresses=["10.82.0.1/24"], forwarding=True),
        claim(
            "server",
            "wb",
            addresses=["10.82.0.2/24"],
            routes=[{"destination": "10.81.0.0/24", "gateway": "10.82.0.1"}],
        ),
        stage.pod("router", "left", "right", interfaces="left right"),
        stage.pod("client", "client"),
        stage.pod("server", "server"),
    )
    assert "ttl=63" in stage.inside("client", "ping -c 1 -W 20 -I 10.81.0.2 10.82.0.2")
    stage.deleted("client", "router", "server")
    stage.as_before(before, "wa", "wb")
    stage.never_bare("client", "router", "server")


@contextlib.contextmanager
def programs_on(netns, link):
    """One that lets everything pass (r0 = 0; exit), as a classifier of tc and by TCX."""
    code = ctypes.create_string_buffer(Struct("=BBhi").pack(0xB7, 0, 0, 0) + Struct("=BBhi").pack(0x95, 0, 0, 0), 16)
    licence, load, classifier, attach = ctypes.create_string_buffer(b"GPL"), 5, 3, 8
    asked = Struct("=IIQQ24x16s").pack(classifier, 2, ctypes.addressof(code), ctypes.addressof(licence), b"passes")
    program, _ = bpf.call(load, asked, "load a program")
    traffic = Struct("=BxxxiIII")
    try:
        with KernelNetwork(netns) as network, Netlink(netns) as netlink:
            index = network.links.get(link).ifindex
            with visit(netns):
                bpf.call(attach, Struct("=IIII").pack(index, program, bpf.TCX[0], 0), "attach a program")
            hook = traffic.pack(0, index, 0xFFFF0000, 0xFFFFFFF1, 0) + text(1, "clsact")
            options = text(1, "bpf") + nested(2, u32(6, program), text(7, "counts:[tc]"), u32(8, 1))
            place = traffic.pack(0, index, 0, 0xFFFFFFF2, 1 << 16 | 0x0300)  # what comes in, the first, every protocol
            netlink.do(Request(36, CREATE | EXCL, hook, "add a place for filters", {}))
            netlink.do(Request(44, CREATE | EXCL, place + options, "add a filter", {}))
        yield
    finally:
        os.close(program)


def test_bpf_programs_of_a_link_are_listed_and_a_claim_can_drop_them(stage, claim):
    stage.veth("bpf1")

    def wait_for_programs(tc, tcx):
        def look():
            known = {key: next(iter(of.values())) for key, of in stage.devices()["bpf1"]["attributes"].items()}
            return (known["ebpf"], known.get("tcPrograms"), known.get("tcxPrograms")) == (bool(tc), tc, tcx)

        stage.cluster.eventually(look, f"programs of bpf1 are {tc} and {tcx}", stage.logs)

    with programs_on(stage.netns, "bpf1"):
        stage.batch("link set bpf1 alias programmed")  # the kernel does not tell what TCX gets: it is seen by the way
        stage.offered("bpf1")
        wait_for_programs("counts:[tc]", "passes")
        before = stage.dump("bpf")
        stage.run(
            claim("unwatched", "bpf1", disableEbpf=True, addresses=["192.0.2.129/26"]),
            stage.pod("unwatched", "unwatched"),
        )
        netns = stage.netns_of("unwatched")
        with KernelNetwork(netns) as network, Netlink(netns) as netlink:
            index = network.links.get("net1").ifindex
            assert ebpf.classifiers(netlink) == {}
        with visit(netns):
            left = ebpf.tcx(index)
        assert left == []
        wait_for_programs("counts:[tc]", "passes")  # while a pod has it, it is listed as it was
        stage.deleted("unwatched")
        stage.as_before(before, "bpf")
        wait_for_programs(None, None)
    stage.never_bare("unwatched")
