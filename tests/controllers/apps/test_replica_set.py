"""ReplicaSets and ReplicationControllers on a real API server."""

import asyncio

import pytest

from podwire.controllers.kinds import NAMESPACES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from podwire.protocols.k8sapi.client_side import Propagation
from tests.controllers.apps.conftest import template, workload
from tests.eventually import eventually_async


def available(count):
    return lambda set_: (set_.get("status") or {}).get("availableReplicas", 0) == count


async def scaled(cluster, kind, count):
    await cluster.api.patch(kind, "web", {"spec": {"replicas": count}}, "default")
    return await cluster.until(
        kind,
        "web",
        lambda set_: (
            set_["status"]["replicas"] == count
            and set_["status"].get("observedGeneration") == set_["metadata"]["generation"]
        ),
    )


@pytest.mark.parametrize("kind", [REPLICA_SETS, REPLICATION_CONTROLLERS], ids=lambda kind: kind.resource)
async def test_a_set_creates_and_deletes_pods_until_their_number_is_right(cluster, kind):
    spec = {"selector": {"app": "web"}} if kind is REPLICATION_CONTROLLERS else {}
    await cluster.api.create(workload(kind.kind, replicas=3, **spec))
    set_ = await cluster.until(kind, "web", available(3))
    assert set_["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "observedGeneration": 1,
        **({"terminatingReplicas": 0} if kind is REPLICA_SETS else {}),
    }
    pods = await cluster.pods(app="web")
    assert len(pods) == 3
    for pod in pods:
        assert pod["metadata"]["name"].startswith("web-")
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (set_["metadata"]["uid"], True, kind.kind)

    await scaled(cluster, kind, 1)
    await eventually_async(lambda: one_left(cluster))
    await scaled(cluster, kind, 0)

    await cluster.settled()
    events = await cluster.events("web")
    assert sorted(reason for reason, _ in events) == ["SuccessfulCreate"] * 3 + ["SuccessfulDelete"] * 3
    assert {message for _, message in events if message.startswith("Created")} == {
        f"Created pod: {pod['metadata']['name']}" for pod in pods
    }


async def one_left(cluster):
    return len(await cluster.pods(app="web")) == 1


async def test_no_pod_is_created_twice(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=40))
    await cluster.until(REPLICA_SETS, "web", available(40))
    await cluster.settled()
    assert cluster.line.count("POST", "/pods") == 40
    assert cluster.line.count("DELETE", "/pods") == 0


async def test_nothing_is_asked_while_nothing_changes(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=5))
    await cluster.until(REPLICA_SETS, "web", available(5))
    await cluster.settled()
    before = len(cluster.line.requests)
    await asyncio.sleep(1)
    assert len(cluster.line.requests) == before


async def test_a_deleted_pod_is_replaced(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=2))
    await cluster.until(REPLICA_SETS, "web", available(2))
    [pod, _] = await cluster.pods()
    await cluster.api.delete(PODS, pod["metadata"]["name"], "default")

    async def replaced():
        names = {pod["metadata"]["name"] for pod in await cluster.pods()}
        return len(names) == 2 and pod["metadata"]["name"] not in names

    await eventually_async(replaced)


async def test_a_failed_pod_is_replaced_and_kept(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=1))
    await cluster.until(REPLICA_SETS, "web", available(1))
    [pod] = await cluster.pods()
    await cluster.nodes.report(pod, ready=False, phase="Failed")

    async def replaced():
        return len(await cluster.pods()) == 2

    await eventually_async(replaced)
    await cluster.until(REPLICA_SETS, "web", available(1))


async def test_pods_that_always_fail_are_replaced_with_back_off(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=2, template=template("rejected:1")))
    await asyncio.sleep(4)
    assert 6 <= cluster.line.count("POST", "/pods") <= 14


async def test_orphans_are_adopted_and_pods_with_other_labels_released(cluster):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "lonely", "namespace": "default", "labels": {"app": "web"}},
        "spec": template()["spec"],
    }
    await cluster.api.create(pod)
    await cluster.api.create(workload("ReplicaSet", replicas=2))
    set_ = await cluster.until(REPLICA_SETS, "web", available(2))
    adopted = await cluster.api.get(PODS, "lonely", "default")
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == set_["metadata"]["uid"]
    assert len(await cluster.pods()) == 2

    await cluster.api.patch(PODS, "lonely", {"metadata": {"labels": {"app": "debug"}}}, "default")

    async def released():
        lonely = await cluster.api.get(PODS, "lonely", "default")
        return "ownerReferences" not in lonely["metadata"] and len(await cluster.pods(app="web")) == 2

    await eventually_async(released)


async def test_pods_become_available_after_min_ready_seconds(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=1, minReadySeconds=2))
    set_ = await cluster.until(REPLICA_SETS, "web", lambda set_: set_["status"].get("readyReplicas") == 1)
    assert "availableReplicas" not in set_["status"]
    await cluster.until(REPLICA_SETS, "web", available(1))


async def test_orphaning_keeps_the_pods_and_a_new_set_adopts_them(cluster):
    await cluster.api.create(workload("ReplicaSet", replicas=2))
    await cluster.until(REPLICA_SETS, "web", available(2))
    names = [pod["metadata"]["name"] for pod in await cluster.pods()]
    await cluster.api.delete(REPLICA_SETS, "web", "default", propagation=Propagation.ORPHAN)

    async def orphaned():
        return all("ownerReferences" not in pod["metadata"] for pod in await cluster.pods())

    await eventually_async(orphaned)
    await cluster.api.create(workload("ReplicaSet", "other", replicas=2))
    await cluster.until(REPLICA_SETS, "other", available(2))
    assert [pod["metadata"]["name"] for pod in await cluster.pods()] == names


async def test_pods_that_a_quota_forbids_cost_few_requests(cluster):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "default"}}
    await cluster.api.create({**quota, "spec": {"hard": {"pods": "3"}}})
    await cluster.settled()
    await cluster.api.create(workload("ReplicaSet", replicas=10_000))
    set_ = await cluster.until(REPLICA_SETS, "web", lambda set_: "conditions" in (set_.get("status") or {}))
    [condition] = set_["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("ReplicaFailure", "True", "FailedCreate")
    assert "exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3" in condition["message"]
    await cluster.until(REPLICA_SETS, "web", available(3))
    await asyncio.sleep(2)
    assert cluster.line.count("POST", "/pods") < 40

    async def reported():
        return any(reason == "FailedCreate" for reason, _ in await cluster.events("web"))

    await eventually_async(reported)


async def test_a_terminating_namespace_is_left_alone(cluster):
    await cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    set_ = workload("ReplicaSet", replicas=3)
    set_["metadata"] |= {"namespace": "shop", "finalizers": ["example.com/wait"]}
    await cluster.api.create(set_)
    await cluster.api.delete(NAMESPACES, "shop")
    await cluster.settled()
    assert not [pod for pod in await cluster.pods() if pod["metadata"]["namespace"] == "shop"]
    await cluster.api.patch(REPLICA_SETS, "web", {"metadata": {"finalizers": None}}, "shop")
