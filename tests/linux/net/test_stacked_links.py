"""Links made on links, in any namespace, with all that they are to be; and what one message changes of a link."""

import os

import pytest

from podwire.linux import errors
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import FEATURES
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import Stacked, make, supports
from podwire.linux.proc.namespaces import KernelNamespaces, open_namespace
from podwire.linux.values import Veth


@pytest.fixture
def cable(kernel, tmp_path):
    """Made by the test's own thread: its parent's index, sockets here and there, the namespace there."""
    spaces = KernelNamespaces(tmp_path / "ns")
    held = []

    def made():
        with KernelNetwork() as network:
            network.links.add(Veth("v0", "v1", up=True))
            index = network.links.get("v0").ifindex
        there = open_namespace(spaces.create("pod").path)
        held.extend((Netlink(), Netlink(there)))
        return index, *held, there

    yield made
    for item in held:
        item.close()
    spaces.remove("pod")


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        (Stacked("macvlan", mode="private"), "macvlan"),
        (Stacked("vxlan", vni=7, remote="10.0.0.9", port=4790), "vxlan"),
        (Stacked("vxlan", vni=8, remote="fd00::9"), "vxlan"),
    ],
)
def test_link_is_made_in_its_namespace_with_its_attributes(cable, new, kind):
    parent, here, pod, there = cable()
    wanted = Attributes(name="net1", mac="02:00:00:00:00:77", mtu=1300, queue=55, gso_max_size=40000, up=True)
    make(here, new._replace(parent=parent), wanted, there)
    os.close(there)
    found = DetailedLinks(pod).get("net1")
    assert (found.link.kind, found.link.mac, found.link.mtu, found.link.queue) == (kind, wanted.mac, 1300, 55)
    assert (found.gso_max_size, found.link.up) == (40000, True)
    with pytest.raises(errors.NoSuchLink):
        DetailedLinks(here).get("net1")


@pytest.mark.parametrize("kind", sorted(FEATURES))
def test_support_of_a_kind_is_probed_without_a_link(cable, kind):
    parent, here, _, there = cable()
    os.close(there)
    before = DetailedLinks(here).list()
    has = supports(here, kind)
    assert DetailedLinks(here).list() == before
    if not has:
        with pytest.raises(errors.Unsupported, match=rf"{kind}|{FEATURES[kind]}"):
            make(here, Stacked(kind, parent=parent, vlan=5, table=9, vni=1), Attributes(name="net1"))


def test_invalid_mode_is_refused(cable):
    parent, here, _, there = cable()
    os.close(there)
    with pytest.raises(errors.Refused, match="mode 'l9' must be one of private, vepa, bridge, passthru"):
        make(here, Stacked("macvlan", parent=parent, mode="l9"), Attributes(name="net1"))


def test_a_link_moves_and_changes_in_one_message(cable):
    parent, here, pod, there = cable()
    wanted = Attributes(
        name="net1",
        mac="02:00:00:00:00:78",
        mtu=1400,
        alias="mine",
        gso_max_size=70000,
        gso_max_segments=100,
        gro_max_size=80000,
        gso_ipv4_max_size=50000,
        gro_ipv4_max_size=60000,
    )
    DetailedLinks(here).change(parent, wanted, there)
    os.close(there)
    found = DetailedLinks(pod).get("net1")
    assert (found.link.mac, found.link.mtu, found.link.alias, found.link.up) == (wanted.mac, 1400, "mine", False)
    assert found[2:7] == (70000, 100, 80000, 50000, 60000)
    DetailedLinks(pod).change(found.link.ifindex, Attributes(alias="", promiscuous=True, all_multicast=True, up=True))
    again = DetailedLinks(pod).get(found.link.ifindex).link
    assert (again.alias, again.promiscuous, again.all_multicast, again.up) == ("", True, True, True)
    assert [detailedlink.link.name for detailedlink in DetailedLinks(pod).list()] == ["lo", "net1"]
    with pytest.raises(errors.NoSuchLink):
        DetailedLinks(pod).change(99, Attributes(mtu=1300))
