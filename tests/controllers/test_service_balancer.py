"""Addresses for Services of type LoadBalancer: decided by a table, and given on a real API server."""

from ipaddress import ip_network

import pytest

from podwire.controllers.kinds import EVENTS, SERVICES
from podwire.controllers.service_balancer import FINALIZER, Holder, NoAddress, addresses_of, decide
from podwire.protocols.k8sapi.client_side import Scope
from tests.eventually import eventually_async

POOL = (ip_network("192.0.2.0/30"), ip_network("2001:db8::/126"))


def service(name="web", addresses=(), **spec):
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "ipFamilies": ["IPv4"], **spec}
    metadata = {"name": name, "namespace": "default", "uid": "5", "creationTimestamp": "2026-01-05T00:00:00Z"}
    status = {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": status}


def other(day, *addresses):
    return Holder(f"2026-01-0{day}T00:00:00Z", str(day), f"default/other-{day}", addresses)


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        pytest.param(service(), [], ["192.0.2.1"], id="the first"),
        pytest.param(service(), [other(1, "192.0.2.1")], ["192.0.2.2"], id="the first that is free"),
        pytest.param(service(addresses=["192.0.2.2"]), [], ["192.0.2.2"], id="the one that it has"),
        pytest.param(service(addresses=["198.51.100.1"]), [], ["192.0.2.1"], id="not one of an old pool"),
        pytest.param(service(loadBalancerIP="192.0.2.2"), [], ["192.0.2.2"], id="the one that is asked for"),
        pytest.param(
            service(addresses=["192.0.2.1"], loadBalancerIP="192.0.2.2"), [], ["192.0.2.2"], id="asked for later"
        ),
        pytest.param(service(ipFamilies=["IPv6"]), [], ["2001:db8::1"], id="IPv6"),
        pytest.param(
            service(ipFamilies=["IPv6", "IPv4"], loadBalancerIP="192.0.2.2"),
            [],
            ["2001:db8::1", "192.0.2.2"],
            id="both families, one of them asked for",
        ),
        pytest.param(
            service(addresses=["192.0.2.1"]), [other(1, "192.0.2.1")], ["192.0.2.2"], id="given twice: the older keeps"
        ),
        pytest.param(
            service(addresses=["192.0.2.1"]), [other(9, "192.0.2.1")], ["192.0.2.1"], id="given twice: we are older"
        ),
    ],
)
def test_a_service_gets_an_address_of_each_family(wanted, others, expected):
    assert decide(wanted, others, POOL) == expected


@pytest.mark.parametrize(
    ("wanted", "pool", "words"),
    [
        pytest.param(service(), POOL, "no address is free in the pool 192.0.2.0/30", id="all are used"),
        pytest.param(
            service(loadBalancerIP="192.0.2.1"),
            POOL,
            '"192.0.2.1" is used by service default/other-1',
            id="asked, used",
        ),
        pytest.param(
            service(loadBalancerIP="10.0.0.1"),
            POOL,
            '"10.0.0.1" is not in the pool 192.0.2.0/30, 2001:db8::/126',
            id="asked, from elsewhere",
        ),
        pytest.param(
            service(loadBalancerIP="2001:db8::1"), POOL, "is not of a family of the service", id="of another family"
        ),
        pytest.param(service(loadBalancerIP="x"), POOL, '"x" is not an address', id="asked, not an address"),
        pytest.param(
            service(ipFamilies=["IPv6"]),
            POOL[:1],
            "the pool 192.0.2.0/30 has no IPv6 addresses",
            id="without the family",
        ),
    ],
)
def test_a_service_without_address_says_why(wanted, pool, words):
    with pytest.raises(NoAddress) as refused:
        decide(wanted, [other(1, "192.0.2.1"), other(2, "192.0.2.2")], pool)
    assert words in str(refused.value)


def test_a_preference_for_both_families_is_satisfied_by_the_one_of_the_pool():
    wanted = service(ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
    assert decide(wanted, [], POOL[:1]) == ["192.0.2.1"]


# --- on a server ------------------------------------------------------------------------------------------------------


@pytest.fixture
def balancer_pool():
    return POOL


def made(name, **spec):
    whole = service(name, **spec)
    whole["metadata"] = {"name": name, "namespace": "default"}
    return whole


async def addresses(cluster, name):
    return list(addresses_of(await cluster.api.get(SERVICES, name, "default")))


async def reasons(cluster, name):
    events = (await cluster.api.list(EVENTS, Scope(namespace="default"))).items
    return [event["reason"] for event in events if event["involvedObject"]["name"] == name]


def has(cluster, name, *expected):
    async def look():
        assert await addresses(cluster, name) == list(expected)
        return True

    return eventually_async(look)


def reported(cluster, name, *expected):
    async def look():
        assert set(expected) <= set(await reasons(cluster, name))
        return True

    return eventually_async(look)


async def test_addresses_are_given_and_taken_back(cluster):
    for name in ("a", "b", "c"):
        await cluster.api.create(made(name))
        await has(cluster, name, *({"a": ["192.0.2.1"], "b": ["192.0.2.2"]}.get(name, [])))
    stored = await cluster.api.get(SERVICES, "a", "default")
    assert stored["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    await reported(cluster, "a", "EnsuringLoadBalancer", "EnsuredLoadBalancer")
    await reported(cluster, "c", "SyncLoadBalancerFailed")

    await cluster.api.delete(SERVICES, "a", "default")
    await cluster.gone(SERVICES, "a")
    await has(cluster, "c", "192.0.2.1")
    await reported(cluster, "a", "DeletingLoadBalancer", "DeletedLoadBalancer")


async def test_another_type_releases_the_address(cluster):
    await cluster.api.create(made("a"))
    await has(cluster, "a", "192.0.2.1")
    await cluster.api.patch(SERVICES, "a", {"spec": {"type": "ClusterIP"}}, "default")

    async def released():
        stored = await cluster.api.get(SERVICES, "a", "default")
        return not stored["metadata"].get("finalizers") and not addresses_of(stored)

    await eventually_async(released)
    await cluster.api.create(made("b", loadBalancerIP="192.0.2.1"))
    await has(cluster, "b", "192.0.2.1")


async def test_the_class_of_somebody_else_is_left_alone(cluster):
    await cluster.api.create(made("foreign", loadBalancerClass="example.com/lb"))
    await cluster.api.create(made("ours", allocateLoadBalancerNodePorts=False))
    await has(cluster, "ours", "192.0.2.1")
    foreign = await cluster.api.get(SERVICES, "foreign", "default")
    assert (addresses_of(foreign), foreign["metadata"].get("finalizers")) == ((), None)
    assert "nodePort" not in (await cluster.api.get(SERVICES, "ours", "default"))["spec"]["ports"][0]
