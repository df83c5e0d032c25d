"""Parameters of a claim, verified in the pod by other programs, with packets where they tell."""

import fcntl
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.cniplugins.overview import guard
from podwire.dradriver.parameters.settings import Made, Neighbour, Route, Rule
from podwire.linux.net import link_sysctls
from podwire.linux.net.ethtool import Ethtool
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit
from tests.eventually import eventually

MAC = "02:11:22:33:44:55"
BR = Made(kind="veth", bridge="br0")


def given(host, **settings):
    """A link of the host in a pod, as it was asked for; returns what `ip` says of it."""
    host.nic()
    _, pod = host.attached(host.allocation(**settings))
    return pod, host.ip("addr show dev net1", pod)[0]


def test_mtu_mac_and_the_four_sizes_of_big_tcp(host):
    sizes = {"gso_max_size": 131072, "gro_max_size": 131072, "gso_ipv4_max_size": 65536, "gro_ipv4_max_size": 65536}
    _, reported = given(host, mtu=8896, mac=MAC, **sizes)
    assert (reported["mtu"], reported["address"]) == (8896, MAC)
    assert (reported["gso_max_size"], reported["gro_max_size"]) == (131072, 131072)


def test_addresses_that_are_given_replace_those_of_the_host(host):
    host.nic()
    host.furnish()
    _, pod = host.attached(host.allocation(addresses=(ip_interface("10.50.0.2/24"), ip_interface("fd50::2/96"))))
    result = host.ip("addr show dev net1", pod)[0]["addr_info"]
    assert [item["local"] for item in result if item["scope"] == "global"] == ["10.50.0.2", "fd50::2"]
    assert not any(item.get("tentative") for item in result if item["scope"] == "global")
    (route,) = host.ip("-6 route show fd50::/96", pod)
    assert (route["metric"], route["protocol"]) == (256, "kernel")


def test_no_addresses_at_all_can_be_asked_for(host):
    host.nic()
    host.furnish()
    attachments, pod = host.attachments(), host.pod()
    attachments.prepare([host.allocation(addresses=())])
    (attached,) = attachments.attach("pod-uid", pod)
    assert attached.ips == ()
    assert "inet " not in host.run("ip addr show dev net1", pod)


def test_settings_of_the_host_move_with_the_link(host):
    host.nic()
    host.furnish()
    _, pod = host.attached()
    assert len(host.ip("-6 route show fd09::/96", pod)) == 1
    assert [item["dst"] for item in host.ip("route show table 100", pod)] == ["10.79.0.0/16"]
    (route,) = host.ip("route show 10.77.0.0/16", pod)
    assert (route["gateway"], route["metric"], route["dev"]) == ("10.9.1.254", 7, "net1")
    rules = {item["priority"]: item for item in host.ip("rule show", pod)}
    assert (rules[500]["src"], rules[500]["table"], rules[501]["iif"]) == ("10.9.1.0", "100", "net1")
    assert {item["dst"] for item in host.ip("neigh show nud permanent", pod)} == {"10.9.1.254", "fd09::fe"}


def test_routes_rules_and_neighbours_that_are_given(host):
    pod, _ = given(
        host,
        addresses=(ip_interface("10.50.0.2/32"),),
        routes=(
            Route(destination=ip_network("10.60.0.0/16"), gateway=ip_address("10.50.0.1")),
            Route(destination=ip_network("10.50.0.1/32"), scope=253),
            Route(destination=ip_network("10.61.0.0/16"), gateway=ip_address("10.50.0.1"), table=101, metric=5),
        ),
        rules=(Rule(priority=600, table=101, source=ip_network("10.50.0.2/32")),),
        neighbours=(Neighbour(address=ip_address("10.50.0.1"), mac="02:00:00:00:00:fe"),),
    )
    assert host.ip("route show 10.60.0.0/16", pod)[0]["gateway"] == "10.50.0.1"
    assert host.ip("route show table 101", pod)[0]["metric"] == 5
    assert [item["table"] for item in host.ip("rule show", pod) if item["priority"] == 600] == ["101"]
    host.ip("addr add 10.60.0.1/32 dev far0", host.far)
    host.ip("route add 10.50.0.2/32 dev far0", host.far)
    host.say(pod, host.far, "10.60.0.1")


def test_a_given_route_that_the_address_brings_already_is_fine(host):
    pod, _ = given(
        host,
        addresses=(ip_interface("10.50.0.2/24"),),
        routes=(Route(destination=ip_network("10.50.0.0/24"), scope=253),),
    )
    assert len(host.ip("route show 10.50.0.0/24", pod)) == 1


def test_arp_and_forwarding_are_set_and_a_zero_counts(host):
    host.nic()
    host.furnish()
    _, pod = host.attached(host.allocation(arp_ignore=0, arp_announce=2, forwarding=True))
    with visit(pod):
        found = link_sysctls.read_all("net1")
    wanted = {"ipv4/arp_ignore": "0", "ipv4/arp_announce": "2", "ipv4/forwarding": "1", "ipv6/forwarding": "1"}
    assert {item: found[item] for item in wanted} == wanted


def test_features_are_turned_off_and_back_on(host):
    host.nic()
    before = host.dump()
    attachments, pod = host.attached(host.allocation(features={"tx-udp-segmentation": False, "rx-gro": True}))
    with Ethtool(pod) as ethtool, KernelNetwork(pod) as network:
        active = ethtool.features(network.links.get("net1").ifindex).active
    assert ("tx-udp-segmentation" in active, "rx-gro" in active) == (False, True)
    attachments.detach("pod-uid", pod)
    host.settled(before)


def test_two_veths_on_a_bridge_reach_each_other(host):
    host.bridge()
    attachments, one, two = host.attachments(), host.pod("one"), host.pod("two")
    attachments.prepare([host.allocation("br0", made=BR, pod="1", share="a", addresses=(ip_interface("10.5.0.1/24"),))])
    attachments.prepare([host.allocation("br0", made=BR, pod="2", share="b", addresses=(ip_interface("10.5.0.2/24"),))])
    attachments.attach("1", one)
    attachments.attach("2", two)
    host.say(one, two, "10.5.0.2")


@pytest.mark.parametrize("trusted", [(), ("br0",)])
def test_a_port_of_a_bridge_is_guarded_against_rogue_dhcp_servers_unless_it_is_trusted(host, trusted):
    host.bridge()
    attachments = host.attachments(trusted_bridges=trusted)
    for number in "12":
        addresses = (ip_interface(f"10.5.0.{number}/24"),)
        attachments.prepare([host.allocation("br0", made=BR, pod=number, share=number, addresses=addresses)])
        attachments.attach(number, host.pod(f"pod{number}"))
    dropped = guard().dropped
    before = dropped["dropped-dhcp-server"].packets if dropped else 0
    with visit(host.netns("pod2")):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with visit(host.netns("pod1")):
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with listener, speaker:
        listener.bind(("10.5.0.2", 68))
        speaker.bind(("10.5.0.1", 67))
        speaker.sendto(b"a DHCP offer", ("10.5.0.2", 68))
        if trusted:
            listener.settimeout(10)
            assert listener.recv(100) == b"a DHCP offer"
            assert (guard().ports, guard().unguarded) == (0, 2)
            return
        eventually(lambda: guard().dropped["dropped-dhcp-server"].packets > before)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.recv(100)
    assert (guard().ports, guard().unguarded) == (2, 0)
    host.say(host.netns("pod1"), host.netns("pod2"), "10.5.0.2")


def test_a_macvlan_speaks_to_the_far_end_of_its_parent(host):
    host.nic()
    made = Made(kind="macvlan")
    _, pod = host.attached(host.allocation(made=made, mac=MAC, addresses=(ip_interface("10.5.0.1/24"),)))
    host.ip("addr add 10.5.0.9/24 dev far0", host.far)
    host.say(pod, host.far, "10.5.0.9")
    assert MAC in host.run("ip neigh show 10.5.0.1", host.far)


def test_a_vxlan_ends_at_a_far_machine(host):
    host.nic()
    host.ip("addr add 10.9.1.1/24 dev nic0")
    host.ip("addr add 10.9.1.254/24 dev far0", host.far)
    host.ip("link add vx type vxlan id 42 remote 10.9.1.1 dstport 4790 dev far0", host.far)
    host.ip("addr add 10.5.0.9/24 dev vx", host.far)
    host.ip("link set vx up", host.far)
    made = Made(kind="vxlan", vni=42, remote="10.9.1.254", port=4790)
    _, pod = host.attached(host.allocation(made=made, addresses=(ip_interface("10.5.0.1/24"),)))
    host.say(pod, host.far, "10.5.0.9")


def test_a_tap_is_read_by_a_program_in_the_pod(host):
    host.nic()
    _, pod = host.attached(host.allocation(made=Made(kind="tap"), mac=MAC, addresses=(ip_interface("10.5.0.1/24"),)))
    with visit(pod):
        frames = tap("net1")
    try:
        host.ip("neigh add 10.5.0.9 lladdr 02:00:00:00:00:99 dev net1", pod)

        def heard():
            """Said again and again: before the kernel has noticed that somebody reads there, it sends nothing."""
            say_into(pod, "10.5.0.9")
            return any(frame[:6] == bytes.fromhex("020000000099") for frame in waiting(frames))

        eventually(heard)
    finally:
        os.close(frames)


def tap(name):
    opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(opened, 0x400454CA, struct.pack("=16sH22x", name.encode(), 0x1002))
    return opened


def say_into(netns, address):
    with visit(netns):
        speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with speaker:
        speaker.sendto(b"hello", (address, 7))


def waiting(opened):
    """Frames that are there: the kernel says a word of its own before."""
    with suppress(BlockingIOError):
        while True:
            yield os.read(opened, 2000)


@pytest.mark.parametrize("kind", ["veth", "macvlan"])
def test_bandwidth_is_held_back_both_ways(host, kind):
    host.nic()
    host.bridge()
    made = BR if kind == "veth" else Made(kind="macvlan")
    device = "br0" if kind == "veth" else "nic0"
    limited = {"bits_per_second": 40_000_000, "addresses": (ip_interface("10.5.0.1/24"),)}
    _, pod = host.attached(host.allocation(device, made=made, **limited))
    if kind == "veth":
        host.ip("link set port1 netns " + host.far)
        host.ip("link set port1 up", host.far)
    host.ip(f"addr add 10.5.0.9/24 dev {'port1' if kind == 'veth' else 'far0'}", host.far)
    for source, target, address in ((pod, host.far, "10.5.0.9"), (host.far, pod, "10.5.0.1")):
        rate = sent(source, target, address, 4_000_000)
        assert rate < 4 * 40_000_000, "nothing holds it back"


def sent(source, target, address, size):
    """Bits per second of one TCP connection. Without a limit there are thousands of millions here."""
    with visit(target):
        listener = socket.socket()
    with visit(source):
        speaker = socket.socket()
    with listener, speaker:
        listener.bind((address, 0))
        listener.listen()
        for item in (listener, speaker):
            item.settimeout(60)
        speaker.connect(listener.getsockname())
        hearer, _ = listener.accept()
        sending = threading.Thread(target=speaker.sendall, args=(bytes(size),))
        began = time.monotonic()
        sending.start()
        with hearer:
            left = size
            while left:
                left -= len(hearer.recv(1 << 18))
        sending.join()
        return size * 8 / (time.monotonic() - began)
