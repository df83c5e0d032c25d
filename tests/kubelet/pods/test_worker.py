"""One pod's life in a whole kubelet, between a real API server and a runtime in memory that fails as a test says."""

import asyncio
import socket

import pytest

from podwire.kubelet.pods.observed import UID
from podwire.kubelet.pods.sandbox_start import RUNTIME_CLASSES
from podwire.kubelet.pods.status_manager import PODS
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Internal, Unavailable
from podwire.protocols.k8sapi.status import ApiError, Reason


async def test_a_pod_runs_and_is_deleted(world):
    await world.make()
    status = (await world.running())["status"]
    assert status["podIP"] == "10.0.0.9"
    assert status["containerStatuses"][0]["containerID"].startswith("memory://")
    await world.delete()
    assert (world.runtime.sandboxes, world.runtime.containers) == ({}, {})


async def test_at_rest_nothing_is_written(world):
    await world.make()
    await world.running()
    await world.make("q")
    await world.running("q")
    before = len(world.line.patches)
    await world.api.patch(PODS, "p", {"metadata": {"labels": {"changed": "yes"}}}, "default")
    world.runtime.tell(next(iter(world.runtime.sandboxes)))
    await asyncio.sleep(0.3)
    assert len(world.line.patches) == before


async def test_a_start_needs_at_most_three_patches(world):
    await world.make()
    await world.running()
    assert len(world.line.patches) <= 3


async def test_a_failed_sandbox_is_recorded_and_retried(world):
    world.runtime.fails["RunPodSandbox"] = [Internal("the cable is loose")]
    await world.make()
    assert await world.event("FailedCreatePodSandBox") == "Failed to create pod sandbox: the cable is loose"
    await world.running()


async def test_a_pod_gets_the_handler_of_its_runtime_class(world):
    class_ = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sealed"}, "handler": "box"}
    await world.api.create(class_)
    await world.make(runtimeClassName="sealed")
    await world.running()
    await world.make("q")
    await world.running("q")
    assert sorted(sandbox.runtime_handler for sandbox in world.runtime.sandboxes.values()) == ["", "box"]


async def test_a_pod_waits_for_its_deleted_runtime_class(world):
    class_ = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sealed"}, "handler": "box"}
    world.runtime.fails["RunPodSandbox"] = [Internal("not yet")] * 100
    await world.api.create(class_)
    await world.make(runtimeClassName="sealed")
    await world.event("FailedCreatePodSandBox", "not yet")
    await world.api.delete(RUNTIME_CLASSES, "sealed")
    await world.event("FailedCreatePodSandBox", "failed to lookup RuntimeClass sealed: runtimeclasses")
    world.runtime.fails.clear()
    await world.api.create(class_)
    await world.running()


@pytest.mark.parametrize(
    ("call", "reason"),
    [("CreateContainer", "CreateContainerError"), ("StartContainer", "RunContainerError")],
    ids=["made", "started"],
)
async def test_a_failed_container_is_recorded_and_retried(world, call, reason):
    world.runtime.fails[call] = [Internal("out of luck")]
    await world.make()

    def reported(each):
        return each and each["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting") == {
            "reason": reason,
            "message": "out of luck",
        }

    await world.until(reported)
    await world.running()


async def test_an_unexpected_error_of_one_pod_does_not_affect_others(world, caplog):
    world.runtime.fails["RunPodSandbox"] = [ZeroDivisionError("nobody foresaw this")] * 3
    await world.make()
    await world.make("q")
    await world.running()
    await world.running("q")
    assert "cannot sync pod: unexpected error" in {record.message for record in caplog.records}


@pytest.mark.parametrize("call", ["RunPodSandbox", "CreateContainer", "StartContainer"])
async def test_a_pod_can_be_deleted_during_any_call(world, call):
    world.runtime.waits[call] = asyncio.Event()
    await world.make()
    await world.runtime.until(call)
    asyncio.get_running_loop().call_later(0.2, world.runtime.waits.pop(call).set)
    await world.delete()
    assert (world.runtime.sandboxes, world.runtime.containers) == ({}, {})


@pytest.mark.parametrize("port", [10250, None], ids=["its own", "of a program"])
async def test_a_kubelet_rejects_host_ports_on_which_the_node_listens(world, port):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = [{"containerPort": 1, "hostPort": port or listener.getsockname()[1]}]
        await world.make(containers=[{"name": "c", "image": "i", "imagePullPolicy": "Never", "ports": ports}])
        failed = await world.until(lambda pod: pod and pod["status"].get("phase") == "Failed")
    assert failed["status"]["reason"] == "NodePorts"
    assert "is in use by the node itself" in failed["status"]["message"]


async def test_a_pod_waits_for_the_resources_of_a_terminating_one(world):
    port = [{"name": "c", "image": "i", "imagePullPolicy": "Never", "ports": [{"containerPort": 1, "hostPort": 1}]}]
    await world.make("first", containers=port)
    await world.running("first")
    world.runtime.waits["StopPodSandbox"] = asyncio.Event()
    await world.api.delete(PODS, "first", "default", grace_seconds=0)
    await world.runtime.until("StopPodSandbox")
    await world.make("second", containers=port)
    await world.runtime.until_true(lambda: world.kubelet.pod_workers.find("default", "second") is not None)
    world.runtime.waits.pop("StopPodSandbox").set()
    await world.running("second")


@pytest.mark.parametrize("call", ["StopContainer", "StopPodSandbox", "RemovePodSandbox"])
@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError("a fault")], ids=["away", "a fault"])
async def test_an_end_is_tried_until_it_succeeds(world, call, error):
    await world.make()
    await world.running()
    world.runtime.fails[call] = [error, error]
    await world.delete()
    assert world.runtime.sandboxes == {}


async def test_a_failed_termination_is_recorded(world):
    await world.make()
    await world.running()
    world.runtime.fails["StopPodSandbox"] = [Unavailable("the CNI plugin is gone")]
    await world.delete()
    assert await world.event("FailedKillPod") == "error killing pod: the CNI plugin is gone"


async def test_a_refused_deletion_is_retried(world):
    await world.make()
    await world.running()
    world.line.refusals = [ApiError(Reason.INTERNAL_ERROR, "not now")] * 2
    await world.delete()


async def test_the_exit_code_is_reported_before_the_deletion(world):
    await world.make()
    await world.running()
    await world.delete()
    _, last = world.line.patches[-1]
    assert last["status"]["phase"] == "Succeeded"
    assert "terminated" in last["status"]["containerStatuses"][0]["state"]


async def test_a_pod_that_ends_gives_its_network_back_and_keeps_its_containers(world):
    await world.make(restartPolicy="Never")
    await world.running()
    world.runtime.ends("c", 3)
    ended = await world.until(lambda each: each and each["status"]["phase"] == "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    await world.runtime.until("StopPodSandbox")
    assert len(world.runtime.containers) == 1


async def test_a_pod_failed_by_another_client_keeps_its_reason(world):
    await world.make()
    await world.running()
    patch = {"status": {"phase": "Failed", "reason": "Evicted", "message": "no space"}}
    await world.api.patch(PODS, "p", patch, "default", subresource="status")
    await world.runtime.until("StopPodSandbox")
    ended = await world.until(
        lambda each: each and "terminated" in each["status"].get("containerStatuses", [{}])[0].get("state", {})
    )
    status = ended["status"]
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "no space")


async def test_an_unreadable_pod_does_not_affect_others(world, caplog):
    world.kubelet.pod_workers.present({"metadata": {"name": "odd", "uid": "x"}, "spec": {"containers": 7}})
    await world.make()
    await world.running()
    assert "cannot read pod" in {record.message for record in caplog.records}


async def test_orphaned_sandboxes_are_removed(world):
    await world.make()
    await world.running()
    sandbox = next(iter(world.runtime.sandboxes.values()))
    orphan = pb.PodSandboxStatus()
    orphan.CopyFrom(sandbox)
    orphan.id, orphan.metadata.uid, orphan.labels[UID] = "orphan", "nobody", "nobody"
    world.runtime.sandboxes["orphan"] = orphan
    world.runtime.tell("orphan")
    await world.runtime.until_true(lambda: "orphan" not in world.runtime.sandboxes)
    assert sandbox.id in world.runtime.sandboxes


async def test_a_runtime_that_fails_to_stop_containers_together_is_asked_again_soon(world, caplog):
    """Containers are stopped in a task group, whose error is an exception group."""
    caplog.set_level("INFO", "podwire.kubelet.pods.worker")
    containers = [{"name": name, "image": "i", "imagePullPolicy": "Never"} for name in ("one", "two")]
    world.runtime.fails["StopContainer"] = [Unavailable("restarting"), Unavailable("restarting")]
    await world.make(containers=containers, activeDeadlineSeconds=1)
    await world.until(lambda pod: pod and pod["status"].get("phase") == "Failed")
    assert world.runtime.calls.count("StopContainer") == 4
    assert [record.message for record in caplog.records if "cannot sync pod" in record.message] == [
        "cannot sync pod: runtime call failed"
    ]
