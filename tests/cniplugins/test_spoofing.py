"""Guards of a bridge's ends, with real frames: what is forged does not arrive, and what comes after it does."""

import socket
import subprocess
from ipaddress import IPv6Address, ip_address, ip_interface

import pytest

from podwire.cniplugins.attachments import Record, records
from podwire.cniplugins.bridge.spoofing import (
    SETS,
    Guard,
    add_guard,
    check_guard,
    elements,
    link_local,
    parse_guard,
    remove_guard,
)
from podwire.cniplugins.netfilter import Netfilter
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.proc.namespaces import visit
from podwire.protocols.cni.errors import CniError
from tests.eventually import eventually

DUAL = ("10.88.0.0/24", "fd88::/64")
EVERYBODY, FORGED = b"\xff" * 6, bytes.fromhex("02deadbeef01")
ALL, MAC_ALONE = Guard(mac=True, ip=True), Guard(mac=True)
PATIENCE = 30


class Pod:
    """A pod whose end is guarded, and frames from it."""

    def __init__(self, record: Record, result: dict) -> None:
        self.record = record
        self.mac = result["interfaces"][2]["mac"]
        self.addresses = [ip_interface(address["address"]).ip for address in result["ips"]]
        self.ip, self.ip6 = (address.packed for address in self.addresses)
        self.ether = bytes.fromhex(self.mac.replace(":", ""))
        self.local = link_local(self.mac).packed


def frame(kind, payload, source):
    return EVERYBODY + source + kind.to_bytes(2, "big") + payload


def ipv4(source, mark=b"forged"):
    """A datagram to everybody in the subnet; the bridge drops one whose header is not right."""
    head = bytes((0x45, 0)) + (28 + len(mark)).to_bytes(2, "big") + bytes(4) + bytes((64, 17))
    ends = source + bytes((10, 88, 0, 255))
    total = sum(int.from_bytes((head + ends)[at : at + 2], "big") for at in range(0, 18, 2))
    checksum = ~(total % 0xFFFF) & 0xFFFF
    datagram = (9).to_bytes(2, "big") * 2 + (8 + len(mark)).to_bytes(2, "big") + bytes(2) + mark
    return head + checksum.to_bytes(2, "big") + ends + datagram


def ipv6(source, icmp, target=bytes(16), extension=False):
    """An ICMPv6 message of a type, maybe behind a header of options."""
    body = bytes((icmp, 0, 0, 0)) + bytes(4) + target
    if extension:
        body = bytes((58, 0, 1, 4, 0, 0, 0, 0)) + body
    head = b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes((0 if extension else 58, 255))
    return head + source + IPv6Address("ff02::1").packed + body


def arp(ether, ip):
    return bytes.fromhex("0001080006040002") + ether + ip + EVERYBODY + bytes(4)


GATEWAY, GATEWAY6 = bytes((10, 88, 0, 1)), IPv6Address("fd88::1").packed
RS, RA, NS, NA, REDIRECT = 133, 134, 135, 136, 137
FRAMES = {
    "another MAC address": (lambda pod: frame(0x800, ipv4(pod.ip), FORGED), "mac"),
    "another IPv4 address": (lambda pod: frame(0x800, ipv4(GATEWAY), pod.ether), "ip"),
    "an ARP claim of the gateway": (lambda pod: frame(0x806, arp(pod.ether, GATEWAY), pod.ether), "ip"),
    "an ARP claim for another MAC address": (lambda pod: frame(0x806, arp(FORGED, pod.ip), pod.ether), "ip"),
    "another IPv6 address": (lambda pod: frame(0x86DD, ipv6(GATEWAY6, NS), pod.ether), "ip"),
    "another link-local address": (
        lambda pod: frame(0x86DD, ipv6(link_local("02:00:00:00:00:01").packed, NS), pod.ether),
        "ip",
    ),
    "a claim of a neighbour's IPv6 address": (lambda pod: frame(0x86DD, ipv6(pod.ip6, NA, GATEWAY6), pod.ether), "ip"),
    "a router's advertisement": (lambda pod: frame(0x86DD, ipv6(pod.local, RA), pod.ether), "ip"),
    "a router's advertisement behind options": (
        lambda pod: frame(0x86DD, ipv6(pod.local, RA, extension=True), pod.ether),
        "ip",
    ),
    "a redirection": (lambda pod: frame(0x86DD, ipv6(pod.local, REDIRECT), pod.ether), "ip"),
    "a frame for a VLAN": (
        lambda pod: frame(0x8100, bytes((0, 7)) + b"\x08\0" + ipv4(GATEWAY), pod.ether),
        "ip",
    ),
    "what is neither IP nor ARP": (lambda pod: frame(0x88CC, b"forged" * 10, pod.ether), "ip"),
    "a claim from no address": (lambda pod: frame(0x86DD, ipv6(bytes(16), NA, GATEWAY6), pod.ether), "ip"),
    "its own IPv4 address": (lambda pod: frame(0x800, ipv4(pod.ip), pod.ether), ""),
    "its own IPv6 address": (lambda pod: frame(0x86DD, ipv6(pod.ip6, NS), pod.ether), ""),
    "its own link-local address": (lambda pod: frame(0x86DD, ipv6(pod.local, RS), pod.ether), ""),
    "a claim of its own IPv4 address": (lambda pod: frame(0x806, arp(pod.ether, pod.ip), pod.ether), ""),
    "a claim of its own IPv6 address": (lambda pod: frame(0x86DD, ipv6(pod.ip6, NA, pod.ip6), pod.ether), ""),
    "the question whether an IPv4 address is free": (lambda pod: frame(0x806, arp(pod.ether, bytes(4)), pod.ether), ""),
    "the question whether an IPv6 address is free": (lambda pod: frame(0x86DD, ipv6(bytes(16), NS), pod.ether), ""),
}


@pytest.fixture
def guarded(host):
    """Pod a, whose end is guarded; pod b hears what arrives."""
    netfilter = Netfilter()

    def make(how):
        host.pod("b")
        host.add("b", host.bridge(*DUAL))
        host.pod("a")  # trusted, so that only the guard under test drops something
        keys = {"macspoofchk": how.mac, "ipspoofchk": how.ip}
        result = host.add("a", host.bridge(*DUAL, trustedPort=True))
        record = next(record for record in records(str(host.records / "bridge")) if record.container_id == "a")
        pod = Pod(record._replace(config=record.config | keys), result)
        add_guard(netfilter, pod.record, pod.mac, pod.addresses)
        return pod, netfilter

    yield make
    netfilter.close()


def arrives(host, sent, last):
    """Whether a frame of pod a arrives at pod b, which hears until the last one arrives."""
    with visit(host.namespaces.path("b")):
        hears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with visit(host.namespaces.path("a")):
        speaks = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with hears, speaks:
        hears.settimeout(PATIENCE)
        speaks.bind(("eth0", 0))
        speaks.send(sent)
        speaks.send(last)
        heard = []
        while last not in heard:
            heard.append(hears.recv(2048))
    return any(item.startswith(sent[:12]) and sent[18:] in item for item in heard if item != last)


@pytest.mark.parametrize("what", FRAMES)
@pytest.mark.parametrize("how", [Guard(), MAC_ALONE, ALL], ids=["nobody", "macspoofchk", "ipspoofchk"])
def test_forged_frames_are_dropped(host, guarded, what, how):
    pod, _ = guarded(how)
    made, needs = FRAMES[what]
    free = not needs or not getattr(how, needs)
    assert arrives(host, made(pod), frame(0x800, ipv4(pod.ip, b"the last one"), pod.ether)) == free


def test_guarded_pod_communicates_normally(host, guarded, serving, seen):
    pod, _ = guarded(ALL)
    a, b = host.namespaces.path("a"), host.namespaces.path("b")
    for family, address in zip((4, 6), pod.addresses, strict=True):
        with serving(a, 80, family) as server:
            eventually(lambda: seen(server, b, str(address), 80) is not None)  # noqa: B023 - called at once
            eventually(lambda: seen(server, None, str(address), 80) is not None)  # noqa: B023 - as above
        with serving(None, 81, family) as server:
            gateway = "10.88.0.1" if family == 4 else "fd88::1"
            eventually(lambda: seen(server, a, gateway, 81) == str(address))  # noqa: B023 - as above


def test_other_ports_are_not_guarded(host, guarded):
    pod, _ = guarded(ALL)
    with KernelNetwork(host.namespaces.path("b")) as other:
        mac = bytes.fromhex(other.links.get("eth0").mac.replace(":", ""))
    with visit(host.namespaces.path("a")):
        hears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with visit(host.namespaces.path("b")):
        speaks = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sent = frame(0x800, ipv4(pod.ip, b"from b"), mac)
    with hears, speaks:
        hears.settimeout(PATIENCE)
        speaks.bind(("eth0", 0))
        speaks.send(sent)
        while hears.recv(2048) != sent:
            pass


def test_guard_is_checked_and_removed_by_the_record(host, guarded):
    pod, netfilter = guarded(ALL)
    check_guard(netfilter, pod.record, pod.mac, pod.addresses)
    remove_guard(netfilter, pod.record)
    table = netfilter.elements.of("bridge")
    assert [item for name in SETS for item in table.list(name)] == []
    with pytest.raises(CniError, match="is no longer guarded") as caught:
        check_guard(netfilter, pod.record, pod.mac, pod.addresses)
    assert caught.value.code == 101
    remove_guard(netfilter, pod.record)
    KernelRuleset().apply("flush ruleset\n")
    remove_guard(netfilter, pod.record)
    add_guard(netfilter, pod.record, pod.mac, pod.addresses)
    check_guard(netfilter, pod.record, pod.mac, pod.addresses)


@pytest.mark.parametrize("name", SETS)
def test_check_notices_each_missing_element(host, guarded, name):
    pod, netfilter = guarded(ALL)
    table = netfilter.elements.of("bridge")
    table.delete(name, *table.list(name))
    with pytest.raises(CniError, match=name):
        check_guard(netfilter, pod.record, pod.mac, pod.addresses)


def test_repeated_guard_is_idempotent(host, guarded):
    pod, netfilter = guarded(ALL)
    add_guard(netfilter, pod.record, pod.mac, pod.addresses)
    assert len(netfilter.elements.of("bridge").list("guards")) == 1
    finished = subprocess.run(
        ["nft", "list", "map", "bridge", "podwire", "guards"], capture_output=True, text=True, check=True
    )
    assert f'"{pod.record.link}" comment "{pod.record.comment}" : jump guard-all' in finished.stdout


def test_nothing_is_guarded_without_a_request(host, guarded):
    pod, netfilter = guarded(Guard())
    check_guard(netfilter, pod.record, pod.mac, pod.addresses)
    remove_guard(netfilter, pod.record)
    words = ["nft", "list", "table", "bridge", "podwire"]
    assert "map guards" not in subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        ({}, Guard()),
        ({"macspoofchk": True}, MAC_ALONE),
        ({"ipspoofchk": True}, ALL),
        ({"macspoofchk": False, "ipspoofchk": True}, ALL),
    ],
    ids=str,
)
def test_keys_select_the_checks(keys, how):
    assert parse_guard(keys) == how


def test_key_must_be_a_boolean():
    with pytest.raises(CniError, match="ipspoofchk"):
        parse_guard({"ipspoofchk": "yes"})


def test_link_local_address_is_derived_from_the_mac_address():
    assert link_local("0a:58:0a:58:00:02") == ip_address("fe80::858:aff:fe58:2")
    assert [name for name, _ in elements(MAC_ALONE, "veth0", "0a:58:0a:58:00:02", [], "x")] == ["macs", "guards"]
