"""Records of the runtime that are lost: damaged, emptied or removed while it runs, or before it is started again."""

import os
import shutil
from pathlib import Path

import pytest

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.protocols.cri import cri_pb2 as pb
from tests.eventually import eventually

LOSSES = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00 garbage"),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}
CGROUP = f"podwire-story-pod-{os.getpid()}"
"""A parent that the kubelet made, outside of that of the runtime; each worker has its own, and kills all in it."""


def lose(own, kind, ids, loss):
    for id_ in ids:
        LOSSES[loss](own.state / f"runtime/{kind}/{id_}/record.json")


def is_gone(pid):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


async def lost(cri):
    """The runtime's status about lost records."""
    conditions = (await cri("Status")).status.conditions
    return next((condition.message for condition in conditions if condition.type == "RecordsIntact"), "")


async def two_pods(cri):
    """A pod to harm and one to leave alone, each with a running container; the containers' ids and pids."""
    pods = [await cri.run(linux=pb.LinuxPodSandboxConfig(cgroup_parent=f"/{CGROUP}")), await cri.run()]
    ids = [await cri.start(pod) for pod in pods]
    return pods, ids, [await cri.pid(id_) for id_ in ids]


@pytest.fixture
def cgroup_parent():
    cgroups = KernelCgroups()
    cgroups.create(CGROUP)
    yield
    cgroups.kill(CGROUP)
    cgroups.remove(CGROUP)


@pytest.mark.usefixtures("cgroup_parent")
@pytest.mark.parametrize("kind", ["sandboxes", "containers", "both"])
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_restart_removes_what_a_lost_record_described_and_nothing_else(own, kubelet_of, kind, loss):
    own.start()
    async with kubelet_of(own) as cri:
        (victim, other), (container, kept), (pid, kept_pid) = await two_pods(cri)
        own.kill()
        if kind != "containers":
            lose(own, "sandboxes", [victim.id], loss)
        if kind != "sandboxes":
            lose(own, "containers", [container], loss)
        own.start()
        assert (await cri.status(kept)).state == pb.CONTAINER_RUNNING
        assert await cri.pid(kept) == kept_pid
        eventually(lambda: is_gone(pid), 10)
        sandboxes = {item.id for item in (await cri("ListPodSandbox")).items}
        assert sandboxes == ({other.id} if kind != "containers" else {victim.id, other.id})
        assert container not in {item.id for item in (await cri("ListContainers")).containers}
        assert (victim.id if kind != "containers" else container) in await lost(cri)
        again = await cri.start(await cri.run()) if kind != "containers" else await cri.start(victim, name="again")
        assert (await cri.status(again)).state == pb.CONTAINER_RUNNING
        await cri.remove_all()
        await cri("StopPodSandbox", pod_sandbox_id=victim.id)
        await cri("RemovePodSandbox", pod_sandbox_id=victim.id)
        assert own.leaks() == []
        assert own.leakcheck() == (0, [])
        kept_files = [path.name for path in (own.state / "runtime/damaged").glob("*")]
        assert len(kept_files) == (0 if loss in ("empty", "missing") else 2 if kind == "both" else 1)
        own.restart()
        assert await lost(cri) == ""
    assert own.stop() == 0
    assert "Traceback" not in own.log.read_text()


@pytest.mark.usefixtures("cgroup_parent")
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_running_runtime_goes_on_without_its_records(own, kubelet_of, loss):
    own.start()
    async with kubelet_of(own) as cri:
        (victim, other), (container, kept), (pid, _) = await two_pods(cri)
        lose(own, "sandboxes", [victim.id], loss)
        lose(own, "containers", [container], loss)
        assert (await cri.said(container, "echo here")) == "here\n"
        second = await cri.start(victim, name="second")
        await cri("StopContainer", container_id=container, timeout=0)
        assert is_gone(pid)
        if loss in ("garbage", "torn"):
            assert container in await lost(cri)
        await cri.remove(victim)
        assert (await cri.status(kept)).state == pb.CONTAINER_RUNNING
        assert second not in {item.id for item in (await cri("ListContainers")).containers}
        await cri.remove(other)
        assert own.leaks() == []
    assert own.stop() == 0
    assert "Traceback" not in own.log.read_text()


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_pod_whose_cached_attachment_is_lost_keeps_its_address(own, kubelet_of, loss):
    """GC at the start releases what nobody knows: a running pod is known by its record."""
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        container = await cri.start(pod)
        leased = own.leases()
        own.kill()
        [attachment] = (own.state / "cni/cache").glob("*.json")
        LOSSES[loss](attachment)
        own.start()
        assert (await cri.status(container)).state == pb.CONTAINER_RUNNING
        assert pod.id in await lost(cri)
        assert own.leases() == leased != []
        other = await cri.run()
        assert len(own.leases()) == 2
        await cri.remove(pod)
        await cri.remove(other)
        assert own.leases() == []
        assert own.leaks() == []
    assert own.stop() == 0


async def test_a_damaged_record_and_attachment_together_are_removed(own, kubelet_of):
    """Nothing is left but the namespace, the links and the lease: plugins release by the id."""
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        await cri.start(pod)
        own.kill()
        lose(own, "sandboxes", [pod.id], "garbage")
        [attachment] = (own.state / "cni/cache").glob("*.json")
        attachment.write_bytes(b"garbage")
        own.start()
        assert (await cri("ListPodSandbox")).items == []
        assert own.leases() == []
        assert own.leaks() == []
    assert own.stop() == 0


async def test_state_of_a_start_that_went_on_during_the_removal_is_removed(own, kubelet_of, tmp_path):
    """As of a start that its runtime did not survive: the OCI runtime made its state after the request to delete it."""
    states, mark = own.prefix / "run/podwire/crun", tmp_path / "once"
    program = tmp_path / "crun"
    program.write_text(
        f"""#!/bin/sh
case " $* " in
*" delete "*)
    {shutil.which("crun")} "$@"
    for id; do :; done
    [ -e {mark} ] || mkdir -p {states}/$id {mark}
    ;;
*) exec {shutil.which("crun")} "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    own.start(PATH=f"{tmp_path}:{os.environ['PATH']}")
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        await cri.start(pod)
        await cri.remove(pod)
        assert mark.exists()
        assert own.leaks() == []
