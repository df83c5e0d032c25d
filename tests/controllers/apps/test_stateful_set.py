"""StatefulSets on a real API server."""

import asyncio

import pytest

from podwire.controllers.kinds import PODS, REVISIONS, STATEFUL_SETS, VOLUME_CLAIMS
from podwire.protocols.k8sapi.client_side import Scope
from tests.controllers.apps.conftest import workload
from tests.eventually import eventually_async

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def done(count):
    def check(set_):
        status = set_.get("status") or {}
        return (
            status.get("observedGeneration") == set_["metadata"]["generation"]
            and status.get("replicas") == status.get("availableReplicas") == count
            and status.get("currentRevision") == status.get("updateRevision")
            and status.get("updatedReplicas", 0) == count
        )

    return check


async def names(cluster):
    return [pod["metadata"]["name"] for pod in await cluster.pods()]


async def claims(cluster):
    found = (await cluster.api.list(VOLUME_CLAIMS, Scope(namespace="default"))).items
    return sorted(claim["metadata"]["name"] for claim in found)


async def scale(cluster, count):
    await cluster.api.patch(STATEFUL_SETS, "web", {"spec": {"replicas": count}}, "default")


async def change_image(cluster, image, **spec):
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}, **spec}}
    await cluster.api.patch(STATEFUL_SETS, "web", patch, "default")


async def images(cluster):
    return [pod["spec"]["containers"][0]["image"] for pod in await cluster.pods()]


async def test_pods_are_created_in_order_with_names_and_claims(cluster):
    spec = {"serviceName": "peers", "volumeClaimTemplates": [CLAIM], "ordinals": {"start": 5}}
    cluster.nodes.paused = True
    await cluster.api.create(workload("StatefulSet", replicas=3, **spec))
    await cluster.settled()
    assert await names(cluster) == ["web-5"]
    cluster.nodes.paused = False
    await cluster.nodes.step()
    await cluster.until(STATEFUL_SETS, "web", done(3))
    pods = await cluster.pods()
    assert [pod["metadata"]["name"] for pod in pods] == ["web-5", "web-6", "web-7"]
    [revision] = (await cluster.api.list(REVISIONS, Scope(namespace="default"))).items
    for pod, index in zip(pods, (5, 6, 7), strict=True):
        assert pod["metadata"]["labels"] == {
            "app": "web",
            "statefulset.kubernetes.io/pod-name": f"web-{index}",
            "apps.kubernetes.io/pod-index": str(index),
            "controller-revision-hash": revision["metadata"]["name"],
        }
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"web-{index}", "peers")
        volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "data")
        assert volume["persistentVolumeClaim"]["claimName"] == f"data-web-{index}"
    assert await claims(cluster) == ["data-web-5", "data-web-6", "data-web-7"]
    set_ = await cluster.api.get(STATEFUL_SETS, "web", "default")
    assert set_["status"] == {
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "observedGeneration": 1,
        "currentRevision": revision["metadata"]["name"],
        "updateRevision": revision["metadata"]["name"],
        "collisionCount": 0,
    }
    await cluster.settled()
    events = await cluster.events("web")
    assert ("SuccessfulCreate", "Create Pod web-5 in StatefulSet web successful") in events
    assert ("SuccessfulCreate", "Create Claim data-web-5 Pod web-5 in StatefulSet web success") in events
    assert cluster.line.count("POST", "/pods") == 3


async def test_a_parallel_set_creates_and_deletes_all_at_once(cluster):
    cluster.nodes.paused = True
    await cluster.api.create(workload("StatefulSet", replicas=4, podManagementPolicy="Parallel"))
    expected = [f"web-{index}" for index in range(4)]

    async def all_there():
        return await names(cluster) == expected

    await eventually_async(all_there)
    cluster.nodes.paused = False
    await cluster.nodes.step()
    await cluster.until(STATEFUL_SETS, "web", done(4))
    await scale(cluster, 1)
    await cluster.until(STATEFUL_SETS, "web", done(1))
    assert await names(cluster) == ["web-0"]


async def test_an_ordered_set_scales_down_from_the_top(cluster):
    await cluster.api.create(workload("StatefulSet", replicas=3))
    await cluster.until(STATEFUL_SETS, "web", done(3))
    cluster.nodes.paused = True
    await scale(cluster, 1)

    async def ending():
        return [
            pod["metadata"]["name"] for pod in await cluster.pods() if pod["metadata"].get("deletionTimestamp")
        ] == ["web-2"]

    await eventually_async(ending)
    await cluster.settled()
    assert await ending()
    cluster.nodes.paused = False
    await cluster.nodes.step()
    await cluster.until(STATEFUL_SETS, "web", done(1))


async def test_a_partition_updates_the_pods_above_it_only(cluster):
    await cluster.api.create(workload("StatefulSet", replicas=3))
    await cluster.until(STATEFUL_SETS, "web", done(3))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await change_image(cluster, "nginx:2", updateStrategy=strategy)
    set_ = await cluster.until(
        STATEFUL_SETS,
        "web",
        lambda set_: set_["status"].get("updatedReplicas") == 1 and set_["status"]["availableReplicas"] == 3,
    )
    assert await images(cluster) == ["nginx:1", "nginx:1", "nginx:2"]
    assert set_["status"]["currentRevision"] != set_["status"]["updateRevision"]
    await cluster.api.delete(PODS, "web-0", "default")
    await cluster.until(STATEFUL_SETS, "web", lambda set_: set_["status"]["availableReplicas"] == 3)
    assert await images(cluster) == ["nginx:1", "nginx:1", "nginx:2"]
    strategy["rollingUpdate"]["partition"] = 0
    await cluster.api.patch(STATEFUL_SETS, "web", {"spec": {"updateStrategy": strategy}}, "default")
    await cluster.until(STATEFUL_SETS, "web", done(3))
    assert await images(cluster) == ["nginx:2"] * 3


async def test_on_delete_waits_for_deletions(cluster):
    await cluster.api.create(workload("StatefulSet", replicas=2, updateStrategy={"type": "OnDelete"}))
    await cluster.until(STATEFUL_SETS, "web", done(2))
    await change_image(cluster, "nginx:2")
    await cluster.settled()
    assert await images(cluster) == ["nginx:1"] * 2
    await cluster.api.delete(PODS, "web-1", "default")
    await cluster.until(
        STATEFUL_SETS,
        "web",
        lambda set_: set_["status"].get("updatedReplicas") == 1 and set_["status"]["availableReplicas"] == 2,
    )
    assert await images(cluster) == ["nginx:1", "nginx:2"]


async def test_max_unavailable_updates_several_pods_at_once(cluster):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    await cluster.api.create(workload("StatefulSet", replicas=4, updateStrategy=strategy))
    await cluster.until(STATEFUL_SETS, "web", done(4))
    cluster.nodes.paused = True
    await change_image(cluster, "nginx:2")

    async def two_end():
        ending = [pod["metadata"]["name"] for pod in await cluster.pods() if pod["metadata"].get("deletionTimestamp")]
        return ending == ["web-2", "web-3"]

    await eventually_async(two_end)
    cluster.nodes.paused = False
    await cluster.nodes.step()
    await cluster.until(STATEFUL_SETS, "web", done(4))
    assert await images(cluster) == ["nginx:2"] * 4


async def test_a_failed_pod_is_deleted_and_created_again(cluster):
    await cluster.api.create(workload("StatefulSet", replicas=2))
    await cluster.until(STATEFUL_SETS, "web", done(2))
    before = await cluster.api.get(PODS, "web-0", "default")
    await cluster.nodes.report(before, ready=False, phase="Failed")

    async def replaced():
        pods = {pod["metadata"]["name"]: pod for pod in await cluster.pods()}
        return "web-0" in pods and pods["web-0"]["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually_async(replaced)
    await cluster.until(STATEFUL_SETS, "web", done(2))


@pytest.mark.parametrize(
    ("policy", "after_scaling", "after_deletion"),
    [
        ({}, ["data-web-0", "data-web-1"], ["data-web-0", "data-web-1"]),
        ({"whenScaled": "Delete"}, ["data-web-0"], ["data-web-0"]),
        ({"whenDeleted": "Delete"}, ["data-web-0", "data-web-1"], []),
        ({"whenDeleted": "Delete", "whenScaled": "Delete"}, ["data-web-0"], []),
    ],
    ids=["retain", "delete when scaled", "delete when deleted", "delete"],
)
async def test_claims_are_retained_or_deleted(cluster, policy, after_scaling, after_deletion):
    spec = {"volumeClaimTemplates": [CLAIM], "persistentVolumeClaimRetentionPolicy": policy}
    await cluster.api.create(workload("StatefulSet", replicas=2, **spec))
    await cluster.until(STATEFUL_SETS, "web", done(2))
    await scale(cluster, 1)
    await cluster.until(STATEFUL_SETS, "web", done(1))

    async def left(expected):
        async def check():
            return await claims(cluster) == expected

        await eventually_async(check)
        await cluster.settled()
        assert await claims(cluster) == expected

    await left(after_scaling)
    await scale(cluster, 2)
    await cluster.until(STATEFUL_SETS, "web", done(2))
    await scale(cluster, 1)
    await cluster.until(STATEFUL_SETS, "web", done(1))
    await cluster.api.delete(STATEFUL_SETS, "web", "default")
    await left(after_deletion)


async def test_a_deleted_claim_of_a_pending_pod_is_created_again(cluster):
    cluster.nodes.paused = True
    await cluster.api.create(workload("StatefulSet", replicas=1, volumeClaimTemplates=[CLAIM]))

    async def there():
        return await claims(cluster) == ["data-web-0"] and await names(cluster) == ["web-0"]

    await eventually_async(there)
    await cluster.settled()
    await cluster.api.patch(VOLUME_CLAIMS, "data-web-0", {"metadata": {"finalizers": None}}, "default")
    await cluster.api.delete(VOLUME_CLAIMS, "data-web-0", "default")
    await eventually_async(there)


async def test_nothing_is_asked_while_nothing_changes(cluster):
    await cluster.api.create(workload("StatefulSet", replicas=2, volumeClaimTemplates=[CLAIM]))
    await cluster.until(STATEFUL_SETS, "web", done(2))
    await cluster.settled()
    before = len(cluster.line.requests)
    await asyncio.sleep(1)
    assert len(cluster.line.requests) == before
