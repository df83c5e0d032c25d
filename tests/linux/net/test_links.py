"""Links, and what other programs see of them."""

import pytest

from podwire.linux import errors
from podwire.linux.values import Bridge, Macvlan, Veth
from tests.eventually import eventually

MAC, OTHER_MAC = "02:11:22:33:44:55", "02:11:22:33:44:66"


def test_a_fresh_namespace_has_a_loopback_that_is_down(kernel, host):
    network, _ = host("a")
    (lo,) = network.links.list()
    assert (lo.ifindex, lo.name, lo.kind, lo.up, lo.mtu, lo.mac) == (1, "lo", "", False, 65536, "00:00:00:00:00:00")


def test_bridge_has_its_requested_attributes(kernel, host, reported):
    network, path = host("a")
    network.links.add(Bridge("br0", mtu=1400, mac=MAC, alias="podwire:net/a", up=True))
    bridge = network.links.get("br0")
    assert (bridge.kind, bridge.mtu, bridge.mac, bridge.alias, bridge.up) == (
        "bridge",
        1400,
        MAC,
        "podwire:net/a",
        True,
    )
    (seen,) = reported("ip", "-j", "-d", "link", "show", "br0", netns=path)
    assert (seen["mtu"], seen["address"], seen["ifalias"]) == (1400, MAC, "podwire:net/a")
    assert seen["linkinfo"]["info_kind"] == "bridge"


def test_a_pair_reaches_into_another_namespace_at_once(kernel, host, reported):
    (here, path), (there, other) = host("a"), host("b")
    here.links.add(Bridge("br0", up=True))
    master = here.links.get("br0").ifindex
    new = Veth("pod1", "eth0", other, 2, 1450, MAC, OTHER_MAC, "podwire:pod-1", master, up=True)
    here.links.add(new)
    end, peer = here.links.get("pod1"), there.links.get(2)
    assert (end.mtu, end.mac, end.alias, end.master, end.up) == (1450, MAC, "podwire:pod-1", master, True)
    assert (peer.name, peer.mtu, peer.mac, peer.up, peer.kind) == ("eth0", 1450, OTHER_MAC, False, "veth")
    assert (end.peer, peer.peer) == (peer.ifindex, end.ifindex)
    assert end.peer_netns is not None
    assert peer.peer_netns is not None
    (seen,) = reported("ip", "-j", "link", "show", "eth0", netns=other)
    assert (seen["ifindex"], seen["address"]) == (2, OTHER_MAC)
    (seen,) = reported("ip", "-j", "link", "show", "pod1", netns=path)
    assert seen["master"] == "br0"


def test_a_pair_in_one_namespace_has_its_peer_there(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1"))
    one, two = network.links.get("a0"), network.links.get("a1")
    assert (one.peer, one.peer_netns) == (two.ifindex, None)
    assert (two.peer, two.peer_netns) == (one.ifindex, None)


def test_a_pair_is_up_when_both_ends_are(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1", up=True))
    eventually(lambda: network.links.get("a0").state == "lowerlayerdown")
    network.links.change("a1", up=True)
    eventually(lambda: network.links.get("a0").state == network.links.get("a1").state == "up")
    network.links.change("a1", up=False)
    eventually(lambda: network.links.get("a0").state == "lowerlayerdown")
    assert network.links.get("a1").state == "down"


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(Bridge("a0"), id="a bridge"),
        pytest.param(Veth("a0", "b1"), id="a pair's own end"),
        pytest.param(Veth("b0", "a0"), id="a pair's peer"),
        pytest.param(Veth("b0", "b0"), id="a pair with one name"),
    ],
)
def test_second_link_of_a_name_is_refused_and_leaves_nothing(kernel, host, new):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1"))
    before = network.links.list()
    with pytest.raises(errors.LinkExists) as failed:
        network.links.add(new)
    assert str(failed.value).startswith(
        f"add {'bridge' if isinstance(new, Bridge) else 'veth'} {new.name}: File exists"
    )
    assert [link.name for link in network.links.list()] == [item.name for item in before]


def test_a_peers_name_is_taken_in_its_own_namespace_only(kernel, host):
    (here, _), (_, other) = host("a"), host("b")
    here.links.add(Veth("p1", "eth0", other))
    with pytest.raises(errors.LinkExists):
        here.links.add(Veth("p2", "eth0", other))
    assert [link.name for link in here.links.list()] == ["lo", "p1"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="none"),
        pytest.param("sixteen-bytes-xx", id="too long"),
        pytest.param("a/b", id="a slash"),
        pytest.param("a b", id="a space"),
        pytest.param("pod%d", id="a pattern that the kernel would fill in"),
        pytest.param("..", id="a directory"),
        pytest.param("a:1", id="a colon"),
    ],
)
def test_invalid_link_name_is_refused(kernel, host, name):
    network, _ = host("a")
    with pytest.raises(errors.Refused, match="name a link"):
        network.links.add(Bridge(name))
    assert [link.name for link in network.links.list()] == ["lo"]


def test_invalid_mac_address_is_refused(kernel, host):
    network, _ = host("a")
    with pytest.raises(errors.Refused, match="six pairs of hex digits"):
        network.links.add(Bridge("br0", mac="02:00:00"))


def test_missing_link_is_no_such_link_for_every_call(kernel, host):
    network, path = host("a")
    for call in (
        lambda: network.links.get("eth7"),
        lambda: network.links.get(77),
        lambda: network.links.change("eth7", up=True),
        lambda: network.links.change(77, mtu=1400),
        lambda: network.links.delete("eth7"),
        lambda: network.links.move("eth7", path),
        lambda: network.links.add(Veth("a0", "a1", master=77)),
        lambda: network.links.add(Macvlan("m0", 77)),
    ):
        with pytest.raises((errors.NoSuchLink, errors.Refused)):
            call()
    assert [link.name for link in network.links.list()] == ["lo"]


def test_missing_link_error_has_the_operation(kernel, host):
    network, _ = host("a")
    with pytest.raises(errors.NoSuchLink) as failed:
        network.links.delete("eth7")
    assert failed.value.errno == 19
    assert failed.value.operation == "delete link eth7"
    assert str(failed.value).startswith("delete link eth7: No such device")


def test_change_sets_only_the_given_attributes(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1", alias="mine"))
    before = network.links.get("a0")
    network.links.change(before.ifindex, name="b0", mtu=1300, mac=MAC, promiscuous=True)
    after = network.links.get("b0")
    assert after == before._replace(name="b0", mtu=1300, mac=MAC, promiscuous=True)
    network.links.change("b0", alias="")
    assert network.links.get("b0").alias == ""


def test_a_link_is_renamed_by_its_index_and_not_onto_another(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1"))
    with pytest.raises(errors.Refused, match="renamed by its index"):
        network.links.change("a0", name="b0")
    with pytest.raises(errors.LinkExists):
        network.links.change(network.links.get("a0").ifindex, name="a1")


@pytest.mark.parametrize("mtu", [10, 1 << 20])
def test_an_mtu_that_a_link_cannot_have_is_refused(kernel, host, mtu):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1"))
    with pytest.raises(errors.Refused):
        network.links.change("a0", mtu=mtu)
    assert network.links.get("a0").mtu == 1500


def test_a_port_joins_and_leaves_its_bridge(kernel, host):
    network, _ = host("a")
    network.links.add(Bridge("br0"))
    network.links.add(Veth("a0", "a1"))
    bridge = network.links.get("br0").ifindex
    network.links.change("a0", master=bridge)
    assert network.links.get("a0").master == bridge
    network.links.change("a0", master=0)
    assert network.links.get("a0").master == 0
    with pytest.raises(errors.Unsupported):
        network.links.change("a0", master=network.links.get("a1").ifindex)


def test_deleted_bridge_releases_its_ports(kernel, host):
    network, _ = host("a")
    network.links.add(Bridge("br0"))
    network.links.add(Veth("a0", "a1", master=network.links.get("br0").ifindex))
    network.links.delete("br0")
    assert {(link.name, link.master) for link in network.links.list()} == {("lo", 0), ("a0", 0), ("a1", 0)}


def test_a_ports_flags_are_set_one_by_one(kernel, host, reported):
    network, path = host("a")
    network.links.add(Bridge("br0"))
    network.links.add(Veth("a0", "a1", master=network.links.get("br0").ifindex))
    port = network.links.get("a0").ifindex
    network.links.set_port(port, hairpin=True)
    network.links.set_port(port, isolated=True)
    assert (network.links.get("a0").hairpin, network.links.get("a0").isolated) == (True, True)
    (seen,) = reported("bridge", "-j", "-d", "link", "show", "dev", "a0", netns=path)
    assert (seen["hairpin"], seen["isolated"]) == (True, True)
    network.links.set_port(port, hairpin=False)
    assert (network.links.get("a0").hairpin, network.links.get("a0").isolated) == (False, True)


def test_port_flags_of_a_non_port_are_refused(kernel, host):
    network, _ = host("a")
    network.links.add(Veth("a0", "a1"))
    with pytest.raises(errors.LinuxError):
        network.links.set_port(network.links.get("a0").ifindex, hairpin=True)


def test_a_link_moves_and_arrives_down_under_its_new_name(kernel, host):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1", alias="mine", up=True))
    here.links.move("a0", other, "eth0")
    moved = there.links.get("eth0")
    assert (moved.up, moved.kind, moved.alias) == (False, "veth", "mine")
    assert [link.name for link in here.links.list()] == ["lo", "a1"]
    with pytest.raises(errors.NoSuchLink):
        here.links.get("a0")


def test_a_link_does_not_move_onto_another_or_into_nothing(kernel, host, tmp_path):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1"))
    there.links.add(Bridge("a0"))
    with pytest.raises(errors.LinkExists):
        here.links.move("a0", other)
    with pytest.raises(errors.NoSuchNamespace):
        here.links.move("a0", tmp_path / "nowhere")
    assert here.links.get("a0").kind == "veth"


@pytest.mark.parametrize("name", ["lo", "br0"])
def test_namespace_local_links_do_not_move(kernel, host, name):
    (here, _), (_, other) = host("a"), host("b")
    here.links.add(Bridge("br0"))
    with pytest.raises(errors.Refused):
        here.links.move(name, other, "x0")
    assert here.links.get(name).name == name


def test_a_deleted_end_takes_its_peer_with_it(kernel, host):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("p1", "eth0", other))
    there.links.delete("eth0")
    assert [link.name for link in here.links.list()] == ["lo"]


def test_a_namespace_that_ends_takes_both_ends_with_it(kernel, host, tmp_path):
    (here, _) = host("a")
    made = kernel.namespaces(tmp_path / "other")
    here.links.add(Veth("p1", "eth0", made.create("b").path))
    made.remove("b")
    eventually(lambda: [link.name for link in here.links.list()] == ["lo"])


def test_an_open_network_keeps_its_namespace_alive(kernel, host, tmp_path):
    here, _ = host("a")
    made = kernel.namespaces(tmp_path / "other")
    path = made.create("b").path
    there = kernel.network(path)
    here.links.add(Veth("p1", "eth0", path))
    made.remove("b")
    assert there.links.get("eth0").name == "eth0"
    there.close()
    eventually(lambda: [link.name for link in here.links.list()] == ["lo"])


def test_macvlan_is_stacked_on_its_parent(kernel, host, reported):
    (here, path), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1", mtu=1400))
    parent = here.links.get("a0").ifindex
    here.links.add(Macvlan("m0", parent, mac=MAC))
    here.links.add(Macvlan("eth0", parent, "private", other))
    near, far = here.links.get("m0"), there.links.get("eth0")
    assert (near.kind, near.mac, near.mtu, near.peer, near.peer_netns) == ("macvlan", MAC, 1400, parent, None)
    assert (far.kind, far.peer) == ("macvlan", parent)
    assert far.peer_netns is not None
    assert (near.mode, far.mode, here.links.get("a0").mode) == ("bridge", "private", "")
    (seen,) = reported("ip", "-j", "-d", "link", "show", "m0", netns=path)
    assert seen["linkinfo"]["info_data"]["mode"] == "bridge"
    here.links.delete("a0")
    assert [link.name for link in there.links.list()] == ["lo"]
    with pytest.raises(errors.Refused, match=r"none of|Invalid"):
        here.links.add(Macvlan("m1", 1, "nothing"))


def test_the_loopback_is_not_deleted(kernel, host):
    network, _ = host("a")
    with pytest.raises(errors.LinuxError):
        network.links.delete("lo")
    assert network.links.get("lo")


def test_macvlan_keeps_its_tag_and_mode_when_it_moves(kernel, host, reported):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1"))
    parent = here.links.get("a0").ifindex
    here.links.add(Macvlan("m0", parent, "vepa", alias="mine", queue=2000))
    assert here.links.get("m0").alias == "mine"
    here.links.move(here.links.get("m0").ifindex, other, "eth0")
    moved = there.links.get("eth0")
    assert (moved.alias, moved.mode, moved.kind, moved.up) == ("mine", "vepa", "macvlan", False)
    (seen,) = reported("ip", "-j", "-d", "link", "show", "eth0", netns=other)
    assert seen["linkinfo"]["info_data"]["bcqueuelen"] == 2000
    with pytest.raises(errors.Refused, match="marked first"):
        here.links.add(Macvlan("m1", parent, netns=other, alias="mine"))
    assert [link.name for link in here.links.list()] == ["lo", "a1", "a0"]


def test_link_returns_under_its_old_name(kernel, host):
    (here, home), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1", alias="mine"))
    here.links.add(Bridge("eth0"))
    here.links.move("a0", other, "eth0")
    there.links.change("eth0", up=True)
    there.links.move("eth0", home, "a0")
    back = here.links.get("a0")
    assert (back.alias, back.up, here.links.get("eth0").kind) == ("mine", False, "bridge")


def test_link_whose_new_name_is_taken_does_not_move(kernel, host):
    (here, _), (there, other) = host("a"), host("b")
    here.links.add(Veth("a0", "a1", up=True))
    there.links.add(Bridge("eth0"))
    with pytest.raises(errors.LinkExists):
        here.links.move("a0", other, "eth0")
    assert here.links.get("a0").up
    assert [link.name for link in there.links.list()] == ["lo", "eth0"]
