"""Leases and pools in the whole driver: claims that ask for them, pods that have them."""

from uuid import uuid4

import pytest

from podwire.dradriver.addressing import dhcp
from podwire.dradriver.addressing.dhcp import Timing
from podwire.dradriver.addressing.pools import parse_pools
from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import Config as Offering
from podwire.dradriver.inventory.config import Shared
from podwire.dradriver.parameters import API_VERSION, KIND
from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.messages import Type


def parameters_of(**interface):
    return {"apiVersion": API_VERSION, "kind": KIND, "interface": {"name": "net1", **interface}}


DHCP = parameters_of(dhcp=True)


def netns_of(sandbox):
    return sandbox.linux.namespaces[0].path


def addresses_in(node, sandbox):
    [link] = node.inside(netns_of(sandbox), "addr show dev net1")
    return [f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"] if each["family"] == "inet"]


def lan(node):
    node.veth("lan1")
    node.ip("addr add 10.77.0.1/24 dev lan1p")


async def prepared(node, claim):
    (found,) = await node.kubelet.prepare(claim)
    assert found.error == ""


async def test_a_pod_has_its_leased_address_and_routes_which_are_renewed_and_given_back(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        server.seconds, server.t1, server.t2 = 100_000, 1, 50_000
        server.more = {options.CLASSLESS_ROUTES: bytes((16, 10, 5, 10, 77, 0, 254))}
        async with node.driving():
            await node.offered("lan1")
            pod = await node.pod()
            claim = await node.claim("lan1", pods=[pod], parameters=DHCP)
            await prepared(node, claim)
            sandbox = node.sandbox(pod)
            await node.host.run_pod_sandbox(sandbox)
            assert addresses_in(node, sandbox) == ["10.77.0.100/24"]
            routes = node.inside(netns_of(sandbox), "route show")
            assert ("10.5.0.0/16", "10.77.0.254") in [(each["dst"], each.get("gateway")) for each in routes]
            await node.until(lambda: any(str(each.ciaddr) == "10.77.0.100" for each, _ in server.heard))
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
            released, _ = await server.has_heard(Type.RELEASE)
            assert str(released.ciaddr) == "10.77.0.100"


async def test_the_way_out_that_a_server_tells_comes_after_the_pods_own(driver_node, serve):
    node = driver_node
    lan(node)
    with serve("lan1p") as server:
        server.more = {options.ROUTER: bytes((10, 77, 0, 1))}
        async with node.driving():
            await node.offered("lan1")
            pod = await node.pod()
            claim = await node.claim("lan1", pods=[pod], parameters=DHCP)
            await prepared(node, claim)
            sandbox = node.sandbox(pod)
            for line in ("link add eth0 type veth", "link set eth0 up", "addr add 10.1.0.2/24 dev eth0"):
                node.inside(netns_of(sandbox), line)
            node.inside(netns_of(sandbox), "route add default via 10.1.0.1 dev eth0")
            await node.host.run_pod_sandbox(sandbox)
            own, leased = node.inside(netns_of(sandbox), "route show default")
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
            await node.offered("lan1")
            pod = await node.pod()
            macvlan = parameters_of(dhcp=True, kind="macvlan")
            claim = await node.claim("lan1", pods=[pod], parameters=macvlan, shareID=str(uuid4()))
            await prepared(node, claim)
            for each in ("first", "second"):
                sandbox = node.sandbox(pod, each)
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
            pod = await node.pod()
            claim = await node.claim("lan1", pods=[pod], parameters=DHCP)
            await prepared(node, claim)
            sandbox = node.sandbox(pod)
            await node.host.run_pod_sandbox(sandbox)
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
            await node.offered("lan1")
            pod = await node.pod()
            claim = await node.claim("lan1", pods=[pod], parameters=DHCP)
            await prepared(node, claim)
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


async def test_a_claim_whose_server_is_silent_says_so_and_leaves_the_link_as_it_was(driver_node, monkeypatch):
    monkeypatch.setattr(dhcp, "Timing", lambda: Timing(acquire=0.3))
    node = driver_node
    lan(node)
    async with node.driving():
        await node.offered("lan1")
        before = node.ip("addr show dev lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=DHCP)
        (found,) = await node.kubelet.prepare(claim)
        assert "DHCP: no server answered" in found.error
        await node.kubelet.unprepare(claim)
        assert node.ip("addr show dev lan1") == before


async def test_claims_of_a_pool_have_addresses_of_their_own_and_give_them_back(driver_node):
    node = driver_node
    node.config = Config(pools=parse_pools({"lab": {"subnet": "10.78.0.0/29"}}))
    for each in ("lan1", "lan2"):
        node.veth(each)
    async with node.driving():
        sandboxes, claims = [], []
        for number, device in enumerate(("lan1", "lan2")):
            await node.offered(device)
            pod = await node.pod(f"pod-{number}")
            claim = await node.claim(
                device, name_=f"claim-{number}", pods=[pod], parameters=parameters_of(addressPool="lab")
            )
            await prepared(node, claim)
            sandboxes.append(node.sandbox(pod, f"sandbox-{number}"))
            claims.append(claim)
            await node.host.run_pod_sandbox(sandboxes[-1])
        assert [addresses_in(node, each) for each in sandboxes] == [["10.78.0.2/29"], ["10.78.0.3/29"]]
        for sandbox, claim in zip(sandboxes, claims, strict=True):
            await node.host.stop_pod_sandbox(sandbox)
            assert await node.kubelet.unprepare(claim) == [""]
    assert b'"held":[]' in next(node.root.rglob("addresses.json")).read_bytes()


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        pytest.param(parameters_of(addressPool="no"), "interface.addressPool: this node has no pool 'no'", id="pool"),
        pytest.param(parameters_of(addresses=["10.78.0.9/24"]), "10.78.0.9 is held by claim default/first", id="taken"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_field_and_reason(driver_node, parameters, told):
    node = driver_node
    for each in ("lan1", "lan2"):
        node.veth(each)
    async with node.driving():
        await node.offered("lan1")
        await node.offered("lan2")
        taken = parameters_of(addresses=["10.78.0.9/24"])
        first = await node.claim("lan1", name_="first", pods=[await node.pod("one")], parameters=taken)
        await prepared(node, first)
        second = await node.claim("lan2", name_="second", pods=[await node.pod("two")], parameters=parameters)
        (found,) = await node.kubelet.prepare(second)
        assert told in found.error
        assert await node.kubelet.unprepare(first, second) == ["", ""]
