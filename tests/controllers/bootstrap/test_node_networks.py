"""Networks of pods: each node gets a part, and no part is given twice."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.kinds import NODES
from podwire.objects.pod_networks import PodNetwork, networks_of
from tests.eventually import eventually_async

CLUSTER, CLUSTER6 = ip_network("10.244.0.0/22"), ip_network("fd00:1::/56")


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], "10.244.1.0/24"),
        (["10.244.1.0/24"], "10.244.2.0/24"),
        (["10.244.2.0/24"], "10.244.1.0/24"),
        (["10.244.1.128/25"], "10.244.2.0/24"),
        (["10.244.0.0/23"], "10.244.2.0/24"),
        (["fd00:1::/64", "10.0.0.0/24"], "10.244.1.0/24"),
        (["10.0.0.0/8"], None),
        (["10.244.1.0/24", "10.244.2.0/23"], None),
    ],
)
def test_the_first_free_part_is_given(taken, free):
    network = PodNetwork(CLUSTER, 24, reserved=1)
    result = network.free(map(ip_network, taken))
    assert result == (ip_network(free) if free else None)


@given(st.integers(0, 20), st.sampled_from([(CLUSTER, 26), (CLUSTER6, 60)]))
def test_parts_never_overlap_and_are_used_up(reserved, shape):
    network, prefix = shape
    given_parts = []
    while (part := PodNetwork(network, prefix, reserved).free(given_parts)) is not None:
        assert not any(part.overlaps(other) for other in given_parts)
        assert part.subnet_of(network)
        given_parts.append(part)
    assert len(given_parts) == max(0, 16 - reserved)


@pytest.fixture
def pod_networks():
    return (PodNetwork(CLUSTER, 24, reserved=1), PodNetwork(CLUSTER6, 64))


def node(name, **spec):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


async def test_nodes_get_networks_keep_them_and_give_them_back(cluster):
    await cluster.api.create(node("own", podCIDR="10.244.1.0/24", podCIDRs=["10.244.1.0/24"]))
    for name in ("a", "b", "late"):
        await cluster.api.create(node(name))

    async def networks(*names):
        found = [networks_of(await cluster.api.get(NODES, name)) for name in names]
        return found if all(found) else None

    async def two_have_some():
        return [name for name in ("a", "b", "late") if networks_of(await cluster.api.get(NODES, name))][1:]

    await eventually_async(two_have_some)
    by_name = {name: networks_of(await cluster.api.get(NODES, name)) for name in ("a", "b", "late")}
    waiting = next(name for name, given_networks in by_name.items() if not given_networks)
    given_networks = sorted(row for rows in by_name.values() for row in rows if row.version == 4)
    assert given_networks == [ip_network("10.244.2.0/24"), ip_network("10.244.3.0/24")]
    assert all(len(rows) == 2 for rows in by_name.values() if rows)
    assert networks_of(await cluster.api.get(NODES, "own")) == [ip_network("10.244.1.0/24")]
    await cluster.api.delete(NODES, "own")
    await cluster.api.patch(NODES, waiting, {"metadata": {"labels": {"look": "again"}}})
    ((first, _),) = await eventually_async(lambda: networks(waiting))
    assert first == ip_network("10.244.1.0/24")
