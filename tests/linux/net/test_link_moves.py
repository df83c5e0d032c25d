"""Links that leave for other namespaces, seen from the one that they left; taps; addresses kept and given back."""

import json
import subprocess
from contextlib import closing

import pytest

from podwire.linux import errors
from podwire.linux.net.link_moves import LinkEvent, LinkMoves, NamespaceEnded, RemoteLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.snapshot_addresses import SavedAddresses
from podwire.linux.net.taps import make_tap
from podwire.linux.values import Veth


def test_events_follow_a_link_into_other_namespaces(kernel, tmp_path):
    namespaces = kernel.namespaces(tmp_path)
    pod = namespaces.create("pod").path
    with KernelNetwork() as network, closing(LinkMoves()) as travels:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        travels.read()
        network.links.move("v0", pod, "eth0")
        [left] = [item for item in travels.read() if isinstance(item, LinkEvent) and item.netns is None and item.gone]
        assert left.link.ifindex == index
        number, there = left.went
        with Netlink() as netlink:
            assert number in RemoteLinks(netlink).namespaces()
            assert [link.name for link in RemoteLinks(netlink).links(number) if link.ifindex == there] == ["eth0"]
        with KernelNetwork(pod) as inside:
            inside.links.change("eth0", up=True)
            changed = [item for item in travels.read() if isinstance(item, LinkEvent) and item.netns == number]
            assert changed[-1].link.up
            inside.links.delete("eth0")
        gone = [item for item in travels.read() if isinstance(item, LinkEvent) and item.netns == number and item.gone]
        assert [(item.link.name, item.went) for item in gone] == [("eth0", None)]
    namespaces.remove("pod")


def test_end_of_a_namespace_is_an_event(kernel, tmp_path):
    namespaces = kernel.namespaces(tmp_path)
    pod = namespaces.create("pod").path
    with KernelNetwork() as network, closing(LinkMoves()) as travels:
        network.links.add(Veth("v0", "v1"))
        network.links.move("v0", pod)
        [left] = [item for item in travels.read() if isinstance(item, LinkEvent) and item.went]
        namespaces.remove("pod")
        events = []
        import select

        while not any(isinstance(event, NamespaceEnded) for event in events):
            assert select.select([travels.fileno()], [], [], 60)[0], "nothing was reported"
            events += travels.read()
        assert NamespaceEnded(left.went[0]) in events
        with Netlink() as netlink, pytest.raises(errors.LinuxError):
            RemoteLinks(netlink).links(left.went[0])


def test_tap_is_persistent(kernel):
    make_tap("tap7")
    with KernelNetwork() as network:
        assert network.links.get("tap7").kind == "tun"
    with pytest.raises(errors.LinkExists):
        make_tap("tap7")


def test_addresses_are_restored_with_all_attributes(kernel):
    def dump():
        found = subprocess.run(["ip", "-j", "-d", "addr", "show", "v0"], capture_output=True, check=True).stdout
        return json.loads(found)[0]["addr_info"]

    with KernelNetwork() as network, Netlink() as netlink:
        network.links.add(Veth("v0", "v1"))
        network.links.change("v1", up=True)
        network.links.change("v0", up=True)
        index = network.links.get("v0").ifindex
        for name in (
            "10.0.0.1/24 brd + label v0:x",
            "10.0.0.2/24",
            "10.1.0.1/32 noprefixroute",
            "10.2.0.1 peer 10.2.0.2/32",
            "fd00::1/64 nodad noprefixroute",
        ):
            subprocess.run(["ip", "addr", "add", *name.split(), "dev", "v0"], check=True)
        before = dump()
        kept = SavedAddresses(netlink)
        wanted = kept.list()[index]
        subprocess.run(["ip", "addr", "flush", "dev", "v0"], check=True)
        subprocess.run(["ip", "addr", "add", "10.9.9.9/24", "dev", "v0"], check=True)
        kept.restore(index, wanted, kept.list()[index])
        assert [item for item in dump() if item["scope"] != "link"] == [
            item for item in before if item["scope"] != "link"
        ]
