"""Ports of a bridge, with real frames of a pod with raw sockets: it is neither DHCP server nor router for others."""

import json
import re
import socket
import subprocess
import sys
from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from podwire.cniplugins.nft_tables import remove_unused
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft import port_guard
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.proc.namespaces import visit
from tests.eventually import eventually

PODWIRE = str(Path(sys.executable).with_name("podwire"))
DUAL = ("10.88.0.0/24", "fd88::/64")
EVERYBODY = b"\xff" * 6
MARK, LAST = b"MARK-OF-THE-FRAME!", b"the last frame"
ALL_NODES = IPv6Address("ff02::1").packed
LOCAL = IPv6Address("fe80::1").packed
HOP_BY_HOP, FRAGMENT, ICMP6, UDP, OPTIONS = 0, 44, 58, 17, 60
FILLER = bytes((1, 4, 0, 0, 0, 0))


def ipv4(protocol, body, target="10.88.0.255", offset=0, options=b""):
    size = 20 + len(options)
    head = bytes((0x40 | size // 4, 0)) + (size + len(body)).to_bytes(2, "big") + bytes(2) + offset.to_bytes(2, "big")
    head += bytes((64, protocol))
    ends = IPv4Address("10.88.0.200").packed + IPv4Address(target).packed + options
    words = head + bytes(2) + ends
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    return 0x800, head + (~(total % 0xFFFF) & 0xFFFF).to_bytes(2, "big") + ends + body


def udp(source, target, mark=MARK):
    return source.to_bytes(2, "big") + target.to_bytes(2, "big") + (8 + len(mark)).to_bytes(2, "big") + bytes(2) + mark


def ipv6(first, body, target=ALL_NODES):
    return 0x86DD, b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes((first, 255)) + LOCAL + target + body


def icmp6(kind):
    return bytes((kind, 0, 0, 0)) + bytes(4) + MARK * 2


def options(following):
    return bytes((following, 0)) + FILLER


def fragment(following, body, offset=0, more=True):
    return bytes((following, 0)) + (offset * 8 | more).to_bytes(2, "big") + b"\0\0\0\7" + body


def tagged(ethertype_and_packet, *vlans):
    ethertype, packet = ethertype_and_packet
    for vlan in reversed(vlans):
        packet, ethertype = vlan.to_bytes(2, "big") + ethertype.to_bytes(2, "big") + packet, 0x8100
    return ethertype, packet


RA, REDIRECT, ECHO, NS, NA = 134, 137, 128, 135, 136
DROPPED = {
    "a DHCP offer": (ipv4(UDP, udp(67, 68)), "dhcp-server"),
    "a DHCP offer behind IP options": (ipv4(UDP, udp(67, 68), options=b"\1\1\1\0"), "dhcp-server"),
    "a DHCP offer in a first fragment": (ipv4(UDP, udp(67, 68), offset=0x2000), "dhcp-server"),
    "a DHCPv6 advertisement": (ipv6(UDP, udp(547, 546)), "dhcp-server"),
    "a DHCPv6 advertisement behind options": (ipv6(OPTIONS, options(UDP) + udp(547, 546)), "dhcp-server"),
    "a router's advertisement": (ipv6(ICMP6, icmp6(RA)), "router-advertisement"),
    "one behind hop-by-hop options": (ipv6(HOP_BY_HOP, options(ICMP6) + icmp6(RA)), "router-advertisement"),
    "one behind three headers": (
        ipv6(HOP_BY_HOP, options(OPTIONS) + options(OPTIONS) + options(ICMP6) + icmp6(RA)),
        "router-advertisement",
    ),
    "one in a first fragment": (ipv6(FRAGMENT, fragment(ICMP6, icmp6(RA))), "router-advertisement"),
    "one in a fragment that is whole": (ipv6(FRAGMENT, fragment(ICMP6, icmp6(RA), more=False)), "router-advertisement"),
    "one in a first fragment behind options": (
        ipv6(FRAGMENT, fragment(OPTIONS, options(ICMP6) + icmp6(RA))),
        "router-advertisement",
    ),
    "a first fragment that ends before its header": (ipv6(FRAGMENT, fragment(OPTIONS, options(ICMP6))), "fragment"),
    "a first fragment that ends in its options": (
        ipv6(FRAGMENT, fragment(OPTIONS, bytes((ICMP6, 200)) + FILLER + MARK)),
        "fragment",
    ),
    "one with a priority tag": (tagged(ipv6(ICMP6, icmp6(RA)), 0), "router-advertisement"),
    "one with two tags": (tagged(ipv6(ICMP6, icmp6(RA)), 0, 0), "double-tagged"),
    "an IPv4 router's advertisement": (ipv4(1, bytes((9, 0)) + bytes(6) + MARK), "router-advertisement"),
    "a redirect": (ipv4(1, bytes((5, 1)) + bytes(6) + MARK), "redirect"),
    "an IPv6 redirect": (ipv6(ICMP6, icmp6(REDIRECT)), "redirect"),
}
PASSED = {
    "a DHCP request": ipv4(UDP, udp(68, 67)),
    "a DHCPv6 request": ipv6(UDP, udp(546, 547)),
    "a datagram": ipv4(UDP, udp(4000, 53)),
    "a datagram over IPv6": ipv6(UDP, udp(4000, 53)),
    "an echo request": ipv4(1, bytes((8, 0)) + bytes(6) + MARK),
    "an IPv6 echo request": ipv6(ICMP6, icmp6(ECHO)),
    "a neighbour's question": ipv6(ICMP6, icmp6(NS)),
    "a neighbour's advertisement": ipv6(ICMP6, icmp6(NA)),
    "a first fragment of an echo request": ipv6(FRAGMENT, fragment(ICMP6, icmp6(ECHO))),
    "a first fragment of a datagram": ipv6(FRAGMENT, fragment(UDP, udp(4000, 53))),
    "a later fragment": ipv6(FRAGMENT, fragment(ICMP6, MARK, offset=4)),
    "a frame of a VLAN": tagged(ipv4(UDP, udp(4000, 53)), 7),
    "a frame that is not IP": (0x88CC, MARK * 4),
}


class Wire:
    """Sends frames from pod a, and says whether pod b or the host receives them."""

    def __init__(self, host, **keys):
        self.config = host.bridge(*DUAL, **keys)
        self.netns = {id_: host.pod(id_) for id_ in "ab"}
        self.results = {id_: host.add(id_, self.config) for id_ in "ab"}
        self.macs = {id_: bytes.fromhex(self.results[id_]["interfaces"][2]["mac"].replace(":", "")) for id_ in "ab"}

    def arrives(self, sent, target=EVERYBODY, where="b"):
        ethertype, packet = sent
        link = "eth0" if where == "b" else "cni0"
        with self._raw("a", "eth0") as sender, self._raw(where, link) as receiver:
            receiver.settimeout(20)
            head = target + self.macs["a"]
            sender.send(head + ethertype.to_bytes(2, "big") + packet)
            sender.send(EVERYBODY + self.macs["a"] + b"\x88\xb5" + LAST)
            while LAST not in (frame := receiver.recv(2048)):
                if packet[-8:] in frame:
                    return True
        return False

    def _raw(self, where, link):
        with visit(self.netns.get(where, "/proc/thread-self/ns/net")):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        raw.bind((link, 3))
        return raw


def counted():
    """Dropped packets by the comments of rules, as nft lists them."""
    text = listed("nft", "list", "chain", "bridge", "podwire", port_guard.CHAIN)
    total = Counter()
    for packets, name in re.findall(r'counter packets (\d+) .* comment "dropped-([a-z-]+)"', text):
        total[name] += int(packets)
    return total


@pytest.fixture
def way():
    return "daemon"


def test_pod_is_neither_dhcp_server_nor_router_for_its_neighbours(host):
    wire = Wire(host)
    for name, (frame, counter) in DROPPED.items():
        before = counted()
        for target, where in ((EVERYBODY, "b"), (wire.macs["b"], "b"), (EVERYBODY, "host")):
            assert not wire.arrives(frame, target, where), f"{name} to {target.hex()} at {where}"
        assert counted()[counter] == before[counter] + 3, name


def test_command_shows_guarded_ports_and_what_was_dropped(host):
    assert listed(PODWIRE, "cni", "guard").splitlines() == [
        "guarded ports: 0, not guarded: 0",
        "no rules: no port of a bridge was guarded on this host, or nft is missing",
    ]
    wire = Wire(host)
    frame, _ = DROPPED["a DHCP offer"]
    assert not wire.arrives(frame)
    host.pod("c")
    host.add("c", host.bridge(*DUAL, trustedPort=True))
    shown = json.loads(listed(PODWIRE, "cni", "guard", "-o", "json"))
    assert (shown["guarded"], shown["unguarded"]) == (2, 1)
    assert shown["dropped"].keys() == port_guard.COUNTERS.keys()
    assert shown["dropped"]["dropped-dhcp-server"] == {"packets": 1, "bytes": len(frame[1])}
    head, *rows = listed(PODWIRE, "cni", "guard").splitlines()[1:]
    assert head.split() == ["DROPPED", "PACKETS", "BYTES"]
    assert rows[0].startswith("DHCP and DHCPv6 from a server's port")
    assert rows[0].split()[-2] == "1"


def test_other_frames_of_a_pod_arrive(host):
    wire = Wire(host)
    for name, frame in PASSED.items():
        assert wire.arrives(frame), name
        assert wire.arrives(frame, wire.macs["b"]), name
    assert sum(counted().values()) == 0


def test_operator_can_trust_a_port(host):
    """For a network that the DHCP server's pod alone is attached to, beside the others on the same bridge."""
    wire = Wire(host, trustedPort=True)
    for name, (frame, _) in DROPPED.items():
        assert wire.arrives(frame), name


def test_port_of_a_pod_cannot_be_trusted_by_its_arguments(host):
    host.pod("a")
    config = host.bridge(args={"cni": {"trustedPort": True}}, runtimeConfig={"trustedPort": True})
    result = host.add("a", config)
    with KernelNetwork() as here:
        assert here.links.get(result["interfaces"][1]["name"]).group == port_guard.GROUP


def test_check_reports_a_guard_that_is_gone_and_the_next_add_makes_it_again(host, refused):
    wire = Wire(host)
    host.check("a", wire.config, wire.results["a"])
    KernelRuleset().delete_table("podwire", "bridge")
    with refused(101, "guarded-ports is missing"):
        host.check("a", wire.config, wire.results["a"])
    host.pod("c")
    host.add("c", wire.config)
    host.check("a", wire.config, wire.results["a"])
    assert not wire.arrives(DROPPED["a DHCP offer"][0])


def test_guard_costs_no_rule_and_no_element_per_pod(host):
    wire = Wire(host)
    one = ruleset()
    host.pod("c")
    host.add("c", wire.config)
    assert ruleset() == one
    for id_ in "abc":
        host.delete(id_, wire.config)
    assert ruleset() == one
    eventually(lambda: not any(link.group for link in host.links().values()))
    remove_unused()
    assert ruleset() == ""


def test_guard_stays_as_long_as_a_port_is_guarded(host):
    Wire(host)
    remove_unused()
    assert "guarded-ports" in ruleset()


def test_bridge_works_without_nft_and_warns(host, monkeypatch, capsys, tmp_path):
    host.way = "in process"
    host.pod("a")
    monkeypatch.setattr("podwire.linux.nft.table._ENVIRONMENT", {"PATH": str(tmp_path)})
    result = host.add("a", host.bridge())
    assert "ports of pods are not guarded" in capsys.readouterr().out
    host.check("a", host.bridge(), result)


def ruleset():
    return listed("nft", "-s", "list", "table", "bridge", "podwire")


def listed(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


FORMER = """
add table bridge podwire
add counter bridge podwire dropped-redirect
add chain bridge podwire untrusted-ports
add chain bridge podwire ports { type filter hook prerouting priority -310; policy accept; }
add rule bridge podwire ports iifgroup 28791 jump untrusted-ports
add rule bridge podwire untrusted-ports ip protocol icmp counter name dropped-redirect drop
"""


def test_rules_with_named_counters_are_replaced(host):
    """Programs that read the ruleset as JSON do not know these; rules of former versions had them."""
    wire = Wire(host)
    KernelRuleset().delete_table("podwire", "bridge")
    KernelRuleset().apply(FORMER)
    host.check("a", wire.config, wire.results["a"])
    host.pod("c")
    host.add("c", wire.config)
    assert not wire.arrives(DROPPED["a DHCP offer"][0])
    tables = [entry for entry in json.loads(listed("nft", "-j", "list", "ruleset"))["nftables"] if "counter" in entry]
    assert tables == []
    assert "untrusted-ports" not in ruleset()
