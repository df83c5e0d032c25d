"""Preemption on a real API server: what is written to the pods, and who waits for whom."""

import asyncio

import pytest

from podwire.protocols.k8sapi.client_side import PatchType, Unreachable
from podwire.scheduler.kinds import NODES, PODS
from tests.eventually import eventually_async
from tests.scheduler.conftest import scheduled

WAITS = "0/1 nodes are available: 1 Insufficient cpu."


@pytest.fixture
async def crowded(cluster):
    """One node with two cpus, and a pod of no priority on one of them."""
    for name, value in (("middle", 500), ("high", 1000)):
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await cluster.api.create({**meta, "value": value})
    await cluster.node("n1", cpu="2")
    cluster.used = cluster.wire()
    async with cluster.scheduler(cluster.used, initial_backoff=0.05):
        await cluster.pod("low", requests={"cpu": "1"})
        await cluster.placed("low")
        yield cluster


async def high(cluster, name="web", cpu="2", priority="high", **spec):
    return await cluster.pod(name, requests={"cpu": cpu}, priorityClassName=priority, **spec)


async def nominated(cluster, name="web", node="n1"):
    return await cluster.eventually(name, lambda pod: pod["status"].get("nominatedNodeName", "") == node)


async def deleting(cluster, name="low"):
    return await cluster.eventually(name, lambda pod: pod["metadata"].get("deletionTimestamp"))


async def gone(cluster, name="low"):
    """The kubelet's part: nothing of the pod runs any more."""
    await cluster.api.delete(PODS, name, "default", grace_seconds=0)


async def test_a_victim_is_marked_deleted_gracefully_and_reported(crowded):
    web = await high(crowded)
    victim = await deleting(crowded)
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 30
    [condition] = [condition for condition in victim["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "True",
        "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
    )
    [event] = await crowded.events("Preempted", "low")
    uid = web["metadata"]["uid"]
    assert (event["type"], event["action"], event["note"]) == (
        "Normal",
        "Preempting",
        f"Preempted by pod {uid} on node n1",
    )
    assert (event["related"]["kind"], event["related"]["name"], event["related"]["uid"]) == ("Pod", "web", uid)


async def test_the_preemptor_is_nominated_and_bound_once_the_victim_is_gone(crowded):
    await high(crowded)
    web = await nominated(crowded)
    assert scheduled(web)["message"] == WAITS
    await deleting(crowded)
    [event] = await crowded.events("FailedScheduling")
    assert event["note"] == WAITS
    await gone(crowded)
    web = await crowded.placed("web")
    assert "nominatedNodeName" not in web["status"]


async def test_waiting_for_victims_costs_no_request(crowded):
    await high(crowded)
    await nominated(crowded)
    await deleting(crowded)
    await crowded.events("Preempted", "low")
    await crowded.events("FailedScheduling")
    before = len(crowded.used.calls)
    await crowded.node("n2", cpu="1", unschedulable=True)  # a wake-up: it is decided again, once
    await crowded.refused("web", "preemption: not eligible due to a terminating pod on the nominated node.")
    await asyncio.sleep(0.3)
    writes = [path for _method, path in crowded.used.calls[before:] if not path.startswith("/apis/events")]
    assert writes == ["/api/v1/namespaces/default/pods/web/status"]
    assert (await crowded.seen("web"))["status"]["nominatedNodeName"] == "n1"


async def test_with_several_victims_the_pod_is_bound_after_the_last(crowded):
    await crowded.pod("low2", requests={"cpu": "1"})
    await crowded.placed("low2")
    await high(crowded)
    for name in ("low", "low2"):
        await deleting(crowded, name)
    await gone(crowded, "low2")
    await crowded.refused("web", "a terminating pod on the nominated node")
    await gone(crowded)
    await crowded.placed("web")


async def test_free_space_is_kept_for_the_nominated_pod(crowded):
    await high(crowded)
    await deleting(crowded)
    await crowded.pod("small", requests={"cpu": "1"})
    await crowded.refused("small", "Insufficient cpu")
    await gone(crowded)
    await crowded.placed("web")
    assert not (await crowded.seen("small"))["spec"].get("nodeName")


async def test_the_space_of_a_nominated_pod_that_is_deleted_is_free_again(crowded):
    await high(crowded)
    await deleting(crowded)
    await crowded.pod("small", requests={"cpu": "1"})
    await crowded.refused("small", "Insufficient cpu")
    await gone(crowded, "web")
    await crowded.placed("small")


async def test_a_pod_of_higher_priority_takes_the_nominated_node_over(crowded):
    await high(crowded, "first", priority="middle")
    await nominated(crowded, "first")
    await deleting(crowded)
    await high(crowded, "second")
    await nominated(crowded, "second")
    await nominated(crowded, "first", node="")
    await gone(crowded)
    await crowded.placed("second")
    await crowded.refused("first", "No preemption victims found for incoming pod")


async def test_a_nomination_is_cleared_when_the_node_is_gone(crowded):
    await high(crowded)
    await nominated(crowded)
    await deleting(crowded)
    await crowded.node("n2", cpu="1")
    await crowded.api.delete(NODES, "n1")
    web = await nominated(crowded, node="")
    assert scheduled(web)["message"].endswith("1 Preemption is not helpful for scheduling.")


async def test_another_node_that_becomes_free_is_used_instead(crowded):
    await high(crowded)
    await nominated(crowded)
    await deleting(crowded)
    await crowded.node("n2", cpu="2")
    web = await crowded.placed("web")
    assert web["spec"]["nodeName"] == "n2"
    assert "nominatedNodeName" not in web["status"]


async def test_a_pod_whose_policy_is_never_waits(crowded):
    meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "patient"}}
    await crowded.api.create({**meta, "value": 1000, "preemptionPolicy": "Never"})
    await high(crowded, priority="patient")
    await crowded.refused("web", "preemption: not eligible due to preemptionPolicy=Never.")
    assert not (await crowded.seen("low"))["metadata"].get("deletionTimestamp")


async def test_a_budget_protects_its_pods_as_long_as_others_can_go(crowded):
    await crowded.pod("kept", requests={"cpu": "1"}, labels={"app": "kept"})
    await crowded.placed("kept")
    meta = {"name": "kept", "namespace": "default"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    await crowded.api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    await high(crowded, cpu="1")
    await deleting(crowded, "low")
    assert not (await crowded.seen("kept"))["metadata"].get("deletionTimestamp")
    await gone(crowded)
    await crowded.placed("web")
    await high(crowded, "next", cpu="1")
    await deleting(crowded, "kept")  # violated last, but violated


async def test_a_scheduler_that_starts_again_keeps_the_nominations(cluster, crowded):
    await high(crowded)
    await nominated(crowded)
    await deleting(crowded)
    async with cluster.scheduler(wire := cluster.wire()):
        await cluster.pod("small", requests={"cpu": "1"})
        await cluster.refused("small", "Insufficient cpu")
        await cluster.api.patch(NODES, "n1", {"metadata": {"labels": {"new": ""}}})
        await cluster.refused("web", "a terminating pod on the nominated node")
        assert not [path for method, path in wire.calls if method == "DELETE"]


@pytest.mark.parametrize("verb", ["PATCH", "DELETE"])
async def test_an_eviction_without_an_answer_is_tried_again_after_a_pause(crowded, verb):
    refused = []

    async def disturb(method, path, send):
        if method == verb and "/pods/low" in path and len(refused) < 2:
            refused.append(path)
            raise Unreachable(f"{method} {path}: connection refused")
        return await send()

    crowded.used.disturb = disturb
    await high(crowded)
    await deleting(crowded)
    await nominated(crowded)
    assert len(refused) == 2


async def test_a_nomination_survives_a_change_of_the_pod_in_the_meantime(crowded):
    async def disturb(_method, path, send):
        if path.endswith("/web/status") and not changed:
            patch = {"metadata": {"labels": {"changed": "meanwhile"}}}
            changed.append(await crowded.api.patch(PODS, "web", patch, "default", type_=PatchType.MERGE))
        return await send()

    changed, crowded.used.disturb = [], disturb
    await high(crowded)
    await nominated(crowded)
    assert changed


async def test_a_nomination_made_by_others_is_respected(crowded):
    await gone(crowded)
    await crowded.node("n2", cpu="1")
    await crowded.pod("large", requests={"cpu": "1"}, schedulingGates=[{"name": "wait"}])
    await crowded.api.patch(PODS, "large", {"status": {"nominatedNodeName": "n2"}}, "default", subresource="status")
    await crowded.api.patch(PODS, "large", {"spec": {"schedulingGates": None}}, "default", type_=PatchType.MERGE)
    assert (await crowded.placed("large"))["spec"]["nodeName"] == "n2"


async def test_two_pods_preempt_different_victims(crowded):
    await crowded.pod("low2", requests={"cpu": "1"})
    await crowded.placed("low2")
    await asyncio.gather(high(crowded, "one", cpu="1"), high(crowded, "two", cpu="1"))

    async def both_leave():
        pods = {name: await crowded.seen(name) for name in ("low", "low2")}
        return all(pod["metadata"].get("deletionTimestamp") for pod in pods.values())

    await eventually_async(both_leave)
    await gone(crowded)
    await gone(crowded, "low2")
    for name in ("one", "two"):
        await crowded.placed(name)
