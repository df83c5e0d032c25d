"""ipvlan, vlan and dummy, on a simulated kernel that has them; and what they say on one that does not."""

import pytest

import podwire.cniplugins.own_link
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import supports
from podwire.linux.values import Veth
from tests.cniplugins.simulated_kernel import simulate

DUAL = ("10.88.0.0/24", "fd88::/64")
PLUGINS = ("ipvlan", "vlan", "dummy")
OPTIONS = {"ipvlan": "CONFIG_IPVLAN", "vlan": "CONFIG_VLAN_8021Q", "dummy": "CONFIG_DUMMY", "vrf": "CONFIG_NET_VRF"}


def wired(name="wire0", netns=None):
    with KernelNetwork(netns) as network:
        network.links.add(Veth(name, f"{name}-far"))
        for end in (name, f"{name}-far"):
            network.links.change(network.links.get(end).ifindex, up=True)


def config(host, plugin, *subnets, **keys):
    own = {"ipvlan": {"master": "wire0"}, "vlan": {"master": "wire0", "vlanId": 7}, "dummy": {}}[plugin]
    return host.config(plugin, *(subnets or DUAL), **own | keys)


@pytest.fixture
def simulated(monkeypatch):
    simulate(monkeypatch)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_add_makes_everything_that_the_result_has(host, simulated, plugin):
    wired()
    pod = host.pod("a")
    own = {} if plugin == "dummy" else {"mtu": 1400, "dns": {"domain": "x"}}
    requested = config(host, plugin, **own)
    requested["ipam"]["routes"] = [{"dst": "10.9.0.0/16"}]
    result = host.add("a", requested)
    eth0 = host.links(pod)["eth0"]
    assert (eth0.kind, eth0.up) == (plugin, True)
    assert (eth0.mode, eth0.vlan) == {"ipvlan": ("l2", 0), "vlan": ("", 7), "dummy": ("", 0)}[plugin]
    if plugin != "dummy":
        assert (eth0.mtu, eth0.peer) == (1400, host.links()["wire0"].ifindex)
    assert result == {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": eth0.mac, "sandbox": pod, "mtu": eth0.mtu}],
        "ips": [
            {"interface": 0, "address": "10.88.0.2/24", "gateway": "10.88.0.1"},
            {"interface": 0, "address": "fd88::2/64", "gateway": "fd88::1"},
        ],
        "routes": [{"dst": "10.9.0.0/16"}],
        **({} if plugin == "dummy" else {"dns": {"domain": "x"}}),
    }
    host.check("a", requested, result)
    assert host.add("a", requested) == result
    host.delete("a", requested)
    assert list(host.links(pod)) == ["lo"]
    assert host.left() == {}
    host.delete("a", requested)


@pytest.mark.parametrize("plugin", ["ipvlan", "vlan"])
def test_master_can_be_a_link_of_the_pod(host, simulated, plugin):
    pod = host.pod("a")
    wired("wire0", pod)
    requested = config(host, plugin, linkInContainer=True)
    result = host.add("a", requested)
    assert host.links(pod)["eth0"].peer == host.links(pod)["wire0"].ifindex
    host.check("a", requested, result)
    host.delete("a", requested, "")
    assert "eth0" not in host.links(pod)
    assert host.left() == {}


@pytest.mark.parametrize("mode", ["l2", "l3", "l3s"])
def test_mode_of_an_ipvlan_is_set_and_checked(host, simulated, refused, mode):
    wired()
    pod = host.pod("a")
    result = host.add("a", config(host, "ipvlan", mode=mode))
    assert host.links(pod)["eth0"].mode == mode
    other = "l3" if mode == "l2" else "l2"
    with refused(101, f"the mode {mode}, expected {other}"):
        host.check("a", config(host, "ipvlan", mode=other), result)


def test_ipvlan_without_ipam_takes_addresses_and_master_of_the_previous_result(host, simulated, refused):
    wired()
    pod = host.pod("a")
    previous = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "wire0"}],
        "ips": [{"address": "10.77.0.2/24", "gateway": "10.77.0.1", "interface": 0}],
    }
    chained = config(host, "ipvlan", master="", ipam={}) | {"prevResult": previous}
    result = host.add("a", chained)
    assert [ip["address"] for ip in result["ips"]] == ["10.77.0.2/24"]
    assert host.links(pod)["eth0"].peer == host.links()["wire0"].ifindex
    host.check("a", chained, result)
    host.delete("a", chained)
    both = previous | {"interfaces": [{"name": "wire0"}, {"name": "wire0-far"}]}
    with refused(7, "prevResult has 2 interfaces"):
        host.add("a", chained | {"prevResult": both})


@pytest.mark.parametrize("plugin", PLUGINS)
def test_ipam_is_required(host, simulated, refused, plugin):
    wired()
    host.pod("a")
    with refused(7, f"{plugin} interface requires an IPAM configuration"):
        host.add("a", config(host, plugin, ipam={}))
    assert host.left() == {}


@pytest.mark.parametrize(
    ("plugin", "keys", "code", "reported"),
    [
        pytest.param("ipvlan", {"mode": "l4"}, 7, "mode: 'l4'", id="mode"),
        pytest.param("ipvlan", {"master": "nobody0"}, 7, "link nobody0 does not exist", id="no master"),
        pytest.param("ipvlan", {"master": ""}, 7, "no default route", id="no default route"),
        pytest.param("ipvlan", {"mtu": 9000}, 7, "between 0 and 1500", id="more than its master's"),
        pytest.param("ipvlan", {"linkInContainer": "yes"}, 6, "linkInContainer", id="no boolean"),
        pytest.param("vlan", {"master": ""}, 7, "master: missing", id="vlan without a master"),
        pytest.param("vlan", {"vlanId": 4095}, 7, "vlanId: 4095", id="vlan id"),
        pytest.param("vlan", {"vlanId": -1}, 7, "vlanId: -1", id="negative vlan id"),
        pytest.param("vlan", {"vlanId": "7"}, 6, "vlanId", id="vlan id of a wrong type"),
    ],
)
def test_invalid_configuration_is_an_error_and_changes_nothing(host, simulated, refused, plugin, keys, code, reported):
    wired()
    host.pod("a")
    with refused(code, reported):
        host.add("a", config(host, plugin, **keys))
    assert host.left() == {}
    assert sorted(host.links()) == ["lo", "wire0", "wire0-far"]


def test_failed_move_leaves_no_link(host, simulated, refused):
    wired()
    pod = host.pod("a")
    wired("eth0", pod)
    with refused(100, "eth0 already exists"):
        host.add("a", config(host, "ipvlan"))
    assert sorted(host.links()) == ["lo", "wire0", "wire0-far"]
    assert host.left() == {}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_gc_releases_only_invalid_attachments(host, simulated, plugin):
    wired()
    results = {}
    for index, name in enumerate("ab"):
        host.pod(name)
        own = {"vlanId": 7 + index} if plugin == "vlan" else {}
        results[name] = host.add(name, config(host, plugin, **own))
    kept = {"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]}
    assert host.call("GC", "", config(host, plugin) | kept, "") is None
    assert "eth0" not in host.links(host.namespaces.path("b"))
    host.check("a", config(host, plugin), results["a"])
    host.delete("a", config(host, plugin))
    assert host.left() == {}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_link_is_found_by_its_tag_when_the_record_is_lost(host, simulated, plugin):
    wired()
    pod = host.pod("a")
    requested = config(host, plugin)
    host.add("a", requested)
    for path in host.records.glob("*/*@*"):
        path.unlink()
    host.delete("a", requested)
    assert list(host.links(pod)) == ["lo"]
    assert host.left() == {}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_status_names_the_kernel_option_that_is_missing(host, refused, monkeypatch, plugin):
    wired()
    monkeypatch.setattr(podwire.cniplugins.own_link, "supports", lambda _netlink, _kind: False)
    with refused(50, OPTIONS[plugin]):
        host.call("STATUS", "", config(host, plugin), "")
    host.pod("a")
    with refused(102, OPTIONS[plugin]):
        host.add("a", config(host, plugin))
    assert host.left() == {}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_this_kernel_makes_the_link_or_is_named(host, refused, plugin):
    """Without simulation, on any kernel."""
    wired()
    pod = host.pod("a")
    with KernelNetwork() as here:
        supported = supports(here.netlink, plugin)
    if not supported:
        with refused(102, OPTIONS[plugin]):
            host.add("a", config(host, plugin))
        assert host.left() == {}
        return
    result = host.add("a", config(host, plugin))
    assert host.links(pod)["eth0"].kind == plugin
    host.check("a", config(host, plugin), result)
    host.delete("a", config(host, plugin))
    assert host.left() == {}
