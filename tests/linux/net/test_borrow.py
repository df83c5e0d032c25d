"""A host link is lent to a pod and restored: all that the snapshot has, after anything that a pod can do to it."""

import json
import subprocess
from contextlib import ExitStack

import pytest

from podwire.linux import errors
from podwire.linux.net import borrow
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.values import Ifb, Veth


def ip(words):
    done = subprocess.run(["ip", "-j", "-d", *words.split()], capture_output=True, text=True, check=True)
    return [row for row in json.loads(done.stdout or "[]") if row]


TBF = ["tbf", "rate", "1mbit", "burst", "10k", "limit", "100k"]
SET_UP = [
    "link set dev0 mtu 1400 txqueuelen 77 alias port up",
    "link property add dev dev0 altname thefirstport",
    "addr add 10.0.0.1/24 dev dev0",
    "addr add fd00::1/64 dev dev0 nodad",
    "route add 10.9.0.0/16 via 10.0.0.9 dev dev0 metric 7",
    "neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev dev0 nud permanent",
    "rule add iif dev0 table 100 priority 500",
]


@pytest.fixture
def ends(kernel, tmp_path):
    """Opened in the test's own thread, which has its namespaces."""

    def open_ends(stack):
        namespaces = kernel.namespaces(tmp_path)
        path = namespaces.create("pod").path
        stack.callback(namespaces.remove, "pod")
        host, pod = stack.enter_context(NamespaceHandle()), stack.enter_context(NamespaceHandle(path))
        host.links.add(Veth("dev0", "far0", up=True))
        host.links.change("far0", up=True)
        for words in SET_UP:
            ip(words)
        subprocess.run(["sysctl", "-qw", "net.ipv4.conf.dev0.arp_ignore=2"], check=True)
        subprocess.run(["tc", "qdisc", "add", "dev", "dev0", "root", "handle", "1:", *TBF], check=True)
        return host, pod, host.links.get("dev0").ifindex

    return open_ends


def test_link_that_a_pod_changed_is_restored_completely(ends):
    with ExitStack() as stack:
        host, pod, index = ends(stack)
        snapshot = borrow.snapshot_link(host, index)
        there = borrow.lend_link(host, index, pod, Attributes(name="eth0", mac="02:00:00:00:00:99", mtu=1300))
        assert pod.links.get("eth0").ifindex == there
        pod.links.change(there, up=True)
        pod.links.change(there, queue=5, promiscuous=True)
        back = borrow.return_link(pod, there, host, snapshot, "spare0")
        assert host.links.get("dev0").ifindex == back
        assert borrow.restore_link(host, back, snapshot) == ()
        assert borrow.snapshot_link(host, back) == snapshot
        assert snapshot.alt_names == ("thefirstport",)
        assert snapshot.sysctls["ipv4/arp_ignore"] == "2"
        assert [rule.priority for rule in snapshot.rules] == [500]
        assert borrow.restore_link(host, back, snapshot) == ()


def test_port_of_a_bridge_returns_to_the_bridge(ends):
    with ExitStack() as stack:
        host, pod, index = ends(stack)
        ip("link add br9 type bridge")
        ip("link set dev0 master br9")
        snapshot = borrow.snapshot_link(host, index)
        there = borrow.lend_link(host, index, pod, Attributes(name="eth0"))
        back = borrow.return_link(pod, there, host, snapshot, "spare0")
        borrow.restore_link(host, back, snapshot)
        assert host.links.get(back).master == host.links.get("br9").ifindex


def test_snapshot_survives_json(ends):
    with ExitStack() as stack:
        host, _, index = ends(stack)
        snapshot = borrow.snapshot_link(host, index)
        assert borrow.decode(json.loads(json.dumps(borrow.encode(snapshot)))) == snapshot


def test_link_gets_the_spare_name_while_its_own_is_taken(ends):
    with ExitStack() as stack:
        host, pod, index = ends(stack)
        snapshot = borrow.snapshot_link(host, index)
        there = borrow.lend_link(host, index, pod, Attributes(name="eth0"))
        ip("link add dev0 type bridge")
        back = borrow.return_link(pod, there, host, snapshot, "spare0")
        assert host.links.get(back).name == "spare0"
        with pytest.raises(errors.LinkExists):
            borrow.rename_back(host, back, snapshot)
        (lost,) = borrow.restore_link(host, back, snapshot)
        assert lost.startswith("the name dev0: another link has it")
        ip("link del dev0")
        assert borrow.restore_link(host, back, snapshot) == ()
        assert host.links.get(back).name == "dev0"


def test_name_that_a_pod_has_is_refused_before_the_link_moves(ends):
    with ExitStack() as stack:
        host, pod, index = ends(stack)
        with pytest.raises(errors.LinkExists):
            borrow.lend_link(host, index, pod, Attributes(name="lo"))
        assert host.links.get(index).name == "dev0"


def test_link_whose_driver_sets_no_mac_address_returns(ends):
    """An ifb refuses to set its MAC address, even to the one that it has."""
    with ExitStack() as stack:
        host, pod, _ = ends(stack)
        host.links.add(Ifb("card0", up=True))
        index = host.links.get("card0").ifindex
        before = borrow.snapshot_link(host, index)
        index = borrow.lend_link(host, index, pod, Attributes(name="net1"))
        index = borrow.return_link(pod, index, host, before, "spare0")
        assert borrow.restore_link(host, index, before) == ()
        assert borrow.snapshot_link(host, index) == before


def test_partial_snapshot_leaves_the_rest_alone(ends):
    with ExitStack() as stack:
        host, _, index = ends(stack)
        before = borrow.snapshot_link(host, index)
        partial = borrow.LinkSnapshot("dev0", attributes=Attributes(alias="port", up=True), exact_addresses=False)
        assert borrow.restore_link(host, index, partial) == ()
        assert borrow.snapshot_link(host, index) == before


def test_link_is_recognised_by_its_unchanging_attributes(ends):
    with ExitStack() as stack:
        host, pod, index = ends(stack)
        snapshot = borrow.snapshot_link(host, index)
        assert borrow.is_same_link(snapshot, DetailedLinks(host.netlink).get("dev0"))
        assert not borrow.is_same_link(snapshot, DetailedLinks(host.netlink).get("lo"))
        there = borrow.lend_link(host, index, pod, Attributes(name="eth0"))
        assert borrow.is_same_link(snapshot, DetailedLinks(pod.netlink).get(there))


ADDRESS = {
    "family": 2,
    "prefix": 24,
    "scope": 0,
    "flags": 128,
    "attributes": [[1, "0a000001"], [2, "0a000001"]],
    "preferred": 4294967295,
    "valid": 4294967295,
}


def test_record_of_an_older_device_plugin_is_read():
    raw = {"name": "dev0", "kind": "", "mac": "02:00:00:00:00:01", "mtu": 1400, "queue": 1000, "up": True}
    raw |= {"promiscuous": False, "all_multicast": False, "addresses": [ADDRESS]}
    snapshot = borrow.decode(raw)
    assert (snapshot.name, snapshot.mac, snapshot.attributes.mtu, snapshot.attributes.up) == (
        "dev0",
        "02:00:00:00:00:01",
        1400,
        True,
    )
    assert str(snapshot.addresses[0].interface) == "10.0.0.1/24"
    assert snapshot.attributes.alias is None


def test_record_of_an_older_network_driver_is_read():
    raw = {"name": "dev0", "kind": "", "mac": "02:00:00:00:00:01", "permanent_mac": "", "peer": 0}
    raw |= {"attributes": {"mtu": 1400, "alias": "x", "up": False}, "addresses": [ADDRESS], "routes": [], "rules": []}
    raw |= {"neighbours": [], "features": ["rx"], "changeable": ["rx"], "flags": {"a": True}, "sysctls": {"b": "1"}}
    raw |= {"queues": [{"is_class": False, "handle": 65536, "parent": 1, "kind": "htb", "options": "", "filters": 0}]}
    snapshot = borrow.decode(raw)
    assert (snapshot.attributes.mtu, snapshot.queues[0].kind, snapshot.flags) == (1400, "htb", {"a": True})


@pytest.mark.parametrize("raw", [{}, {"name": "x", "attributes": {"nonsense": 1}}, {"name": "x", "up": True}])
def test_anything_else_is_not_a_snapshot(raw):
    with pytest.raises((TypeError, KeyError, ValueError, AttributeError)):
        borrow.decode(raw)
