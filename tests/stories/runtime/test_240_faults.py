"""Plugins that hang, lie or are not there; a disk without space."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from podwire.protocols.cri import cri_pb2 as pb

FAKE = {"cniVersion": "1.0.0", "name": "story", "plugins": [{"type": "fake"}]}
GOOD = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "10.9.0.2/24"}]}


@pytest.fixture
def plugin(own):
    """Writes the only plugin of the network, a shell script; `$CNI_COMMAND` is its verb."""
    directory = own.prefix / "opt/cni/bin"
    directory.mkdir(parents=True)
    own.plugins = [directory]
    own.configure(FAKE)

    def write(text):
        fresh = directory / ".fresh"
        fresh.write_text(f"#!/bin/sh\ncat > /dev/null\n{text}\n")
        fresh.chmod(0o755)
        fresh.rename(directory / "fake")

    return write


def answering(add="", delete=""):
    """A plugin that does this for each verb."""
    good = f"echo '{json.dumps(GOOD)}'"
    return f'case "$CNI_COMMAND" in ADD) {add or good} ;; DEL) {delete or ":"} ;; esac'


@pytest.mark.parametrize(
    ("add", "words"),
    [
        pytest.param("echo 'this is not JSON'", "invalid JSON", id="garbage"),
        pytest.param(
            'echo \'{"cniVersion": "1.0.0", "code": 101, "msg": "no space here"}\'; exit 1', "no space", id="no"
        ),
        pytest.param("exit 3", "exit code 3", id="a wordless end"),
        pytest.param("kill -9 $$", "signal 9", id="killed"),
        pytest.param('echo \'{"cniVersion": "1.0.0"}\'', "no address", id="no address"),
        pytest.param("head -c 5000000 /dev/zero", "fake", id="far too many words"),
    ],
)
async def test_a_failing_plugin_is_named_and_nothing_is_left(own, kubelet_of, plugin, add, words):
    plugin(answering(add))
    own.start()
    async with kubelet_of(own) as cri:
        error = await cri.refused("RunPodSandbox", config=cri.pod_config("victim"))
        assert "fake" in str(error)
        assert words in str(error)
        assert list((await cri("ListPodSandbox")).items) == []
        assert own.leaks() == []
        plugin(answering())
        pod = await cri.run(cri.pod_config("victim"))
        assert pod.ip == "10.9.0.2"
        await cri.remove(pod)
    assert own.stop() == 0
    assert own.leaks() == []


async def test_a_failed_teardown_is_retried_until_it_succeeds(own, kubelet_of, plugin):
    plugin(answering("exit 1", "exit 1"))
    own.start()
    async with kubelet_of(own) as cri:
        await cri.refused("RunPodSandbox", config=cri.pod_config("victim"))
        (row,) = (await cri("ListPodSandbox")).items
        assert row.state == pb.SANDBOX_NOTREADY
        assert "fake" in str(await cri.refused("StopPodSandbox", pod_sandbox_id=row.id))
        assert "fake" in str(await cri.refused("RemovePodSandbox", pod_sandbox_id=row.id))
        own.restart()
        assert [item.id for item in (await cri("ListPodSandbox")).items] == [row.id]
        plugin(answering())
        await cri("StopPodSandbox", pod_sandbox_id=row.id)
        await cri("RemovePodSandbox", pod_sandbox_id=row.id)
    assert own.stop() == 0
    assert own.leaks() == []


async def test_a_retry_after_a_timeout_gets_the_pod_of_the_first_call(own, kubelet_of, plugin):
    plugin(answering(f"sleep 1; echo '{json.dumps(GOOD)}'"))
    own.start()
    async with kubelet_of(own) as cri:
        config = cri.pod_config("slow")
        begun = time.monotonic()
        error = await cri.refused("RunPodSandbox", config=config, seconds=0.3)
        assert error.code == 4
        pod = await cri.run(config)
        assert time.monotonic() - begun < 5
        assert [item.id for item in (await cri("ListPodSandbox")).items] == [pod.id]
        await cri.remove(pod)
    own.stop()
    assert own.leaks() == []


async def test_a_missing_network_or_plugin_is_a_condition(own, kubelet_of, plugin):
    own.start()
    async with kubelet_of(own) as cri:

        async def network():
            conditions = (await cri("Status")).status.conditions
            return next(condition for condition in conditions if condition.type == "NetworkReady")

        condition = await network()
        assert (condition.status, condition.reason) == (False, "NetworkPluginNotReady")
        assert "fake" in condition.message
        assert "fake" in str(await cri.refused("RunPodSandbox", config=cri.pod_config()))
        (own.prefix / "etc/cni/net.d/10-story.conflist").unlink()
        assert "no network" in (await network()).message
        assert (await cri.refused("RunPodSandbox", config=cri.pod_config())).code == 14
        own.configure(FAKE)
        plugin(answering())
        assert (await network()).status
        await cri.run()
        await cri.remove_all()
    own.stop()
    assert own.leaks() == []


def small_disk(own):
    """The runtime's state on a file system with little space; its images go there too."""
    held = own.state / "images"
    own.space.output("mount", "--bind", held, "/mnt")
    own.space.output("mount", "-t", "tmpfs", "-o", "size=24m,mode=0755", "none", own.state)
    own.space.output("cp", "-a", "/mnt", held)
    own.space.output("umount", "/mnt")


async def test_a_full_disk_refuses_new_pods_and_lets_old_ones_go(own, kubelet_of):
    small_disk(own)
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        other = await cri.create(pod, cri.container_config(name="other"))
        own.space.output("sh", "-c", f"cat /dev/zero > {own.state}/filler 2> /dev/null || true")
        assert (await cri.refused("RunPodSandbox", config=cri.pod_config("late"))).code == 8
        assert (
            await cri.refused("CreateContainer", pod_sandbox_id=pod.id, config=cri.container_config(name="x"))
        ).code == 8
        assert [item.id for item in (await cri("ListPodSandbox")).items] == [pod.id]
        await cri("StopContainer", container_id=id_, timeout=2)
        assert (await cri.status(id_)).state == pb.CONTAINER_EXITED
        await cri("RemoveContainer", container_id=other)
        own.space.output("rm", own.state / "filler")
        again = await cri.run(cri.pod_config("late"))
        await cri.start(again)
        own.restart()
        assert (await cri.status(id_)).state == pb.CONTAINER_EXITED
        await cri.remove(again)
        await cri.remove(pod)
        assert own.leakcheck() == (0, [])
    own.stop()


async def test_pods_can_be_removed_while_the_disk_is_full(own, kubelet_of):
    small_disk(own)
    own.start()
    async with kubelet_of(own) as cri:
        pods = [await cri.run() for _ in range(2)]
        for pod in pods:
            await cri.start(pod)
        own.space.output("sh", "-c", f"cat /dev/zero > {own.state}/filler 2> /dev/null || true")
        for pod in pods:
            await cri.remove(pod)
        assert own.leakcheck() == (0, [])
        assert own.leases() == []
    own.stop()


async def test_a_runtime_is_started_on_a_full_disk_and_lets_pods_go(own, kubelet_of):
    small_disk(own)
    own.start()
    async with kubelet_of(own) as cri:
        pods = [await cri.run() for _ in range(3)]
        ids = [await cri.start(pod) for pod in pods]
        pid = await cri.pid(ids[0])
        own.kill()
        own.space.output("sh", "-c", f"cat /dev/zero > {own.state}/filler 2> /dev/null || true")
        own.start()
        assert (await cri.status(ids[0])).state == pb.CONTAINER_RUNNING
        assert await cri.pid(ids[0]) == pid
        await cri("StopContainer", container_id=ids[0], timeout=2)
        await cri("RemoveContainer", container_id=ids[0])
        await cri("StopPodSandbox", pod_sandbox_id=pods[0].id)
        await cri("RemovePodSandbox", pod_sandbox_id=pods[0].id)
        await cri("StopPodSandbox", pod_sandbox_id=pods[1].id)
        own.restart()
        states = {item.id: item.state for item in (await cri("ListPodSandbox")).items}
        assert states == {pods[1].id: pb.SANDBOX_NOTREADY, pods[2].id: pb.SANDBOX_READY}
        await cri("RemovePodSandbox", pod_sandbox_id=pods[1].id)
        await cri.remove(pods[2])
        assert own.leases() == []
        assert own.leaks() == []
        own.space.output("rm", own.state / "filler")
        await cri.remove(await cri.run())
    assert own.stop() == 0
    assert "Traceback" not in own.log.read_text()


def files(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_twenty_pods_at_once_come_and_go(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pods = await asyncio.gather(*(cri.run() for _ in range(20)))
        assert len({pod.ip for pod in pods}) == 20
        ids = await asyncio.gather(*(cri.start(pod) for pod in pods))
        before = files(own.pid)
        await asyncio.gather(*(cri.exec(id_, "true") for id_ in ids))
        await asyncio.gather(*(cri.remove(pod) for pod in pods))
        assert files(own.pid) <= before, "descriptors leak"
    assert own.stop() == 0
    assert own.leaks() == []
