"""The scheduler at work on a real API server."""

import asyncio
import contextlib

import pytest

from podwire.objects import times
from podwire.protocols.k8sapi.client_side import PatchType
from podwire.scheduler import Profile, Scheduler
from podwire.scheduler.kinds import NAMESPACES, NODES, PODS
from podwire.scheduler.profiles import DEFAULT
from podwire.transports.clock import SystemClock

FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. "
    "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


async def change_node(cluster, patch, name="n1", subresource=""):
    await cluster.api.patch(NODES, name, patch, subresource=subresource)


async def test_a_pod_is_bound_to_the_only_node(working):
    await working.node("n1")
    await working.pod("web")
    pod = await working.placed("web")
    assert pod["spec"]["nodeName"] == "n1"
    assert [(condition["type"], condition["status"]) for condition in pod["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]


async def test_pods_and_nodes_from_before_are_found(cluster):
    await cluster.node("n1")
    await cluster.pod("web")
    async with cluster.scheduler():
        assert (await cluster.placed("web"))["spec"]["nodeName"] == "n1"


async def test_there_are_two_watches_of_pods_and_one_of_everything_else(cluster):
    wire = cluster.wire()
    async with cluster.scheduler(wire):
        await cluster.node("n1")
        await cluster.pod("web")
        await cluster.placed("web")
    assert sorted(wire.watches) == [
        ("/api/v1/namespaces", ""),
        ("/api/v1/nodes", ""),
        ("/api/v1/pods", "spec.nodeName!="),
        ("/api/v1/pods", "spec.nodeName="),
        ("/apis/policy/v1/poddisruptionbudgets", ""),
        ("/apis/resource.k8s.io/v1/deviceclasses", ""),
        ("/apis/resource.k8s.io/v1/resourceclaims", ""),
        ("/apis/resource.k8s.io/v1/resourceslices", ""),
        ("/apis/resource.k8s.io/v1beta2/devicetaintrules", ""),
    ]


async def test_an_event_names_the_node_of_a_pod(working):
    await working.node("n1")
    pod = await working.pod("web")
    [event] = await working.events("Scheduled")
    assert (event["type"], event["action"], event["note"], event["reportingController"]) == (
        "Normal",
        "Binding",
        "Successfully assigned default/web to n1",
        "default-scheduler",
    )
    assert int(event["regarding"].pop("resourceVersion")) >= int(pod["metadata"]["resourceVersion"])
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Pod", **meta}
    assert times.parse(event["eventTime"]) >= times.parse(pod["metadata"]["creationTimestamp"])
    assert event["reportingInstance"]
    assert "series" not in event


@pytest.fixture
async def full(cluster):
    """A cluster with a pod that is too large for its only node, which the scheduler knows from its beginning."""
    await cluster.node("n1", cpu="1")
    await cluster.pod("web", requests={"cpu": "2"})
    cluster.used = cluster.wire()
    async with cluster.scheduler(cluster.used):
        yield cluster


async def test_an_unschedulable_pod_gets_a_condition_and_an_event(full):
    condition = await full.refused("web", FULL)
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", FULL)
    assert condition["lastTransitionTime"]
    [event] = await full.events("FailedScheduling")
    assert (event["type"], event["action"], event["note"]) == ("Warning", "Scheduling", FULL)


async def test_a_pod_without_nodes_gets_a_condition(working):
    await working.pod("web")
    condition = await working.refused("web", "no nodes")
    assert condition["message"] == "no nodes available to schedule pods"


async def test_the_same_refusal_again_is_counted_and_the_pod_is_left_alone(full):
    await full.refused("web", FULL)
    before = await full.seen("web")
    await full.events("FailedScheduling")
    await change_node(full, {"metadata": {"labels": {"new": ""}}})
    [event] = await full.events("FailedScheduling", done=lambda event: event.get("series"))
    assert event["series"]["count"] == 2
    assert (await full.seen("web"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert len([path for _method, path in full.used.calls if path.endswith("/status")]) == 1


async def test_a_heartbeat_of_a_node_wakes_no_pod(full):
    await full.refused("web", FULL)
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
    await change_node(full, {"status": {"conditions": [beat]}}, subresource="status")
    await full.pod("next")
    await full.placed("next")  # and it came after
    [event] = await full.events("FailedScheduling")
    assert "series" not in event


async def test_another_reason_replaces_the_first_and_the_time_of_refusal_stays(working):
    await working.pod("web", requests={"cpu": "2"})
    first = await working.refused("web", "no nodes")
    await working.node("n1", cpu="1")
    second = await working.refused("web", "Insufficient cpu")
    assert second["lastTransitionTime"] == first["lastTransitionTime"]


async def test_a_condition_is_written_again_after_a_conflict(cluster):
    wire = cluster.wire()
    change = {"metadata": {"annotations": {"changed": "meanwhile"}}}

    async def disturb(method, path, send):
        if path.endswith("/status") and not changed:
            changed.append(await cluster.api.patch(PODS, "web", change, "default"))
        return await send()

    changed, wire.disturb = [], disturb
    await cluster.pod("web")
    async with cluster.scheduler(wire):
        assert (await cluster.refused("web", "no nodes"))["reason"] == "Unschedulable"
    assert changed


async def comes(cluster):
    await cluster.node("n2", cpu="4")


async def grows(cluster):
    await change_node(cluster, {"status": {"allocatable": {"cpu": "8"}}}, subresource="status")


async def goes(cluster):
    await cluster.api.delete(PODS, "old", "default", grace_seconds=0)


async def ends(cluster):
    ended = {"status": {"phase": "Succeeded"}}
    await cluster.api.patch(PODS, "old", ended, "default", subresource="status")


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(comes, id="a node comes"),
        pytest.param(grows, id="a node has more to allocate"),
        pytest.param(goes, id="a pod goes"),
        pytest.param(ends, id="a pod ends"),
    ],
)
async def test_a_pod_waiting_for_capacity_is_woken_when_capacity_is_freed(working, happens):
    await working.node("n1", cpu="2")
    await working.pod("old", requests={"cpu": "2"})
    await working.placed("old")
    await working.pod("web", requests={"cpu": "1"})
    await working.refused("web", "Insufficient cpu")
    await happens(working)
    await working.placed("web")


@pytest.mark.parametrize(
    ("node", "pod", "reason", "change"),
    [
        pytest.param({"unschedulable": True}, {}, "unschedulable", {"spec": {"unschedulable": None}}, id="uncordoned"),
        pytest.param(
            {"taints": [{"key": "k", "effect": "NoSchedule"}]}, {}, "taint", {"spec": {"taints": None}}, id="untainted"
        ),
        pytest.param(
            {}, {"nodeSelector": {"disk": "ssd"}}, "selector", {"metadata": {"labels": {"disk": "ssd"}}}, id="labelled"
        ),
    ],
)
async def test_a_pod_that_waits_for_a_node_to_change_is_woken_by_that(working, node, pod, reason, change):
    await working.node("n1", **node)
    await working.pod("web", **pod)
    await working.refused("web", reason)
    await change_node(working, change)
    await working.placed("web")


async def test_a_pod_that_tolerates_more_than_before_is_tried_again(working):
    await working.node("n1", taints=[{"key": "k", "effect": "NoSchedule"}])
    await working.pod("web")
    await working.refused("web", "untolerated taint {k: }")
    pod = await working.seen("web")
    more = [*pod["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    await working.api.patch(PODS, "web", {"spec": {"tolerations": more}}, "default")
    await working.placed("web")


async def test_a_pod_that_wants_to_be_near_another_follows_it(working):
    await working.node("n1")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await working.pod("web", affinity=affinity)
    await working.refused("web", "pod affinity rules")
    await working.pod("db", labels={"app": "db"})
    await working.placed("web")


async def test_a_gated_pod_waits_until_its_gates_are_gone(working):
    await working.node("n1")
    await working.pod("web", schedulingGates=[{"name": "example.com/quota"}])
    await working.pod("next")
    await working.placed("next")
    pod = await working.seen("web")
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    gone = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await working.api.patch(PODS, "web", gone, "default", type_=PatchType.JSON)
    await working.placed("web")


async def test_pods_of_another_scheduler_are_left_alone(working):
    await working.node("n1")
    await working.pod("theirs", schedulerName="custom")
    await working.pod("ours")
    await working.placed("ours")
    assert "nodeName" not in (await working.seen("theirs"))["spec"]


async def test_the_most_important_pod_gets_the_last_place(cluster):
    for name, value in (("low", 1), ("high", 1000)):
        made = {"metadata": {"name": name}, "value": value}
        await cluster.api.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **made})
    await cluster.node("n1", cpu="1")
    await cluster.pod("first", requests={"cpu": "1"}, priorityClassName="low")
    await cluster.pod("later", requests={"cpu": "1"}, priorityClassName="high")
    async with cluster.scheduler():
        await cluster.placed("later")
        await cluster.refused("first", "Insufficient cpu")


async def test_no_pod_is_refused_before_all_nodes_are_known(cluster):
    wire, known, asked = cluster.wire(), asyncio.Event(), asyncio.Event()

    async def disturb(_method, path, send):
        if path == "/api/v1/nodes":
            asked.set()
            await known.wait()
        return await send()

    wire.disturb = disturb
    await cluster.node("n1")
    await cluster.pod("web")
    async with cluster.scheduler(wire):
        async with asyncio.timeout(40):
            await asked.wait()
        await asyncio.sleep(0.1)
        assert [call for call in wire.calls if call[0] != "GET"] == []
        known.set()
        await cluster.placed("web")
    assert [call for call in wire.calls if call[1].endswith("/status")] == []


async def test_two_hundred_pods_fill_three_nodes_to_the_brim_and_no_further(working):
    capacity = {"n1": 70, "n2": 70, "n3": 60}
    for name, pods in capacity.items():
        await working.node(name, cpu=f"{pods}00m")
    await asyncio.gather(*(working.pod(f"p{index}", requests={"cpu": "100m"}) for index in range(200)))
    found = await working.all_placed(200)
    assert {name: len(pods) for name, pods in found.items()} == capacity
    await working.pod("more", requests={"cpu": "100m"})
    await working.refused("more", "0/3 nodes are available: 3 Insufficient cpu. ")


async def test_each_profile_schedules_the_pods_of_its_name_and_reports_in_it(cluster):
    await cluster.node("n1", unschedulable=True)
    lenient = Profile(name="lenient", filters=(), scores=())
    scheduler = Scheduler(cluster.client(), SystemClock(), profiles=(DEFAULT, lenient))
    task = asyncio.create_task(scheduler.run())
    try:
        await cluster.pod("web")
        await cluster.pod("other", schedulerName="lenient")
        await cluster.pod("third", schedulerName="absent")
        await cluster.placed("other")
        await cluster.refused("web", "node(s) were unschedulable")
        [event] = await cluster.events("Scheduled", "other")
        assert event["reportingController"] == "lenient"
        [event] = await cluster.events("FailedScheduling", "web")
        assert event["reportingController"] == "default-scheduler"
        assert "conditions" not in (await cluster.seen("third"))["status"]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_labels_of_a_namespace_change_which_pods_are_near(working):
    await working.node("n1")
    await working.pod("db", labels={"app": "db"})
    await working.placed("db")
    selector = {"matchLabels": {"app": "db"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    term |= {"namespaceSelector": {"matchLabels": {"team": "red"}}}
    await working.pod("web", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    await working.refused("web", "node(s) didn't match pod affinity rules")
    await working.api.patch(NAMESPACES, "default", {"metadata": {"labels": {"team": "red"}}})
    assert (await working.placed("web"))["spec"]["nodeName"] == "n1"
