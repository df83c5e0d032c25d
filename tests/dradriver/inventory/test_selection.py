"""Links that are offered, their type and their names."""

from ipaddress import ip_network

import pytest

from podwire.dradriver.inventory.config import Config, Shared
from podwire.dradriver.inventory.selection import chosen, label, labels
from podwire.linux.net.sysfs import Hardware
from podwire.linux.values import Link, Route

UP = Route(ip_network("0.0.0.0/0"), None, 2)


def link(index: int, name: str, kind: str = "veth", **more) -> Link:
    return Link(index, name, kind, "02:00:00:00:00:01", 1500, True, "up", **more)


def offered(links, config=None, routes=(UP,)) -> dict[str, int | None]:
    """Names to slots, or None for a link that moves."""
    choices, left_out = chosen({link.ifindex: link for link in links}, routes, config or Config())
    names = {choice.link.name for choice in choices.values()}
    assert names.isdisjoint(left_out)
    assert names | left_out.keys() == {link.name for link in links}
    return {choice.link.name: choice.parent.slots if choice.parent else None for choice in choices.values()}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([link(1, "lo", "")], {}, id="never the loopback"),
        pytest.param([link(2, "eth0", "")], {}, id="never the uplink"),
        pytest.param([link(3, "eth1", "")], {"eth1": None}, id="hardware"),
        pytest.param([link(3, "v0", peer=9, peer_netns=4)], {"v0": None}, id="a cable that ends elsewhere"),
        pytest.param([link(3, "v0", peer=4), link(4, "v1", peer=3)], {"v0": None, "v1": None}, id="both ends of one"),
        pytest.param([link(3, "v0", alias="podwire:1a2b net/x/eth0")], {}, id="a pod's cable"),
        pytest.param([link(3, "br-pods", "bridge", alias="podwire")], {}, id="the bridge of the node's pods"),
        pytest.param([link(3, "ifb7", "ifb", alias="podwire:1 shape")], {}, id="an ifb of ours"),
        pytest.param([link(3, "ifb0", "ifb")], {"ifb0": None}, id="an ifb of somebody"),
        pytest.param([link(3, "d0", alias="podwire-device:nics")], {}, id="what the device plugin has made"),
        pytest.param(
            [link(3, "v0", peer=4), link(4, "v1", peer=3, alias="podwire:1 x")], {}, id="the end of one of ours"
        ),
        pytest.param([link(3, "v0", alias="podwires")], {"v0": None}, id="a name that only begins like ours"),
        pytest.param([link(3, "br0", "bridge")], {"br0": 16}, id="a bridge is shared"),
        pytest.param([link(3, "p0", master=4), link(4, "br0", "bridge")], {"br0": 16}, id="its port is not offered"),
        pytest.param([link(2, "br0", "bridge")], {}, id="a bridge that is the uplink is not shared by itself"),
        pytest.param([link(3, "docker0", "bridge")], {}, id="other networks' bridges"),
        pytest.param([link(3, "cilium_host")], {}, id="other networks' links"),
        pytest.param([link(3, "sit0", "sit")], {}, id="links that each namespace has"),
        pytest.param([link(3, "bond0", "bond")], {}, id="what cannot be moved"),
        pytest.param([link(2, "eth0", ""), link(3, "m0", "macvlan", peer=2)], {"m0": None}, id="a child of the uplink"),
    ],
)
def test_link_is_offered_unless_the_host_needs_it(links, expected):
    assert offered(links) == expected


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([link(3, "eth1", "")], {"eth1": 8}, id="a link that is named"),
        pytest.param([link(2, "eth1", "")], {"eth1": 8}, id="the uplink, if it is named"),
        pytest.param([link(3, "eth1", "", master=4), link(4, "x", "bond")], {"eth1": 8}, id="a port that is named"),
        pytest.param([link(3, "eth1", "", alias="podwire:1 x")], {}, id="not what is podwire's own"),
        pytest.param([link(3, "br0", "bridge")], {}, id="bridges are not, when that is said"),
    ],
)
def test_config_decides_which_links_are_shared(links, expected):
    config = Config(shared=(Shared(interface="eth1", slots=8),), bridges=False)
    assert offered(links, config) == expected


@pytest.mark.parametrize(
    ("name", "hardware", "expected"),
    [
        ("eth1", Hardware(pci="0000:3b:02.1"), "pci-0000-3b-02-1"),
        ("eth1", Hardware(pci="10000:E1:00.0"), "pci-10000-e1-00-0"),
        ("eth1", Hardware(), "eth1"),
        ("eth1", Hardware(pci="what's this"), "eth1"),
        ("mlx5_6", Hardware(), "net-nvwhqnk7gy"),
        ("Eth0", Hardware(), "net-iv2gqma"),
        ("eth0.100", Hardware(), "net-mv2gqmbogeyda"),
        ("-a", Hardware(), "net-fvqq"),
    ],
)
def test_a_device_is_named_by_its_place_or_by_its_link(name, hardware, expected):
    assert label(name, hardware) == expected


def test_of_several_links_on_one_device_the_first_port_has_its_name():
    on = Hardware(pci="0000:3b:00.0")
    found = labels({7: ("p1", on._replace(port=1)), 9: ("p0", on), 8: ("rep0", on)})
    assert found == {8: "pci-0000-3b-00-0", 9: "p0", 7: "p1"}


def test_a_name_that_is_taken_is_not_given_twice():
    assert labels({3: ("eth1", Hardware()), 4: ("eth2", Hardware())}, ["eth1"]) == {4: "eth2"}
