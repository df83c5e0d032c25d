"""vrf, on a simulated kernel that has it (its VRF is a bridge: ports, no routing), and on this one."""

import pytest

import podwire.cniplugins.vrf.plugin
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import supports
from podwire.linux.values import Bridge
from tests.cniplugins.simulated_kernel import simulate


@pytest.fixture
def simulated(monkeypatch):
    simulate(monkeypatch)


def vrf(host, previous, **keys):
    config = {"cniVersion": "1.1.0", "name": "net", "type": "vrf", "vrfname": "red", "dataDir": str(host.records)}
    return config | {"prevResult": previous} | keys


def attached(host, ifname="eth0", number=88):
    config = host.bridge(f"10.{number}.0.0/24", f"fd{number}::/64", bridge=f"br{number}", name=f"net{number}")
    config["ipam"]["routes"] = [{"dst": "10.9.0.0/16"}]
    return host.add("a", config, CNI_IFNAME=ifname), config


def routes(netns, table):
    with KernelNetwork(netns) as pod:
        return {
            str(route.destination) for family in (4, 6) for route in pod.routes.list(family, table) if route.gateway
        }


def test_interface_enters_the_vrf_with_its_routes(host, simulated):
    pod = host.pod("a")
    previous, bridge = attached(host)
    config = vrf(host, previous, table=77)
    before = routes(pod, 254)
    assert host.add("a", config) == previous
    links = host.links(pod)
    assert (links["red"].kind, links["red"].table, links["red"].up) == ("vrf", 77, True)
    assert links["eth0"].master == links["red"].ifindex
    assert routes(pod, 77) == {"0.0.0.0/0", "10.9.0.0/16", "::/0"}
    host.check("a", config, previous)
    host.delete("a", config)
    assert "red" not in host.links(pod)
    assert host.links(pod)["eth0"].master == 0
    assert routes(pod, 254) == before
    host.delete("a", config)
    host.delete("a", bridge)
    assert host.left() == {}


def test_interfaces_of_a_pod_share_a_vrf_until_the_last_leaves(host, simulated):
    pod = host.pod("a")
    first, _ = attached(host)
    second, _ = attached(host, "eth1", 99)
    host.add("a", vrf(host, first))
    host.add("a", vrf(host, second, name="other"), CNI_IFNAME="eth1")
    links = host.links(pod)
    assert links["red"].table == 1, "the first that no VRF has"
    assert {links[name].master for name in ("eth0", "eth1")} == {links["red"].ifindex}
    host.delete("a", vrf(host, first))
    assert host.links(pod)["eth1"].master == links["red"].ifindex
    host.delete("a", vrf(host, second, name="other"), CNI_IFNAME="eth1")
    assert "red" not in host.links(pod)


def test_each_vrf_gets_a_table_of_its_own(host, simulated):
    pod = host.pod("a")
    first, _ = attached(host)
    second, _ = attached(host, "eth1", 99)
    host.add("a", vrf(host, first))
    host.add("a", vrf(host, second, name="other", vrfname="blue"), CNI_IFNAME="eth1")
    assert {name: host.links(pod)[name].table for name in ("red", "blue")} == {"red": 1, "blue": 2}


def test_repeated_add_changes_nothing(host, simulated):
    pod = host.pod("a")
    previous, _ = attached(host)
    config = vrf(host, previous, table=77)
    host.add("a", config)
    assert host.add("a", config) == previous
    host.check("a", config, previous)
    assert routes(pod, 77) == {"0.0.0.0/0", "10.9.0.0/16", "::/0"}


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"vrfname": ""}, 7, "vrfname: missing", id="no name"),
        pytest.param({"vrfname": "a/b"}, 7, "vrfname: 'a/b'", id="no name of a link"),
        pytest.param({"table": -1}, 7, "table: -1", id="table"),
        pytest.param({"table": "x"}, 6, "table", id="table of a wrong type"),
        pytest.param({"vrfname": "lo"}, 100, "lo of the pod is not a VRF", id="another link"),
        pytest.param({"prevResult": None}, 7, "prevResult: missing", id="not chained"),
    ],
)
def test_invalid_configuration_is_an_error_and_changes_nothing(host, simulated, refused, keys, code, reported):
    pod = host.pod("a")
    previous, _ = attached(host)
    with refused(code, reported):
        host.add("a", vrf(host, previous) | keys)
    assert sorted(host.links(pod)) == ["eth0", "lo"]


def test_vrf_with_another_table_and_interface_with_another_master_are_refused(host, simulated, refused):
    pod = host.pod("a")
    first, _ = attached(host)
    host.add("a", vrf(host, first, table=77))
    second, _ = attached(host, "eth1", 99)
    with refused(100, "VRF red already exist with different routing table 77"):
        host.add("a", vrf(host, second, name="other", table=78), CNI_IFNAME="eth1")
    with KernelNetwork(pod) as inside:
        inside.links.add(Bridge("br0"))
        inside.links.change("eth1", master=inside.links.get("br0").ifindex)
    with refused(100, "eth1 has already a master set: br0"):
        host.add("a", vrf(host, second, name="other"), CNI_IFNAME="eth1")


def test_check_fails_when_the_interface_has_left(host, simulated, refused):
    pod = host.pod("a")
    previous, _ = attached(host)
    config = vrf(host, previous)
    host.add("a", config)
    with KernelNetwork(pod) as inside:
        inside.links.change("eth0", master=0)
    with refused(101, "failed to find eth0 associated to vrf red"):
        host.check("a", config, previous)
    with KernelNetwork(pod) as inside:
        inside.links.delete("red")
    with refused(101, "the VRF red does not exist"):
        host.check("a", config, previous)


@pytest.mark.parametrize("how", ["the record is lost", "the namespace is gone"])
def test_del_needs_neither_record_nor_namespace(host, simulated, how):
    pod = host.pod("a")
    previous, bridge = attached(host)
    config = vrf(host, previous)
    host.add("a", config)
    if how == "the record is lost":
        for path in host.records.glob("vrf/*@*"):
            path.unlink()
    else:
        host.namespaces.remove("a")
    host.delete("a", config)
    if how == "the record is lost":
        assert "red" not in host.links(pod)
    host.delete("a", bridge)
    assert host.left() == {}


def test_status_names_the_kernel_option_that_is_missing(host, refused, monkeypatch):
    monkeypatch.setattr(podwire.cniplugins.vrf.plugin, "supports", lambda _netlink, _kind: False)
    config = vrf(host, None)
    with refused(50, "CONFIG_NET_VRF"):
        host.call("STATUS", "", config, "")


def test_this_kernel_makes_the_vrf_or_is_named(host, refused):
    pod = host.pod("a")
    previous, _ = attached(host)
    with KernelNetwork() as here:
        supported = supports(here.netlink, "vrf")
    if not supported:
        with refused(102, "CONFIG_NET_VRF"):
            host.add("a", vrf(host, previous))
        assert sorted(host.links(pod)) == ["eth0", "lo"]
        return
    host.check("a", vrf(host, previous), host.add("a", vrf(host, previous)))
    assert routes(pod, host.links(pod)["red"].table) == {"0.0.0.0/0", "10.9.0.0/16", "::/0"}
