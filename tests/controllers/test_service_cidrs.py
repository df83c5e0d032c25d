"""ServiceCIDRs on a real API server: ranges that come, give addresses, and go when nobody needs them."""

import pytest

from podwire.controllers.kinds import IP_ADDRESSES, SERVICE_CIDRS, SERVICES
from podwire.controllers.service_cidrs import FINALIZER, is_needed
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async


def cidr(name="more", *cidrs):
    spec = {"cidrs": list(cidrs or ("203.0.113.0/24",))}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": spec}


def service(name="web", address=""):
    spec = {"ports": [{"port": 80}], **({"clusterIP": address} if address else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def condition(cluster, name):
    found = await cluster.api.get(SERVICE_CIDRS, name)
    rows = (found.get("status") or {}).get("conditions") or [{}]
    return rows[0].get("status"), rows[0].get("reason", "")


async def test_the_default_range_exists_and_is_ready(cluster):
    found = await cluster.api.get(SERVICE_CIDRS, "kubernetes")
    assert found["spec"]["cidrs"] == ["10.96.0.0/16"]
    assert await condition(cluster, "kubernetes") == ("True", "")
    parent = (await cluster.api.get(IP_ADDRESSES, "10.96.0.1"))["spec"]["parentRef"]
    assert parent == {"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}


async def test_another_range_gives_addresses_and_stays_while_one_is_used(cluster):
    with pytest.raises(ApiError, match="not in the valid range"):
        await cluster.api.create(service(address="203.0.113.10"))
    await cluster.api.create(cidr())
    await eventually_async(lambda: is_ready(cluster, "more"))
    assert FINALIZER in (await cluster.api.get(SERVICE_CIDRS, "more"))["metadata"]["finalizers"]

    await cluster.api.create(service(address="203.0.113.10"))
    await cluster.api.delete(SERVICE_CIDRS, "more")
    await eventually_async(lambda: is_terminating(cluster, "more"))
    with pytest.raises(ApiError, match="not in the valid range"):
        await cluster.api.create(service("late", address="203.0.113.11"))

    await cluster.api.create(cidr("wider", "203.0.112.0/23"))
    await eventually_async(lambda: is_gone(cluster, "more"))


async def is_ready(cluster, name):
    return await condition(cluster, name) == ("True", "")


async def is_terminating(cluster, name):
    return await condition(cluster, name) == ("False", "Terminating")


async def is_gone(cluster, name):
    try:
        await cluster.api.get(SERVICE_CIDRS, name)
    except ApiError as error:
        return error.code == 404
    return False


async def test_a_range_goes_with_its_last_address(cluster):
    await cluster.api.create(cidr())
    await eventually_async(lambda: is_ready(cluster, "more"))
    await cluster.api.create(service(address="203.0.113.10"))
    await cluster.api.delete(SERVICE_CIDRS, "more")
    await eventually_async(lambda: is_terminating(cluster, "more"))
    await cluster.api.delete(SERVICES, "web", "default")
    await eventually_async(lambda: is_gone(cluster, "more"))


@pytest.mark.parametrize(
    ("others", "addresses", "needed"),
    [
        ([], [], False),
        ([], ["10.1.0.5"], True),
        ([], ["10.2.0.5", "fd00::1"], False),
        (["10.0.0.0/8"], ["10.1.0.5"], False),
        (["10.1.0.0/24"], ["10.1.0.5"], False),
        (["10.1.0.0/30"], ["10.1.0.5"], True),
        (["fd00::/64"], ["10.1.0.5"], True),
    ],
)
def test_a_range_is_needed_by_an_address_that_no_other_has(others, addresses, needed):
    known = [cidr(f"c{index}", text) for index, text in enumerate(others)]
    assert is_needed(cidr("own", "10.1.0.0/24"), known, addresses) is needed
