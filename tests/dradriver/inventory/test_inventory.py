"""A host's links as devices: looked at, followed, held while pods have them. With the kernel's own links."""

import asyncio
import contextlib
import logging
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.dradriver.inventory.config import Shared
from podwire.dradriver.inventory.devices import GONE, NO_CARRIER
from podwire.dradriver.inventory.link_watch import LinkWatch
from podwire.linux.net.link_moves import LinkMoves
from podwire.linux.net.monitor import NEXT_HOP, Changed
from podwire.linux.values import Bridge, Ifb, Macvlan, Route, Veth
from podwire.protocols.settings import BadConfig


def names(inventory) -> list[str]:
    return [device["name"] for device in inventory.devices()]


def attributes(inventory, device: str) -> dict:
    [found] = [item for item in inventory.devices() if item["name"] == device]
    return {name: next(iter(value.values())) for name, value in found["attributes"].items()}


def taints(inventory, device: str) -> list[str]:
    [found] = [item for item in inventory.devices() if item["name"] == device]
    return [taint["key"] for taint in found.get("taints", ())]


def cable(host, name: str, **more) -> int:
    """A link whose other end is outside."""
    if "outside" not in [namespace.name for namespace in host.namespaces.list()]:
        host.made("outside")
    host.links.add(Veth(name, f"{name}-o"[:15], host.namespaces.path("outside"), **more))
    return host.links.get(name).ifindex


def test_links_are_devices_with_attributes(host):
    cable(host, "eth1", mtu=9000)
    host.network.addresses.add(host.links.get("eth1").ifindex, ip_interface("10.9.0.1/24"))
    host.links.change("eth1", alias="rack 7")
    inventory = host.inventory()
    inventory.look()
    result = attributes(inventory, "eth1")
    assert (result["interface"], result["kind"], result["mtu"], result["speed"]) == ("eth1", "veth", 9000, 10_000)
    assert (result["ipv4"], result["alias"], result["virtual"], result["shared"]) == (
        "10.9.0.1/24",
        "rack 7",
        True,
        False,
    )
    offered = inventory.find("eth1")
    assert (offered.link, offered.ifindex, offered.mtu) == ("eth1", host.links.get("eth1").ifindex, 9000)
    assert inventory.find("eth2") is None


def test_names_that_are_not_labels_are_encoded(host):
    cable(host, "mlx5_6")
    inventory = host.inventory()
    inventory.look()
    assert names(inventory) == ["net-nvwhqnk7gy"]
    assert inventory.find("net-nvwhqnk7gy").link == "mlx5_6"


def test_uplinks_and_podwires_own_links_are_not_offered(host):
    cable(host, "up0", up=True)
    host.network.addresses.add(host.links.get("up0").ifindex, ip_interface("192.0.2.2/24"))
    host.network.routes.add(Route(ip_network("0.0.0.0/0"), ip_address("192.0.2.1"), host.links.get("up0").ifindex))
    cable(host, "pod0", alias="podwire:12 net/x/eth0")
    host.links.add(Ifb("ifb9", alias="podwire:12 net/x/eth0"))
    host.links.add(Bridge("pods", alias="podwire"))
    host.links.add(Bridge("br0"))
    cable(host, "port0", master=host.links.get("br0").ifindex)
    host.links.add(Macvlan("m0", host.links.get("up0").ifindex))
    inventory = host.inventory()
    inventory.look()
    assert names(inventory) == ["br0", "m0"]
    assert inventory.left_out() == {
        "lo": "it belongs to the namespace",
        "up0": "the host needs it for its default route",
        "pod0": "it belongs to podwire",
        "ifb9": "it belongs to podwire",
        "pods": "it belongs to podwire",
        "port0": "it is a port of another link",
    }
    assert inventory.find("br0").shared
    assert not inventory.find("m0").shared


def test_an_uplink_is_shared_when_it_is_named_and_is_never_whole(host):
    index = cable(host, "up0", up=True)
    host.network.addresses.add(index, ip_interface("192.0.2.2/24"))
    host.network.routes.add(Route(ip_network("0.0.0.0/0"), ip_address("192.0.2.1"), index))
    inventory = host.inventory(shared=(Shared(interface="up0", slots=4, bandwidth=8_000_000),))
    inventory.look()
    [device] = inventory.devices()
    assert device["allowMultipleAllocations"]
    assert device["capacity"]["slots"]["value"] == "4"
    assert device["capacity"]["bandwidth"]["value"] == "8M"
    assert inventory.find("up0").shared


def test_hardware_is_named_by_its_place_and_its_children_have_that_place(host):
    cable(host, "nic0")
    host.on_pci("nic0", "0000:3b:00.0", numa=1)
    host.links.add(Macvlan("m0", host.links.get("nic0").ifindex))
    inventory = host.inventory()
    inventory.look()
    assert names(inventory) == ["m0", "pci-0000-3b-00-0"]
    for name in names(inventory):
        result = attributes(inventory, name)
        assert result["resource.kubernetes.io/pcieRoot"] == "pci0000:3a"
        assert (result["numaNode"], result["resource.kubernetes.io/numaNode"]) == (1, 1)
    assert attributes(inventory, "m0")["virtual"]
    assert attributes(inventory, "pci-0000-3b-00-0")["driver"] == "mlx5_core"


def test_a_virtual_function_knows_how_large_its_packets_may_be(host):
    cable(host, "pf0", mtu=4000)
    cable(host, "vf0")
    physical = host.on_pci("pf0", "0000:3b:00.0")
    virtual = host.on_pci("vf0", "0000:3b:00.2")
    (virtual / "physfn").symlink_to(physical)
    inventory = host.inventory()
    inventory.look()
    assert inventory.find("pci-0000-3b-00-2").parent_mtu == 4000
    assert inventory.find("pci-0000-3b-00-0").parent_mtu is None


def test_invalid_attribute_is_left_out_and_logged_once(host, caplog):
    cable(host, "eth1")
    host.links.change("eth1", alias="x" * 100)
    inventory = host.inventory()
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        inventory.look()
        inventory.look()
    assert "alias" not in attributes(inventory, "eth1")
    assert attributes(inventory, "eth1")["mtu"] == 1500
    [record] = caplog.records
    assert (record.device, record.attribute) == ("eth1", "alias")
    assert "100 bytes" in record.error


def test_filter_selects_devices_and_its_failure_is_reported(host, caplog):
    for name in ("eth1", "eth2"):
        cable(host, name)
    inventory = host.inventory(filter='attributes["ipv4"].startsWith("10.") && attributes["kind"] == "veth"')
    host.network.addresses.add(host.links.get("eth2").ifindex, ip_interface("10.9.0.1/24"))
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        inventory.look()
    assert names(inventory) == ["eth2"]
    [record] = caplog.records
    assert (record.device, record.error) == ("eth1", "the filter failed: no such key: ipv4")
    assert inventory.left_out()["eth1"] == record.error


def test_a_filter_that_is_none_is_refused_at_the_start(host):
    with pytest.raises(BadConfig, match="filter"):
        host.inventory(filter="kind ==")


async def test_links_that_come_change_and_go_are_followed(host, running, reported):
    inventory = host.inventory()
    async with running(inventory):
        cable(host, "eth1")
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        host.links.change("eth1", mtu=1400)
        await reported(inventory, lambda: attributes(inventory, "eth1")["mtu"] == 1400)
        host.network.addresses.add(host.links.get("eth1").ifindex, ip_interface("10.9.0.1/24"))
        await reported(inventory, lambda: attributes(inventory, "eth1").get("ipv4") == "10.9.0.1/24")
        host.links.delete("eth1")
        await reported(inventory, lambda: names(inventory) == [])


async def test_a_default_route_takes_its_link_from_the_list_and_gives_it_back(host, running, reported):
    for number in (1, 2):
        index = cable(host, f"eth{number}", up=True)
        host.opened("outside").links.change(f"eth{number}-o", up=True)
        host.network.addresses.add(index, ip_interface(f"10.{number}.0.2/24"))
    inventory = host.inventory()
    routes = [
        Route(
            ip_network("0.0.0.0/0"),
            ip_address(f"10.{number}.0.1"),
            host.links.get(f"eth{number}").ifindex,
            metric=number,
        )
        for number in (1, 2)
    ]
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["eth1", "eth2"])
        host.network.routes.add(routes[1])
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        host.network.routes.add(routes[0])
        await reported(inventory, lambda: names(inventory) == ["eth2"])
        host.network.routes.delete(routes[0])
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        host.network.routes.add(routes[0])
        await reported(inventory, lambda: names(inventory) == ["eth2"])
        host.links.change("eth1", up=False)  # its routes go without a word
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        host.links.change("eth1", up=True)
        host.network.routes.add(routes[0])
        await reported(inventory, lambda: names(inventory) == ["eth2"])
        host.links.delete("eth1")
        await reported(inventory, lambda: names(inventory) == [])


async def test_held_device_stays_listed_wherever_its_link_is(host, running, reported):
    pod = host.made("pod")
    cable(host, "eth1")
    inventory = host.inventory()
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        before = inventory.devices()
        inventory.hold("eth1", "claim-1")
        host.links.change("eth1", mtu=1400, alias="podwire:claim:x")
        host.links.move("eth1", pod, "net1")
        await reported(inventory, lambda: inventory.find("eth1").ifindex == 0)
        assert inventory.devices() == before
        host.opened("pod").links.move("net1", host.netns, "odd")
        await reported(inventory, lambda: inventory.find("eth1").ifindex == host.links.get("odd").ifindex)
        assert inventory.devices() == before
        host.links.change(host.links.get("odd").ifindex, name="eth1", alias="")
        inventory.release("eth1", "claim-1")
        await reported(inventory, lambda: attributes(inventory, "eth1")["mtu"] == 1400)


async def test_after_a_restart_devices_in_pods_are_listed_and_followed(host, running, reported):
    host.made("pod")
    cable(host, "eth1")
    first = host.inventory()
    first.look()
    offered, listed = first.find("eth1"), first.listed("eth1")
    host.links.move("eth1", host.namespaces.path("pod"), "net1")
    inside = host.opened("pod")
    inside.links.change("net1", mac="02:00:00:00:00:77")
    host.links.add(Veth("eth1", "another", host.namespaces.path("outside")))
    second = host.inventory()
    second.hold("eth1", "claim-1", device=offered, listed=listed, mac="02:00:00:00:00:77")
    async with running(second):
        await reported(second, lambda: names(second) == ["eth1"])
        assert second.listed("eth1") == listed
        assert second.find("eth1").ifindex == 0, "another link of its name is not it"
        assert second.health()["eth1"].healthy
        inside.links.delete("net1")
        await reported(second, lambda: not second.health()["eth1"].healthy)
        assert second.health()["eth1"].message == "eth1 was deleted"
        assert taints(second, "eth1") == [GONE]
        second.release("eth1", "claim-1")
        await reported(second, lambda: taints(second, "eth1") == [])
        assert second.find("eth1").ifindex == host.links.get("eth1").ifindex


@pytest.mark.parametrize("on_pci", [True, False], ids=["hardware", "software"])
def test_after_a_restart_prepared_devices_on_the_host_are_listed_unchanged(host, on_pci):
    cable(host, "eth1")
    if on_pci:
        host.on_pci("eth1", "0000:3b:00.0")
        host.on_pci("odd", "0000:3b:00.0", again=True)
    first = host.inventory()
    first.look()
    [name] = names(first)
    offered, listed = first.find(name), first.listed(name)
    host.links.change(host.links.get("eth1").ifindex, name="odd", mtu=1400, alias="podwire:claim:x")
    second = host.inventory(filter='attributes["mtu"] > 9000')
    second.hold(name, "claim-1", device=offered, listed=listed)
    second.look()
    assert second.devices() == (listed,)
    assert second.find(name).ifindex == host.links.get("odd").ifindex
    second.release(name, "claim-1")
    second.look()
    assert names(second) == []


@pytest.mark.parametrize("on_pci", [True, False], ids=["hardware", "software"])
def test_held_device_that_returns_before_its_events_are_read_has_no_second_name(host, on_pci):
    pod = host.made("pod")
    index = cable(host, "eth1")
    if on_pci:
        host.on_pci("eth1", "0000:3b:00.0")
    inventory = host.inventory(patience=600.0)
    inventory.look()
    before = names(inventory)
    inventory.hold(before[0], "claim-1")
    with contextlib.closing(LinkMoves(host.netns)) as moves:
        host.links.move("eth1", pod, "net1")
        inventory.look(moves.read())
        assert inventory.find(before[0]).ifindex == 0
        host.opened("pod").links.move("net1", host.netns, "eth1" if on_pci else "odd")
        inventory.look()  # the listing has the link, and no event has been read
        assert names(inventory) == before
        assert inventory.look(moves.read()) is None
    assert names(inventory) == before
    assert inventory.find(before[0]).ifindex == index


def test_device_keeps_its_name_while_sysfs_does_not_show_its_link(host):
    cable(host, "eth1")
    cable(host, "eth2")
    host.on_pci("eth1", "0000:3b:00.0")
    host.on_pci("eth2", "0000:3b:00.1")
    inventory = host.inventory(patience=600.0)
    inventory.look()
    before = inventory.devices()
    shown = host.sysfs / "class/net/eth1"
    target = shown.readlink()
    shown.unlink()
    assert inventory.look() == 0.0, "it is looked at again soon"
    assert inventory.devices() == before
    shown.symlink_to(target)
    assert inventory.look() is None
    assert inventory.devices() == before


def test_new_link_is_offered_once_sysfs_shows_it(host):
    cable(host, "eth1")
    host.on_pci("eth1", "0000:3b:00.0")
    inventory = host.inventory(patience=600.0)
    inventory.look()
    cable(host, "eth2")
    inventory.look()
    assert names(inventory) == ["pci-0000-3b-00-0"]
    host.on_pci("eth2", "0000:3b:00.1")
    inventory.look()
    assert names(inventory) == ["pci-0000-3b-00-0", "pci-0000-3b-00-1"]


async def test_link_that_sysfs_never_shows_is_offered_by_its_name(host, running, reported):
    cable(host, "eth1")
    host.on_pci("eth1", "0000:3b:00.0")
    inventory = host.inventory(patience=0.2)
    async with running(inventory):
        cable(host, "eth2")
        await reported(inventory, lambda: names(inventory) == ["eth2", "pci-0000-3b-00-0"])


def test_representor_of_a_card_in_a_pod_is_not_taken_for_the_card(host):
    pod = host.made("pod")
    cable(host, "p0")
    cable(host, "rep0")
    host.on_pci("p0", "0000:3b:00.0")
    host.on_pci("rep0", "0000:3b:00.0", again=True)
    inventory = host.inventory()
    inventory.look()
    assert names(inventory) == ["pci-0000-3b-00-0", "rep0"]
    inventory.hold("pci-0000-3b-00-0", "claim-1")
    with contextlib.closing(LinkMoves(host.netns)) as moves:
        host.links.move("p0", pod, "net1")
        inventory.look(moves.read())
    assert names(inventory) == ["pci-0000-3b-00-0", "rep0"]
    assert inventory.find("pci-0000-3b-00-0").ifindex == 0


async def test_carrier_is_watched_on_the_host_and_in_pods(host, running, reported):
    cable(host, "eth1", up=True)
    far, pod = host.opened("outside"), host.made("pod")
    far.links.change("eth1-o", up=True)
    inventory = host.inventory(taint="NoExecute")
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["eth1"] and inventory.health()["eth1"].healthy)
        far.links.change("eth1-o", up=False)
        await reported(inventory, lambda: taints(inventory, "eth1") == [NO_CARRIER])
        assert inventory.health()["eth1"].message == "eth1 has no carrier"
        assert inventory.devices()[0]["taints"][0]["effect"] == "NoExecute"
        far.links.change("eth1-o", up=True)
        await reported(inventory, lambda: taints(inventory, "eth1") == [])
        inventory.hold("eth1", "claim-1")
        host.links.move("eth1", pod, "net1")
        host.opened("pod").links.change("net1", up=True)
        await reported(inventory, lambda: inventory.find("eth1").ifindex == 0 and inventory.health()["eth1"].healthy)
        far.links.change("eth1-o", up=False)
        await reported(inventory, lambda: taints(inventory, "eth1") == [NO_CARRIER])
        assert inventory.health()["eth1"].message == "net1 has no carrier"
        far.links.change("eth1-o", up=True)
        await reported(inventory, lambda: taints(inventory, "eth1") == [])


async def test_a_link_that_ends_with_its_pods_namespace_is_gone(host, running, reported):
    cable(host, "eth1")
    pod = host.made("pod")
    inventory = host.inventory()
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["eth1"])
        inventory.hold("eth1", "claim-1")
        host.links.move("eth1", pod)
        await reported(inventory, lambda: inventory.find("eth1").ifindex == 0)
        host.namespaces.remove("pod")
        await reported(inventory, lambda: taints(inventory, "eth1") == [GONE])
        inventory.release("eth1", "claim-1")
        await reported(inventory, lambda: names(inventory) == [])


async def test_shared_parent_is_updated_and_stays_listed_while_it_is_held(host, running, reported):
    host.links.add(Bridge("br0"))
    inventory = host.inventory()
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["br0"])
        for name in ("claim-1", "claim-2"):
            inventory.hold("br0", name)
        host.links.change("br0", mtu=1400)
        await reported(inventory, lambda: attributes(inventory, "br0")["mtu"] == 1400)
        host.links.delete("br0")
        await reported(inventory, lambda: taints(inventory, "br0") == [GONE])
        inventory.release("br0", "claim-1")
        host.links.add(Bridge("br0"))
        await reported(inventory, lambda: taints(inventory, "br0") == [])
        host.links.delete("br0")
        await reported(inventory, lambda: taints(inventory, "br0") == [GONE])
        inventory.release("br0", "claim-2")
        await reported(inventory, lambda: names(inventory) == [])


async def test_every_subscriber_is_notified_once_of_several_changes(host, running):
    inventory = host.inventory()
    async with asyncio.timeout(60), running(inventory):
        first, second = inventory.changes(), inventory.changes()
        await anext(first)
        await anext(second)
        cable(host, "eth1")
        await anext(first)
        await anext(second)
        while names(inventory) != ["eth1"]:
            await anext(first)
        await first.aclose()
        await second.aclose()


async def test_only_links_that_could_be_devices_are_looked_at(host):
    """A link of podwire's own is reported without its tag first; if the tag comes in time, nobody looks."""
    inventory = host.inventory()
    eth1 = host.links.get(cable(host, "eth1"))
    inventory.look()
    following = LinkWatch(inventory)
    pod = eth1._replace(ifindex=99, name="pod0")
    tagged = pod._replace(alias="podwire:12 net/x/eth0")
    following._on_link(pod, False)
    assert following._suspects == {99}
    following._on_link(tagged, False)
    assert following._suspects == set()
    assert not following._matters(Changed(NEXT_HOP, ifindex=99))
    following._on_link(tagged, True)
    assert (following._suspects, following._must_look) == (set(), False)
    following._on_link(pod, True)
    assert following._suspects == {99}
    following._on_link(eth1._replace(alias="podwire:claim:x"), False)
    assert following._must_look


async def test_missing_carrier_within_the_patience_is_not_reported(host, running, reported):
    cable(host, "eth1", up=True)
    cable(host, "eth2")
    inventory = host.inventory(patience=600.0)
    async with running(inventory):
        await reported(inventory, lambda: names(inventory) == ["eth1", "eth2"])
        host.links.change("eth2", mtu=1400)
        await reported(inventory, lambda: attributes(inventory, "eth2")["mtu"] == 1400)
        assert not attributes(inventory, "eth1")["carrier"]
        assert taints(inventory, "eth1") == []


def test_unknown_device_cannot_be_held(host):
    inventory = host.inventory()
    inventory.look()
    with pytest.raises(LookupError):
        inventory.hold("eth1", "claim-1")
    inventory.release("eth1", "claim-1")
