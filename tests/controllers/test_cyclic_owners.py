"""Owners in a circle: nothing is deleted by itself, nothing loops, and a foreground deletion ends."""

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side.options import Propagation
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

MAPS = BUILTIN.of_kind("v1", "ConfigMap")
NAMES = ("a", "b", "c")


def owner(map_):
    name, uid = map_["metadata"]["name"], map_["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": True}


async def circle(cluster):
    """Each of three objects is owned by the next one."""
    made = [
        await cluster.api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        )
        for name in NAMES
    ]
    for map_, other in zip(made, (*made[1:], made[0]), strict=True):
        patch = {"metadata": {"ownerReferences": [owner(other)]}}
        await cluster.api.patch(MAPS, map_["metadata"]["name"], patch, "default")


def requests(cluster):
    return [row for row in cluster.requests() if "/configmaps/" in row[1] and row[1].rpartition("/")[2][:1] in NAMES]


async def exists(cluster, name):
    try:
        await cluster.api.get(MAPS, name, "default")
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


async def test_a_circle_of_owners_stays_and_costs_few_requests(cluster):
    await circle(cluster)
    await cluster.api.patch(MAPS, "a", {"data": {"changed": "1"}}, "default")

    async def quiet():
        before = len(requests(cluster))
        await cluster.api.list(MAPS)
        return len(requests(cluster)) == before

    await eventually_async(quiet)
    assert [await exists(cluster, name) for name in NAMES] == [True] * 3
    assert len(requests(cluster)) <= 12


async def test_a_circle_of_owners_is_deleted_in_the_foreground_with_few_requests(cluster):
    await circle(cluster)
    await cluster.api.delete(MAPS, "a", "default", propagation=Propagation.FOREGROUND)

    async def gone():
        return not any([await exists(cluster, name) for name in NAMES])

    await eventually_async(gone)
    assert len(requests(cluster)) <= 40
