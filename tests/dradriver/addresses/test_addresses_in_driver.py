"""Leases and pools in the whole driver: claims that ask for them, pods that have them."""

import json
from ipaddress import IPv4Address
from uuid import uuid4

import pytest

from podwire.dradriver.addresses.manager import LeaseLimits
from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import Config as Offering
from podwire.dradriver.inventory.config import Shared
from podwire.ipam.dhcp.client import Timing
from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.messages import Type
from tests.eventually import eventually_async

DHCP = {"name": "net1", "dhcp": True}
A_WAY = {options.CLASSLESS_ROUTES: bytes((16, 10, 5, 10, 77, 0, 254))}
ANOTHER_WAY = {options.CLASSLESS_ROUTES: bytes((16, 10, 6, 10, 77, 0, 253))}


def addresses_in(node, sandbox):
    [link] = node.inside(sandbox, "addr show dev net1")
    return [f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"] if item["family"] == "inet"]


def lan(node):
    node.veth("lan1")
    node.ip("addr add 10.77.0.1/24 dev lan1p")


async def prepared(node, claim):
    (found,) = await node.kubelet.prepare(claim)
    assert found.error == ""


def renews_soon(server):
    """And keeps its leases for long: a busy machine loses none by chance."""
    server.seconds, server.t1, server.t2 = 100_000, 1, 50_000


async def test_a_pod_has_its_leased_address_and_routes_which_are_renewed_and_given_back(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        renews_soon(server)
        server.more = A_WAY
        async with node.driving():
            claim, sandbox = await node.attached("lan1", interface=DHCP)
            assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
            assert ways_in(node, sandbox) == {("10.5.0.0/16", "10.77.0.254")}
            await eventually_async(lambda: any(str(each.ciaddr) == "10.77.0.100" for each, _ in server.heard))
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            released, _ = await server.has_heard(Type.RELEASE)
            assert str(released.ciaddr) == "10.77.0.100"


async def conditions(node, claim):
    found = [condition for device in await node.status(claim) for condition in device["conditions"]]
    return {item["type"]: (item["status"], item["reason"]) for item in found}


def device_metadata(node):
    """Addresses, generation and inode of the metadata file that the pod's containers read."""
    (path,) = (node.root / "k").rglob("metadata.json")
    answer = json.loads(path.read_bytes())
    return (
        answer["requests"][0]["devices"][0]["networkData"]["ips"],
        answer["metadata"]["generation"],
        path.stat().st_ino,
    )


def ways_in(node, sandbox):
    found = node.inside(sandbox, "route show dev net1")
    return {(item["dst"], item["gateway"]) for item in found if "gateway" in item}


async def test_lost_lease_is_reported_and_its_address_removed_until_there_is_another(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        renews_soon(server)
        server.more = A_WAY
        async with node.driving(lease_limits=LeaseLimits(regain=0.5)):
            claim, sandbox = await node.attached("lan1", interface=DHCP)
            before = device_metadata(node)
            await prepared(node, claim)  # a kubelet that was restarted asks again, while the pod runs
            assert device_metadata(node) == before == (["10.77.0.100/24"], *before[1:])
            _, generation, file = before
            server.refuses, server.silent_to = {IPv4Address("10.77.0.100")}, {Type.DISCOVER}
            server.given.clear()

            async def lost():
                return (await conditions(node, claim)).get("NetworkReady") == ("False", "LeaseLost")

            await eventually_async(lost)
            assert (await conditions(node, claim))["Ready"] == ("True", "Attached")
            (reported,) = await node.status(claim)
            assert reported["networkData"].get("ips", []) == []
            (message,) = [
                condition["message"] for condition in reported["conditions"] if condition["type"] == "NetworkReady"
            ]
            assert message.startswith("the lease of 10.77.0.100 is lost: DHCP: the server withdrew the address")
            assert addresses_in(node, sandbox) == []
            assert ways_in(node, sandbox) == set()
            assert device_metadata(node)[0] == []

            server.more = ANOTHER_WAY
            server.silent_to = set()

            async def regained():
                return (await conditions(node, claim))["NetworkReady"] == ("True", "Attached")

            await eventually_async(regained)
            (reported,) = await node.status(claim)
            assert reported["networkData"]["ips"] == ["10.77.0.101/24"] == addresses_in(node, sandbox)
            assert ways_in(node, sandbox) == {("10.6.0.0/16", "10.77.0.253")}
            assert device_metadata(node) == (["10.77.0.101/24"], generation + 2, file)
            events = await node.both_events("DHCPLeaseLost")
            assert [about for about, _ in events] == ["Pod", "ResourceClaim"]
            assert all(text.startswith("lan1: the lease of 10.77.0.100 is lost") for _, text in events)
            again = "lan1: 10.77.0.101/24 is leased"
            assert await node.both_events("DHCPLeaseRegained") == [("Pod", again), ("ResourceClaim", again)]
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            released, _ = await server.has_heard(Type.RELEASE)
            assert str(released.ciaddr) == "10.77.0.101"


@pytest.mark.parametrize(
    ("named", "mtu"),
    [pytest.param({}, 1300, id="the server's MTU"), pytest.param({"mtu": 1450}, 1450, id="the claim's MTU")],
)
async def test_a_renewal_that_brings_other_routes_and_another_mtu_changes_the_pod(driver_node, serve, named, mtu):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        renews_soon(server)
        server.more = {**A_WAY, options.MTU: (1400).to_bytes(2)}
        async with node.driving():
            claim, sandbox = await node.attached("lan1", interface={**DHCP, **named})
            (link,) = node.inside(sandbox, "link show dev net1")
            assert link["mtu"] == named.get("mtu", 1400)
            assert ways_in(node, sandbox) == {("10.5.0.0/16", "10.77.0.254")}
            node.inside(sandbox, "route add 10.9.0.0/16 via 10.77.0.9 dev net1")
            server.more = {**ANOTHER_WAY, options.MTU: (1300).to_bytes(2)}

            def followed():
                return ("10.6.0.0/16", "10.77.0.253") in ways_in(node, sandbox)

            await eventually_async(followed)
            assert ways_in(node, sandbox) == {("10.6.0.0/16", "10.77.0.253"), ("10.9.0.0/16", "10.77.0.9")}
            (link,) = node.inside(sandbox, "link show dev net1")
            assert link["mtu"] == mtu
            assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            (link,) = node.ip("link show dev lan1")
            assert link["mtu"] == 1500


async def test_default_route_of_a_lease_has_a_higher_metric_than_the_pods_own(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        server.more = {options.ROUTER: bytes((10, 77, 0, 1))}
        async with node.driving():
            pod, claim = await node.prepared("lan1", interface=DHCP)
            sandbox = node.sandbox(pod)
            for line in ("link add eth0 type veth", "link set eth0 up", "addr add 10.1.0.2/24 dev eth0"):
                node.inside(sandbox, line)
            node.inside(sandbox, "route add default via 10.1.0.1 dev eth0")
            await node.host.run_pod_sandbox(sandbox)
            own, leased = node.inside(sandbox, "route show default")
            assert (own["gateway"], leased["gateway"]) == ("10.1.0.1", "10.77.0.1")
            assert leased["metric"] > own.get("metric", 0)
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]


async def test_an_interface_that_is_made_for_the_claim_has_a_lease_of_its_own(driver_node, serve):
    node = driver_node
    lan(node)
    node.config = Config(offering=Offering(shared=(Shared(interface="lan1"),)))
    with serve("lan1p") as server:
        async with node.driving():
            pod, claim = await node.prepared("lan1", interface={**DHCP, "kind": "macvlan"}, shareID=str(uuid4()))
            for name in ("first", "second"):
                sandbox = node.sandbox(pod, name)
                await node.host.run_pod_sandbox(sandbox)
                assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
                await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            released, _ = await server.has_heard(Type.RELEASE)
            assert str(released.ciaddr) == "10.77.0.100"


async def test_a_link_that_was_down_gives_its_lease_back_and_is_down_again(driver_node, serve):
    node = driver_node
    lan(node)
    node.ip("link set lan1 down")
    with serve("lan1p") as server:
        async with node.driving():
            await node.offered("lan1")
            before = node.ip("addr show dev lan1")
            claim, sandbox = await node.attached("lan1", interface=DHCP)
            assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            await server.has_heard(Type.RELEASE)
            assert node.ip("addr show dev lan1") == before


async def test_preparing_twice_and_restarting_give_the_same_leased_address(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        async with node.driving():
            pod, claim = await node.prepared("lan1", interface=DHCP)
            await prepared(node, claim)
        async with node.driving():
            await prepared(node, claim)
            sandbox = node.sandbox(pod)
            await node.host.run_pod_sandbox(sandbox)
            assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
            await node.host.stop_pod_sandbox(sandbox)
            await node.kubelet.unprepare(claim)
        assert Type.RELEASE in server.types
        assert list(server.given) == []


async def test_claim_without_a_dhcp_server_fails_and_leaves_the_link_unchanged(driver_node):
    node = driver_node
    lan(node)
    async with node.driving(lease_limits=LeaseLimits(exchange=Timing(acquire=0.3))):
        await node.offered("lan1")
        before = node.ip("addr show dev lan1")
        _, claim = await node.claimed("lan1", interface=DHCP)
        (found,) = await node.kubelet.prepare(claim)
        assert "DHCP: no server answered" in found.error
        await node.kubelet.unprepare(claim)
        assert node.ip("addr show dev lan1") == before


async def test_claims_of_a_pool_have_addresses_of_their_own_and_give_them_back(driver_node):
    node = driver_node
    node.config = Config(pools=parse_pools({"lab": {"subnet": "10.78.0.0/29"}}))
    for name in ("lan1", "lan2"):
        node.veth(name)
    async with node.driving():
        sandboxes, claims = [], []
        for number, device in enumerate(("lan1", "lan2")):
            pool = {"name": "net1", "addressPool": "lab"}
            pod, claim = await node.prepared(device, pod=f"pod-{number}", name_=f"claim-{number}", interface=pool)
            sandboxes.append(node.sandbox(pod, f"sandbox-{number}"))
            claims.append(claim)
            await node.host.run_pod_sandbox(sandboxes[-1])
        assert [addresses_in(node, sandbox) for sandbox in sandboxes] == [["10.78.0.2/29"], ["10.78.0.3/29"]]
        for sandbox, claim in zip(sandboxes, claims, strict=True):
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
    assert b'"held":[]' in next(node.root.rglob("addresses.json")).read_bytes()


@pytest.mark.parametrize(
    ("interface", "reported"),
    [
        pytest.param({"addressPool": "no"}, "interface.addressPool: this node has no pool 'no'", id="pool"),
        pytest.param({"addresses": ["10.78.0.9/24"]}, "10.78.0.9 is held by claim default/first", id="taken"),
    ],
)
async def test_impossible_addresses_are_refused_with_field_and_reason(driver_node, interface, reported):
    node = driver_node
    for name in ("lan1", "lan2"):
        node.veth(name)
    async with node.driving():
        await node.offered("lan2")
        _, first = await node.prepared("lan1", pod="one", name_="first", interface={"addresses": ["10.78.0.9/24"]})
        second = await node.claim("lan2", name_="second", pods=[await node.pod("two")], interface=interface)
        (found,) = await node.kubelet.prepare(second)
        assert reported in found.error
        assert await node.kubelet.unprepare(first, second) == ["", ""]
