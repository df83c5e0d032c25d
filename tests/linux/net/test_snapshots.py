"""State of links, saved exactly and restored: routes, rules, neighbours, sysctls, ethtool's features."""

import json
import re
import subprocess
from contextlib import contextmanager
from ipaddress import ip_address, ip_network

import pytest

from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.ethtool import Ethtool
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.snapshot_addresses import SavedAddresses
from podwire.linux.net.snapshot_neighbours import SavedNeighbours
from podwire.linux.net.snapshot_qdiscs import SavedQdiscs
from podwire.linux.net.snapshot_routes import SavedRoutes
from podwire.linux.net.snapshot_rules import SavedRules
from podwire.linux.values import Veth


def ip(words):
    done = subprocess.run(["ip", "-j", "-d", *words.split()], capture_output=True, text=True, check=True)
    return [load for load in json.loads(done.stdout or "[]") if load]


@contextmanager
def links():
    """Two cables in the test's own namespace; the index of one end, and a socket."""
    with KernelNetwork() as network, Netlink() as netlink:
        for one, other in (("v0", "v1"), ("w0", "w1")):
            network.links.add(Veth(one, other, up=True))
            network.links.change(other, up=True)
        yield network.links.get("v0").ifindex, netlink


ROUTES = [
    "10.1.0.0/16 dev v0 proto static",
    "10.2.0.0/16 via 10.0.0.9 dev v0 metric 7 mtu 1300 advmss 1000 src 10.0.0.1",
    "10.3.0.0/16 via 10.9.9.9 dev v0 onlink table 1000",
    "10.4.0.0/16 via inet6 fe80::9 dev v0",
    "10.5.0.0/16 via 10.0.0.9 dev v0 tos 0x10 window 5000",
    "10.6.0.0/16 nexthop via 10.0.0.9 dev v0 weight 3 nexthop via 10.8.0.9 dev w0",
    "fd01::/64 via fd00::9 dev v0 metric 99",
    "fd02::/64 dev v0 proto static table 100",
    "fd03::/64 via fd00::9 dev v0 pref high",
    "unicast 10.7.0.0/16 dev v0 scope link proto 77",
]


@pytest.mark.parametrize("route", ROUTES)
def test_route_is_restored_exactly(kernel, route):
    with links() as (index, netlink):
        ip("addr add 10.0.0.1/24 dev v0")
        ip("addr add 10.8.0.1/24 dev w0")
        ip("addr add fd00::1/64 dev v0 nodad")
        ip(f"{'-6 ' if route.startswith('fd') else ''}route add {route}")
        before = ip("route show table all"), ip("-6 route show table all")
        kept = SavedRoutes(netlink).list(index)
        assert len(kept) == 1
        addresses = SavedAddresses(netlink).list()[index]
        ip("link set v0 down")
        ip("link set v0 up")
        SavedAddresses(netlink).restore(index, addresses, SavedAddresses(netlink).list().get(index, ()))
        assert SavedRoutes(netlink).restore(index, kept) == ()
        assert SavedRoutes(netlink).list(index) == kept
        destination = route.removeprefix("unicast ").split()[0]
        assert [item for item in ip("route show table all") if item["dst"] == destination] == [
            item for item in before[0] if item["dst"] == destination
        ]
        assert [item for item in ip("-6 route show table all") if item["dst"] == destination] == [
            item for item in before[1] if item["dst"] == destination
        ]


def test_saved_route_has_destination_gateway_and_source(kernel):
    with links() as (index, netlink):
        ip("addr add 10.0.0.1/24 dev v0")
        ip("route add 10.2.0.0/16 via 10.0.0.9 dev v0 src 10.0.0.1")
        ip("route add 10.3.0.0/16 dev v0")
        far, near = sorted(SavedRoutes(netlink).list(index), key=lambda savedroute: savedroute.destination)
        assert (far.destination, far.gateway, far.source) == (
            ip_network("10.2.0.0/16"),
            ip_address("10.0.0.9"),
            ip_address("10.0.0.1"),
        )
        assert (near.to_link, far.to_link, far.shares) == (True, False, False)


def test_routes_of_other_links_kernel_and_routers_are_not_saved(kernel):
    with links() as (index, netlink):
        ip("addr add 10.0.0.1/24 dev v0")
        ip("route add 10.9.0.0/16 dev w0")
        ip("-6 route add fd09::/64 dev v0 proto ra")
        assert SavedRoutes(netlink).list(index) == ()


def test_route_that_cannot_be_restored_is_reported(kernel):
    with links() as (index, netlink):
        ip("addr add 10.0.0.1/24 dev v0")
        ip("route add 10.2.0.0/16 via 10.0.0.9 dev v0")
        kept = SavedRoutes(netlink).list(index)
        ip("addr flush dev v0")
        (reported,) = SavedRoutes(netlink).restore(index, kept)
        assert reported.startswith("add route 10.2.0.0/16")


def test_exclusive_route_conflicts_with_another(kernel):
    with links() as (index, netlink):
        ip("route add 10.2.0.0/16 dev v0")
        (kept,) = SavedRoutes(netlink).list(index)
        ip("route del 10.2.0.0/16")
        ip("route add 10.2.0.0/16 dev w0")
        with pytest.raises(errors.RouteExists):
            SavedRoutes(netlink).add(index, kept, alone=True)


@pytest.mark.parametrize(("route", "leads"), [("default dev v0 metric 5", True), ("10.0.0.0/8 dev v0", False)])
def test_default_route_of_a_link_is_found(kernel, route, leads):
    with links() as (index, netlink):
        ip(f"route add {route}")
        ip("route add default dev w0 metric 9 table 100")
        assert SavedRoutes(netlink).leads_out(index) is leads


RULES = [
    "from 10.1.0.0/16 table 100 priority 500",
    "not to 10.2.0.0/16 table 1000 priority 501",
    "iif v0 fwmark 0x7/0xff table 100 priority 502",
    "oif v0 ipproto tcp dport 80-90 table 100 priority 503",
    "from 10.3.0.0/16 prohibit priority 504",
    "table main suppress_prefixlength 0 priority 505",
]


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_restored_exactly(kernel, rule):
    with links() as (_, netlink):
        ip(f"rule add {rule}")
        before = ip("rule show")
        (kept,) = SavedRules(netlink).list()
        SavedRules(netlink).delete(kept)
        assert SavedRules(netlink).list() == ()
        with pytest.raises(errors.NoSuchRule):
            SavedRules(netlink).delete(kept)
        SavedRules(netlink).add(kept)
        assert ip("rule show") == before
        with pytest.raises(errors.RuleExists):
            SavedRules(netlink).add(kept)


def test_rule_can_be_renamed_to_another_link(kernel):
    with links() as (_, netlink):
        ip("rule add iif v0 table 100 priority 500")
        (kept,) = SavedRules(netlink).list()
        assert (kept.priority, kept.names("v0"), kept.names("w0")) == (500, True, False)
        SavedRules(netlink).add(kept.renamed("v0", "net1"))
        assert sorted(item.get("iif", "") for item in ip("rule show") if item["priority"] == 500) == ["net1", "v0"]


def test_permanent_neighbours_are_restored(kernel):
    def shown():
        """Sorted: the kernel lists them in the order of a hash with a random key, and of their making."""
        return [sorted(ip(f"neigh show {which}"), key=json.dumps) for which in ("nud permanent", "proxy")]

    with links() as (index, netlink):
        ip("addr add 10.0.0.1/24 dev v0")
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent")
        ip("neigh add fd00::9 lladdr 02:00:00:00:00:09 dev v0 nud permanent protocol 77")
        ip("neigh add 10.0.0.8 lladdr 02:00:00:00:00:08 dev v0 nud reachable")
        ip("neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev w0 nud permanent")
        ip("neigh add proxy 10.0.0.6 dev v0")
        before = shown()
        kept = SavedNeighbours(netlink).list(index)
        assert {str(item.address) for item in kept} == {"10.0.0.9", "fd00::9", "10.0.0.6"}
        ip("neigh flush dev v0 nud permanent")
        ip("-6 neigh flush dev v0 nud permanent")
        ip("neigh del proxy 10.0.0.6 dev v0")
        assert SavedNeighbours(netlink).list(index) == ()
        SavedNeighbours(netlink).restore(index, kept)
        assert shown() == before


def tc(words):
    """The listing without its counters."""
    output = subprocess.run(["tc", *words.split()], capture_output=True, text=True, check=True).stdout
    return re.sub(r"direct_packets_stat \d+", "direct_packets_stat", output)


QUEUES = [
    ["qdisc add dev v0 root handle 9: tbf rate 1mbit burst 10kb latency 50ms"],
    ["qdisc add dev v0 root handle 8: pfifo limit 77"],
    [
        "qdisc add dev v0 root handle 1: htb default 20",
        "class add dev v0 parent 1: classid 1:1 htb rate 10mbit",
        "class add dev v0 parent 1:1 classid 1:10 htb rate 2mbit ceil 5mbit prio 1",
        "class add dev v0 parent 1:1 classid 1:20 htb rate 1mbit",
        "qdisc add dev v0 parent 1:10 handle 10: pfifo limit 55",
    ],
    ["qdisc add dev v0 clsact"],
]


@pytest.mark.parametrize("commands", QUEUES, ids=["a bucket", "a queue", "classes", "a hook"])
def test_configured_qdiscs_are_restored(kernel, commands):
    with links() as (index, netlink):
        for command in commands:
            tc(command)
        before = tc("qdisc show dev v0"), tc("class show dev v0")
        kept = SavedQdiscs(netlink).list(index)
        assert len(kept) == len(commands)
        tc(f"qdisc del dev v0 {'clsact' if 'clsact' in commands[0] else 'root'}")
        assert SavedQdiscs(netlink).list(index) == ()
        assert SavedQdiscs(netlink).restore(index, kept) == ()
        assert (tc("qdisc show dev v0"), tc("class show dev v0")) == before
        assert SavedQdiscs(netlink).restore(index, kept) == ()


def test_lost_filters_are_counted(kernel):
    with links() as (index, netlink):
        tc("qdisc add dev v0 clsact")
        tc("filter add dev v0 ingress protocol ip u32 match u32 0 0 flowid 1:1")
        kept = SavedQdiscs(netlink).list(index)
        tc("qdisc del dev v0 clsact")
        (reported,) = SavedQdiscs(netlink).restore(index, kept)
        assert reported.endswith("filters of the clsact queue ffff:")


def test_default_qdiscs_are_not_saved(kernel):
    with links() as (index, netlink):
        assert SavedQdiscs(netlink).list(index) == ()


def test_sysctls_are_restored_as_far_as_possible(kernel):
    with links():
        before = link_sysctls.read_all("v0")
        link_sysctls.write("v0", {"ipv4/arp_ignore": "3", "ipv6/accept_ra": "0"})
        changed = link_sysctls.read_all("v0")
        assert (changed["ipv4/arp_ignore"], changed["ipv6/accept_ra"]) == ("3", "0")
        assert link_sysctls.restore("v0", before) == ()
        assert link_sysctls.read_all("v0") == before
        (reported,) = link_sysctls.restore("v0", {**before, "ipv4/nonsense": "1"})
        assert "ipv4/conf/v0/nonsense" in reported
        with pytest.raises(errors.NoSuchSysctl):
            link_sysctls.write("v9", {"ipv4/arp_ignore": "1"})
        assert link_sysctls.read_all("v9") == {}


def test_features_are_read_and_requested(kernel):
    with links() as (index, _), Ethtool() as ethtool:
        before = ethtool.features(index)
        assert "rx-gro" in before.changeable
        ethtool.set_features(index, {"tx-tcp-segmentation": False, "rx-gro": True})
        after = ethtool.features(index)
        assert ("tx-tcp-segmentation" in after.active, "rx-gro" in after.active) == (False, True)
        ethtool.set_features(index, {item: item in before.wanted for item in before.changeable})
        assert ethtool.features(index) == before
        with pytest.raises(errors.Unsupported, match="bit name not found"):
            ethtool.set_features(index, {"tx-nonsense": True})
        assert ethtool.flags(index) == {}
        with pytest.raises(errors.Unsupported):
            ethtool.set_flags(index, {"magic": True})
        with pytest.raises(errors.NoSuchLink):
            ethtool.features(99)
