"""The disruption controller and the eviction API on a real API server."""

import pytest

from podwire.controllers.kinds import BUDGETS, DEPLOYMENTS, EVENTS, PODS
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

LABELS = {"app": "web"}


def budget(name="web", **spec):
    metadata = {"name": name, "namespace": "default"}
    selector = {"selector": {"matchLabels": LABELS}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {**selector, **spec},
    }


async def add_pod(cluster, name):
    metadata = {"name": name, "namespace": "default", "labels": LABELS}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
    await cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await make_ready(cluster, name)


async def make_ready(cluster, name):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.api.patch(PODS, name, {"status": status}, "default", subresource="status")


async def reported(cluster, reason):
    async def look():
        rows = (await cluster.api.list(EVENTS, Scope())).items
        return [row["message"] for row in rows if row["reason"] == reason]

    return (await eventually_async(look))[0]


async def test_evictions_spend_the_budget_and_are_refused_without_one(cluster):
    for name in ("a", "b", "c"):
        await add_pod(cluster, name)
    await cluster.api.create(budget(minAvailable=2))
    await cluster.status(BUDGETS, "web", currentHealthy=3, desiredHealthy=2, disruptionsAllowed=1, expectedPods=3)
    await cluster.api.evict("a", "default")
    await cluster.status(BUDGETS, "web", currentHealthy=2, disruptionsAllowed=0)
    with pytest.raises(ApiError) as caught:
        await cluster.api.evict("b", "default")
    assert caught.value.code == 429
    assert caught.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = caught.value.details["causes"]
    assert cause["message"] == "The disruption budget web needs 2 healthy pods and has 2 currently"


async def test_a_share_counts_from_the_scale_of_the_deployment(cluster):
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 4, "selector": {"matchLabels": LABELS}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    await cluster.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    await cluster.api.create(budget(maxUnavailable="50%"))
    for pod in await cluster.wait_for_pods(4):
        await make_ready(cluster, pod["metadata"]["name"])
    await cluster.status(BUDGETS, "web", expectedPods=4, desiredHealthy=2, currentHealthy=4, disruptionsAllowed=2)
    await cluster.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}}, "default")
    await cluster.status(BUDGETS, "web", expectedPods=6, desiredHealthy=3)


async def test_an_impossible_budget_says_why_and_does_not_loop(cluster):
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    metadata = {"name": "sum", "namespace": "default"}
    await cluster.api.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    )
    await cluster.wait_for_pods(1)
    await cluster.api.create(budget(maxUnavailable=1))

    async def failed():
        rows = ((await cluster.api.get(BUDGETS, "web", "default")).get("status") or {}).get("conditions") or ()
        return [(row["status"], row["reason"], row["message"]) for row in rows if row["reason"] == "SyncFailed"]

    rows = await eventually_async(failed)
    assert rows[0][2] == "jobs.batch does not implement the scale subresource"
    message = await reported(cluster, "CalculateExpectedPodCountFailed")
    assert message.startswith("Failed to calculate the number of expected pods: ")
    writes = [row for row in cluster.requests() if "poddisruptionbudgets" in row[1]]
    assert len(writes) <= 4, writes


async def test_unmanaged_pods_and_no_pods_are_reported(cluster):
    await cluster.api.create(budget(maxUnavailable=1))
    assert await reported(cluster, "NoPods") == "No matching pods found"
    await add_pod(cluster, "a")
    assert "were found to be unmanaged" in await reported(cluster, "UnmanagedPods")


async def test_the_mark_of_an_eviction_that_did_not_happen_is_taken_back(cluster, clock):
    await add_pod(cluster, "a")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x",
              "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    status = {"conditions": [{"type": "Ready", "status": "True"}, target]}
    await cluster.api.patch(PODS, "a", {"status": status}, "default", subresource="status")

    async def cleared():
        rows = (await cluster.api.get(PODS, "a", "default"))["status"]["conditions"]
        return [row["status"] for row in rows if row["type"] == "DisruptionTarget"] == ["False"]

    await eventually_async(cleared)
