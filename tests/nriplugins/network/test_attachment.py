"""How a pod hangs on its node: decided by what links say, and looked up on real ones."""

import uuid
from ipaddress import ip_interface

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.values import Address, Bridge, Link, Macvlan, Veth
from podwire.nriplugins.network.attachment import HostAttachment, decide, find_attachment, own_link
from podwire.nriplugins.network.policy.values import Attachment


def link(ifindex, name, kind="veth", **more):
    return Link(ifindex=ifindex, name=name, kind=kind, mac="", mtu=1500, up=True, state="up", **more)


ETH0 = link(2, "eth0", peer=7, peer_netns=0)


@pytest.mark.parametrize(
    ("host", "master", "attachment"),
    [
        pytest.param(link(7, "pw1", peer=2, peer_netns=1), None, HostAttachment(Attachment.ROUTED, "pw1"), id="routed"),
        pytest.param(
            link(7, "pw1", peer=2, peer_netns=1, master=3),
            link(3, "br0", "bridge"),
            HostAttachment(Attachment.BRIDGED, "br0"),
            id="a bridge's port",
        ),
        pytest.param(
            link(7, "pw1", peer=2, peer_netns=1, master=3),
            link(3, "blue", "vrf"),
            HostAttachment(Attachment.ROUTED, "pw1"),
            id="a master that is not a bridge",
        ),
        pytest.param(
            link(7, "eno1", ""), None, HostAttachment(Attachment.INSIDE, "eth0"), id="hardware with that index"
        ),
        pytest.param(
            link(7, "pw9", peer=5, peer_netns=1),
            None,
            HostAttachment(Attachment.INSIDE, "eth0"),
            id="somebody else's veth",
        ),
        pytest.param(
            link(7, "pw9", peer=2), None, HostAttachment(Attachment.INSIDE, "eth0"), id="a pair within the node"
        ),
    ],
)
def test_the_other_end_of_a_veth_decides(host, master, attachment):
    assert decide(ETH0, host, master) == attachment


def test_a_pods_link_is_the_one_with_its_first_address_that_any_has():
    links = [link(1, "lo", ""), ETH0, link(3, "net1")]
    addresses = [Address(3, ip_interface("10.2.0.5/24")), Address(2, ip_interface("10.1.0.5/24"))]
    assert own_link(links, addresses, ["fd00::5", "10.1.0.5", "10.2.0.5"]) == ETH0
    assert own_link(links, addresses, ["10.9.9.9"]) is None


@pytest.fixture
def places(tmp_path):
    """A node and a pod, as namespaces."""
    namespaces = KernelNamespaces(tmp_path)
    names = [f"{name}-{uuid.uuid4().hex[:6]}" for name in ("node", "pod")]
    yield [namespaces.create(name).path for name in names]
    for item in names:
        namespaces.remove(item)


@pytest.mark.parametrize("way", ["routed", "bridged", "macvlan", "elsewhere"])
def test_real_links_are_recognised(places, way):
    node, pod = places
    with KernelNetwork(node) as outside, KernelNetwork(pod) as inside:
        outside.links.add(Bridge("br0"))
        bridge = outside.links.get("br0").ifindex
        if way == "macvlan":
            outside.links.add(Veth("up0", "up1"))
            outside.links.add(Macvlan("eth0", outside.links.get("up0").ifindex, netns=pod))
        elif way == "elsewhere":
            inside.links.add(Veth("eth0", "peer"))
        else:
            outside.links.add(Veth("pw0", "eth0", pod, master=bridge if way == "bridged" else 0))
        inside.addresses.add(inside.links.get("eth0").ifindex, ip_interface("10.1.0.5/24"))
        wanted = {
            "routed": HostAttachment(Attachment.ROUTED, "pw0"),
            "bridged": HostAttachment(Attachment.BRIDGED, "br0"),
            "macvlan": HostAttachment(Attachment.INSIDE, "eth0"),
            "elsewhere": HostAttachment(Attachment.INSIDE, "eth0"),
        }
        assert find_attachment(pod, ["10.1.0.5"], outside) == wanted[way]
        assert find_attachment(pod, ["10.1.0.6"], outside) == HostAttachment(Attachment.INSIDE, "")
