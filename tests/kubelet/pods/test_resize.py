"""Pods that are resized in place: what is accepted, what is sent to the runtime, and what the status says."""

import asyncio
import json

import pytest

from podwire.kubelet.pods.actions import KillContainer, StartContainer, UpdateContainer
from podwire.kubelet.pods.admission import resize_obstacle
from podwire.kubelet.pods.observed import ObservedContainer, Sandbox, newest_first
from podwire.kubelet.pods.plan import Facts, plan
from podwire.kubelet.pods.resize import Allocations, ResizeState, with_resources
from podwire.kubelet.pods.status_manager import PODS
from podwire.objects import nodes, pods
from podwire.objects.containers import Requests
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Internal
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import PatchType

NODES = BUILTIN.of_kind("v1", "Node")


def resources(cpu, memory, **more):
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": {**amounts, **more}, "limits": {**amounts, **more}}


def pod(*containers, name="p", init=()):
    spec = {
        "containers": [{"name": "c", "resources": resources(*containers[:2])}] if containers else [],
        "initContainers": list(init),
    }
    return pods.read({"metadata": {"name": name, "namespace": "default", "uid": name, "generation": 2}, "spec": spec})


NODE = nodes.read({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "9"}}})


@pytest.mark.parametrize(
    ("wanted", "others", "obstacle"),
    [
        pytest.param(("2", "4Gi"), [], None, id="all of the node"),
        pytest.param(
            ("3", "1Gi"),
            [],
            ("Infeasible", "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000"),
            id="more than the node has",
        ),
        pytest.param(
            ("1500m", "1Gi"),
            [("1", "1Gi")],
            ("Deferred", "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"),
            id="more than others leave",
        ),
    ],
)
def test_a_resize_must_fit_beside_the_allocations_of_others(wanted, others, obstacle):
    others = [pod(*other, name=f"o{number}") for number, other in enumerate(others)]
    assert resize_obstacle(pod(*wanted), [*others, pod("2", "4Gi")], NODE) == obstacle


def test_only_cpu_and_memory_are_taken_from_the_allocation():
    desired = pods.read(
        {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": resources("2", "2Gi", **{"x.io/card": "1"})}]},
        }
    )
    allocated = with_resources(desired, {"c": Requests(requests={"cpu": "1"}, limits={"cpu": "1", "memory": "1Gi"})})
    assert allocated.spec.containers[0].resources.requests == {"x.io/card": "1", "cpu": "1"}
    assert allocated.spec.containers[0].resources.limits == {"x.io/card": "1", "cpu": "1", "memory": "1Gi"}
    assert with_resources(desired, {"c": desired.spec.containers[0].resources}) is desired


def test_the_same_amounts_in_other_words_are_not_a_resize():
    desired = pod("1000m", "1024Mi")
    assert with_resources(desired, {"c": Requests(**resources("1", "1Gi"))}) is desired


def running(*names):
    containers = [
        ObservedContainer(id=f"{name}0", name=name, sandbox="box", state=pb.CONTAINER_RUNNING) for name in names
    ]
    return newest_first([Sandbox(id="box", ready=True)], containers)


def planned(policies, actuated, **facts):
    container = {"name": "c", "resources": resources("1", "1Gi"), "resizePolicy": policies}
    of = pods.read({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}})
    known = {"c0": Requests(**resources(*actuated))}
    return plan(of, running("c"), Facts(actuated=known, resizing=True, **facts))


RESTART_FOR_MEMORY = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]


@pytest.mark.parametrize(
    ("policies", "actuated", "actions"),
    [
        pytest.param([], ("1", "1Gi"), [], id="nothing changed"),
        pytest.param([], ("2", "1Gi"), [UpdateContainer], id="no policy"),
        pytest.param(RESTART_FOR_MEMORY, ("2", "1Gi"), [UpdateContainer], id="only cpu changed"),
        pytest.param(RESTART_FOR_MEMORY, ("2", "2Gi"), [KillContainer, StartContainer], id="memory needs a restart"),
    ],
)
def test_the_resize_policy_decides_whether_a_container_is_restarted(policies, actuated, actions):
    assert [type(action) for action in planned(policies, actuated).actions] == actions


def test_a_failed_resize_is_tried_again_later():
    todo = planned([], ("2", "1Gi"), now=5.0, resize_held=7.0)
    assert (todo.actions, todo.wake_at) == ((), 7.0)


def test_containers_that_give_memory_are_resized_before_those_that_get_it():
    containers = [{"name": name, "resources": resources("1", "1Gi")} for name in ("small", "big")]
    of = pods.read({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}})
    known = {"small0": Requests(**resources("1", "1Mi")), "big0": Requests(**resources("1", "8Gi"))}
    todo = plan(of, running("small", "big"), Facts(actuated=known, resizing=True))
    assert [action.container.name for action in todo.actions] == ["big", "small"]


def test_a_container_that_starts_has_the_allocation():
    state = ResizeState()
    state.observe(pod("1", "1Gi"), running("c"), {})
    assert state.actuated == {"c0": Requests(**resources("1", "1Gi"))}
    assert state.complete(pod("1", "1Gi"), running("c"))
    assert not state.complete(pod("2", "1Gi"), running("c"))


async def test_an_allocation_outlives_the_kubelet(tmp_path):
    allocations = Allocations(tmp_path / "allocations")
    allocations.load()
    assert allocations.allocated(pod("1", "1Gi")) == pod("1", "1Gi")
    assert allocations.allocated(pod("2", "1Gi")) == pod("1", "1Gi")
    await allocations.record(pod("2", "1Gi"), {"c0": Requests(**resources("1", "1Gi"))})
    later = Allocations(tmp_path / "allocations")
    later.load()
    assert later.allocated(pod("3", "1Gi")) == pod("2", "1Gi")
    assert later.actuated("p") == {"c0": Requests(**resources("1", "1Gi"))}
    await later.forget("p")
    assert later.uids == set()
    assert list((tmp_path / "allocations").iterdir()) == []


def test_a_pod_that_was_never_resized_has_what_its_status_says(tmp_path):
    status = {"name": "c", "containerID": "x://1", "resources": resources("1", "1Gi")}
    desired = pods.read(
        {
            "metadata": {"name": "p", "uid": "p", "generation": 2},
            "spec": {"containers": [{"name": "c", "resources": resources("2", "1Gi")}]},
            "status": {"containerStatuses": [status]},
        }
    )
    allocated = Allocations(tmp_path).allocated(desired)
    assert allocated.spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}


# --- in a whole kubelet ----------------------------------------------------------------------------------------------


def container(cpu="100m", memory="64Mi", **more):
    return {"name": "c", "image": "i", "imagePullPolicy": "Never", "resources": resources(cpu, memory), **more}


async def resize(world, cpu, memory, name="p"):
    patch = {"spec": {"containers": [{"name": "c", "resources": resources(cpu, memory)}]}}
    return await world.api.patch(PODS, name, patch, "default", type_=PatchType.STRATEGIC, subresource="resize")


def condition(object_, type_):
    conditions = (object_ or {}).get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == type_), None)


def has(cpu):
    """Whether the container has this and no resize is under way."""

    def check(object_):
        status = (object_ or {}).get("status", {})
        (first,) = status.get("containerStatuses") or [{}]
        done = condition(object_, "PodResizeInProgress") is None and condition(object_, "PodResizePending") is None
        return done and first.get("resources", {}).get("requests", {}).get("cpu") == cpu

    return check


async def test_a_running_pod_is_resized(world):
    await world.make(containers=[container()])
    before = (await world.running())["status"]["containerStatuses"][0]
    assert before["resources"] == resources("100m", "64Mi")
    assert before["allocatedResources"] == {"cpu": "100m", "memory": "64Mi"}
    await resize(world, "200m", "128Mi")
    now = await world.until(has("200m"))
    after = now["status"]["containerStatuses"][0]
    assert after["allocatedResources"] == {"cpu": "200m", "memory": "128Mi"}
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert now["status"]["observedGeneration"] == now["metadata"]["generation"] == 2
    ((name, reported),) = world.runtime.updates
    assert (name, reported.cpu_shares, reported.cpu_quota, reported.memory_limit_in_bytes) == (
        "c",
        204,
        20000,
        128 << 20,
    )
    assert world.runtime.sandbox_updates[-1].resources.cpu_shares == 204
    started = await world.event("ResizeStarted")
    assert started.startswith("Pod resize started: ")
    assert json.loads(started.partition(": ")[2])["generation"] == 2
    await world.event("ResizeCompleted")


async def test_a_resize_may_restart_the_container(world):
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    await world.make(containers=[container(resizePolicy=policy)])
    await world.running()
    await resize(world, "200m", "128Mi")
    now = await world.until(lambda each: has("200m")(each) and each["status"]["containerStatuses"][0]["restartCount"])
    assert now["status"]["containerStatuses"][0]["resources"] == resources("200m", "128Mi")
    assert world.runtime.updates == []
    await world.event("Killing", "Container c resize requires restart")


async def test_a_resize_that_never_fits_changes_nothing(world):
    await world.make(containers=[container()])
    await world.running()
    await resize(world, "5000", "64Mi")
    now = await world.until(lambda each: condition(each, "PodResizePending"))
    pending = condition(now, "PodResizePending")
    assert (pending["status"], pending["reason"], pending["observedGeneration"]) == ("True", "Infeasible", 2)
    assert "Node didn't have enough capacity: cpu, requested: 5000000" in pending["message"]
    assert now["status"]["containerStatuses"][0]["resources"] == resources("100m", "64Mi")
    assert world.runtime.updates == []
    await world.event("ResizeInfeasible")
    await resize(world, "100m", "64Mi")
    await world.until(has("100m"))


async def test_a_deferred_resize_begins_when_another_pod_has_ended(world):
    node = await world.until(lambda each: each["status"].get("allocatable"), kind=NODES)
    cpus = int(node["status"]["allocatable"]["cpu"])
    most = f"{cpus * 1000 - 50}m"
    await world.make(containers=[container()])
    await world.running()
    await world.make("q", containers=[container()])
    await world.running("q")
    await resize(world, most, "64Mi")
    now = await world.until(lambda each: condition(each, "PodResizePending"))
    assert condition(now, "PodResizePending")["reason"] == "Deferred"
    await world.delete("q")
    await world.until(has(most))
    assert [name for name, _ in world.runtime.updates] == ["c"]


async def test_a_failed_call_is_reported_and_repeated(world):
    await world.make(containers=[container()])
    await world.running()
    world.runtime.fails["UpdateContainerResources"] = [Internal("the cgroup is stuck")]
    await resize(world, "200m", "64Mi")
    now = await world.until(lambda each: (condition(each, "PodResizeInProgress") or {}).get("reason") == "Error")
    assert condition(now, "PodResizeInProgress")["message"] == "the cgroup is stuck"
    assert now["status"]["containerStatuses"][0]["resources"] == resources("100m", "64Mi")
    await world.until(has("200m"))
    await world.event("ResizeError", "the cgroup is stuck")


async def test_a_memory_limit_below_the_usage_is_not_set(world):
    usage = pb.ContainerStats(memory=pb.MemoryUsage(usage_bytes=pb.UInt64Value(value=40 << 20)))
    world.runtime.stats["p"] = usage
    await world.make(containers=[container()])
    await world.running()
    await resize(world, "100m", "32Mi")
    now = await world.until(lambda each: (condition(each, "PodResizeInProgress") or {}).get("reason") == "Error")
    message = 'attempting to set container "c" memory limit (33554432) below current usage (41943040)'
    assert condition(now, "PodResizeInProgress")["message"] == f"cannot decrease memory limits: {message}"
    assert world.runtime.updates == []
    usage.memory.usage_bytes.value = 1 << 20
    now = await world.until(has("100m"))
    assert now["status"]["containerStatuses"][0]["resources"] == resources("100m", "32Mi")


async def test_a_resize_while_no_kubelet_runs_is_made_by_the_next_one(world):
    await world.make(containers=[container()])
    await world.running()
    await world.stop()
    await resize(world, "200m", "64Mi")
    world.start()
    now = await world.until(has("200m"))
    assert now["status"]["containerStatuses"][0]["restartCount"] == 0
    assert len(world.runtime.updates) == 1


async def test_an_interrupted_resize_is_finished_by_the_next_kubelet(world):
    await world.make(containers=[container()])
    await world.running()
    world.runtime.waits["UpdateContainerResources"] = asyncio.Event()
    await resize(world, "200m", "64Mi")
    await world.runtime.until("UpdateContainerResources")
    await world.stop()
    world.runtime.waits.clear()
    world.runtime.updates.clear()
    world.start()
    await world.until(has("200m"))
    assert [reported.cpu_shares for _, reported in world.runtime.updates] == [204]


async def test_nothing_is_recorded_for_pods_that_are_not_resized_and_records_go_with_their_pods(world):
    await world.make(containers=[container()])
    await world.running()
    directory = world.root / "allocations"
    assert not directory.exists() or not any(directory.iterdir())
    await resize(world, "200m", "64Mi")
    await world.until(has("200m"))
    assert len(list(directory.iterdir())) == 1
    await world.delete()
    assert not any(directory.iterdir())
