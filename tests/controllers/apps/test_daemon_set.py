"""DaemonSets on a real API server with two nodes."""

import asyncio

import pytest

from podwire.controllers.kinds import DAEMON_SETS, NODES, REVISIONS
from podwire.protocols.k8sapi.client_side import PatchType, Scope
from tests.controllers.apps.conftest import pinned_node, template, workload
from tests.eventually import eventually_async


@pytest.fixture
async def two(cluster):
    """The cluster with two nodes."""
    for name in ("one", "two"):
        await cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    return cluster


def done(count, updated=None):
    def check(daemon):
        status = daemon.get("status") or {}
        return (
            status.get("observedGeneration") == daemon["metadata"]["generation"]
            and status.get("numberAvailable", 0) == count
            and status.get("desiredNumberScheduled") == count
            and status.get("updatedNumberScheduled", 0) == (count if updated is None else updated)
        )

    return check


async def nodes_of(cluster):
    return sorted(pod["spec"].get("nodeName", "") for pod in await cluster.pods())


async def change_image(cluster, image):
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    return await cluster.api.patch(DAEMON_SETS, "web", patch, "default")


async def test_every_node_gets_a_pod_with_affinity_and_tolerations(two):
    await two.api.create(workload("DaemonSet"))
    daemon = await two.until(DAEMON_SETS, "web", done(2))
    assert daemon["status"] == {
        "currentNumberScheduled": 2,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 2,
        "numberReady": 2,
        "observedGeneration": 1,
        "updatedNumberScheduled": 2,
        "numberAvailable": 2,
    }
    pods = await two.pods()
    assert await nodes_of(two) == ["one", "two"]
    for pod in pods:
        assert pinned_node(pod["spec"]) == pod["spec"]["nodeName"]
        keys = {toleration["key"].removeprefix("node.kubernetes.io/") for toleration in pod["spec"]["tolerations"]}
        assert keys == {
            "not-ready",
            "unreachable",
            "disk-pressure",
            "memory-pressure",
            "pid-pressure",
            "unschedulable",
        }
    [revision] = (await two.api.list(REVISIONS, Scope(namespace="default"))).items
    hash_ = revision["metadata"]["labels"]["controller-revision-hash"]
    assert revision["metadata"]["name"] == f"web-{hash_}"
    assert {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods} == {hash_}
    assert revision["data"]["spec"]["template"]["$patch"] == "replace"


async def test_nodes_that_come_and_go(two):
    await two.api.create(workload("DaemonSet"))
    await two.until(DAEMON_SETS, "web", done(2))
    await two.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "three"}})
    await two.until(DAEMON_SETS, "web", done(3))
    taints = [{"key": "dedicated", "effect": "NoExecute"}]
    await two.api.patch(NODES, "three", {"spec": {"taints": taints}}, type_=PatchType.MERGE)
    await two.until(DAEMON_SETS, "web", done(2))

    async def left():
        return await nodes_of(two) == ["one", "two"]

    await eventually_async(left)


async def test_a_node_selector_chooses_nodes(two):
    chosen = template()
    chosen["spec"]["nodeSelector"] = {"disk": "ssd"}
    await two.api.create(workload("DaemonSet", template=chosen))
    await two.settled()
    assert await two.pods() == []
    await two.api.patch(NODES, "two", {"metadata": {"labels": {"disk": "ssd"}}})
    await two.until(DAEMON_SETS, "web", done(1))
    assert await nodes_of(two) == ["two"]
    await two.api.patch(NODES, "two", {"metadata": {"labels": {"disk": None}}})

    async def gone():
        return not await two.pods()

    await eventually_async(gone)


@pytest.mark.parametrize(
    "rolling", [{"maxUnavailable": 1}, {"maxSurge": 1, "maxUnavailable": 0}], ids=["in place", "with a surge"]
)
async def test_a_rolling_update_replaces_all_pods(two, rolling):
    await two.api.create(workload("DaemonSet", updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling}))
    await two.until(DAEMON_SETS, "web", done(2))
    await change_image(two, "nginx:2")
    await two.until(DAEMON_SETS, "web", done(2))

    async def replaced():
        return [pod["spec"]["containers"][0]["image"] for pod in await two.pods()] == ["nginx:2"] * 2

    await eventually_async(replaced)
    history = (await two.api.list(REVISIONS, Scope(namespace="default"))).items
    assert sorted(revision["revision"] for revision in history) == [1, 2]


async def test_on_delete_replaces_pods_when_they_are_deleted(two):
    await two.api.create(workload("DaemonSet", updateStrategy={"type": "OnDelete"}))
    await two.until(DAEMON_SETS, "web", done(2))
    await change_image(two, "nginx:2")
    await two.until(DAEMON_SETS, "web", done(2, updated=0))
    await two.settled()
    [first, _] = await two.pods()
    assert first["spec"]["containers"][0]["image"] == "nginx:1"
    from podwire.controllers.kinds import PODS

    await two.api.delete(PODS, first["metadata"]["name"], "default")
    await two.until(DAEMON_SETS, "web", done(2, updated=1))


async def test_an_old_template_gets_a_new_number_and_surplus_revisions_go(two):
    await two.api.create(workload("DaemonSet", revisionHistoryLimit=1))
    for image in ("nginx:2", "nginx:3", "nginx:1"):
        await two.until(DAEMON_SETS, "web", done(2))
        await change_image(two, image)
    await two.until(DAEMON_SETS, "web", done(2))

    async def kept():
        history = (await two.api.list(REVISIONS, Scope(namespace="default"))).items
        return len(history) == 2 and max(revision["revision"] for revision in history) == 4

    await eventually_async(kept)


async def test_failed_daemons_are_replaced_with_back_off(two):
    await two.api.create(workload("DaemonSet"))
    await two.until(DAEMON_SETS, "web", done(2))
    for _ in range(2):
        pod = next(pod for pod in await two.pods() if pod["status"]["phase"] == "Running")
        await two.nodes.report(pod, ready=False, phase="Failed")
        name = pod["metadata"]["name"]

        async def replaced(name=name):
            return name not in [pod["metadata"]["name"] for pod in await two.pods()]

        await eventually_async(replaced)
        await two.until(DAEMON_SETS, "web", done(2))

    async def reported():
        return any(
            reason == "FailedDaemonPod" and "will try to kill it" in message
            for reason, message in await two.events("web")
        )

    await eventually_async(reported)


async def test_daemons_that_always_fail_cause_few_requests_and_idle_ones_none(two):
    await two.api.create(workload("DaemonSet", template=template("rejected:1")))
    await asyncio.sleep(4)
    assert 4 <= two.line.count("POST", "/pods") <= 10
    await change_image(two, "nginx:1")
    await two.until(DAEMON_SETS, "web", done(2))
    await two.settled()
    before = len(two.line.requests)
    await asyncio.sleep(1)
    assert len(two.line.requests) == before
