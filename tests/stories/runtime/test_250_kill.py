"""kill -9 of the runtime at every step of its work, and of what it depends on."""

import asyncio
import base64
import contextlib
import json
import os
import random
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

import podwire.cluster.runtime  # noqa: F401 - declares the failpoints
from podwire.failpoints import KNOWN
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import RpcError
from tests.eventually import eventually_async
from tests.stories.runtime.support import NETWORK

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

CROWD = 9
"""Pods that stand by; with the one that is looked at closely they are ten."""

POINTS = sorted(item for item in KNOWN if item.startswith("runtime."))
SAMPLE = POINTS if SOAK else sorted(random.Random(SEED).sample(POINTS, 4))


async def life(cri, name):
    """All calls of a pod's life; ends with the first that fails."""
    pod = await cri.run(cri.pod_config(name))
    id_ = await cri.start(pod)
    await cri("StopContainer", container_id=id_, timeout=1)
    await cri("RemoveContainer", container_id=id_)
    await cri.remove(pod)


def numbers(log):
    """The count that the container wrote to its log."""
    return [int(line.split()[-1]) for line in Path(log).read_text().splitlines()]


def lives(pid):
    return Path(f"/proc/{pid}").exists()


async def settle(cri):
    """As a kubelet does after a restart: stop and remove all that is listed, until that is nothing."""

    async def gone():
        with contextlib.suppress(RpcError):
            await cri.remove_all()
        return not (await cri("ListPodSandbox")).items

    await eventually_async(gone, 20)


LATE = """#!/bin/sh
input=$(cat)
if [ $CNI_COMMAND = ADD ] && [ -e "$0.slow" ]; then
    : >"$0.begun"
    setsid sh -c 'while [ ! -e "$0.open" ]; do sleep 0.05; done' "$0"
fi
printf '%s' "$input" | /usr/lib/cni/bridge
"""


async def test_an_add_does_not_go_on_after_the_runtime_that_called_it(own, kubelet_of):
    """It would take a lease after the DEL of the next runtime, and nobody would ever release it."""
    programs = own.prefix / "opt/cni/bin"
    programs.mkdir(parents=True)
    late = programs / "late"
    late.write_text(LATE)
    late.chmod(0o755)
    own.plugins = [programs, *own.plugins]
    own.configure({**NETWORK, "plugins": [{**NETWORK["plugins"][0], "type": "late"}]})
    own.start()
    async with kubelet_of(own) as cri:
        kept = await cri.run()
        slow, begun, gate = (Path(f"{late}.{name}") for name in ("slow", "begun", "open"))
        slow.touch()
        running = asyncio.create_task(cri.refused("RunPodSandbox", config=cri.pod_config("victim")))
        await eventually_async(begun.exists, 10)
        own.kill()
        await running
        slow.unlink()
        own.start()
        gate.touch()
        assert [line for line in own.processes().values() if str(late) in line] == []
        assert own.leases() == [kept.ip]
        assert "killed plugin processes of a runtime that died" in own.log.read_text()
        await cri.run(cri.pod_config("victim"))
        await settle(cri)
    assert own.stop() == 0
    assert own.leaks() == []


@pytest.mark.parametrize("point", SAMPLE)
async def test_a_killed_runtime_continues_where_it_was(own, kubelet_of, point):
    own.start()
    async with kubelet_of(own) as cri:
        kept = await cri.run()
        id_ = await cri.start(kept, "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done")
        short = await cri.start(kept, "sleep 0.5; exit 42", name="short")
        pid = await cri.pid(id_)
        crowd = [await cri.start(await cri.run()) for _ in range(CROWD)]
        pids = [await cri.pid(item) for item in crowd]
        own.restart(PODWIRE_FAILPOINTS=f"{point}=kill")
        with contextlib.suppress(RpcError):
            await life(cri, "victim")
        assert own.wait() == -signal.SIGKILL, f"{point} was not passed"
        await asyncio.sleep(0.5)
        own.start()
        status = await cri.status(id_)
        assert (status.state, await cri.pid(id_)) == (pb.CONTAINER_RUNNING, pid)
        assert [await cri.pid(item) for item in crowd] == pids
        assert all(map(lives, pids)), "no container lost its process"
        assert (await cri.ended(short)).exit_code == 42
        assert (await cri("PodSandboxStatus", pod_sandbox_id=kept.id)).status.network.ip == kept.ip
        before = numbers(status.log_path)
        await eventually_async(lambda: numbers(status.log_path) > before)
        await life(cri, "next")
        ready = pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        names = [item.metadata.name for item in (await cri("ListPodSandbox", filter=ready)).items]
        assert len(names) == len(set(names))
        await settle(cri)
    assert own.leakcheck() == (0, [])
    assert own.stop() == 0
    assert own.leaks() == []
    assert "Traceback" not in (log := own.log.read_text()), log[-4000:]
    logged = numbers(status.log_path)
    assert logged == list(range(1, len(logged) + 1)), "lines of the log are missing"


async def test_a_retry_after_a_kill_gets_a_pod(own, kubelet_of):
    own.start(PODWIRE_FAILPOINTS="runtime.sandbox-ready=kill")
    async with kubelet_of(own) as cri:
        config = cri.pod_config("again")
        await cri.refused("RunPodSandbox", config=config)
        own.wait()
        own.start()
        first = (await cri("RunPodSandbox", config=config)).pod_sandbox_id
        assert [item.id for item in (await cri("ListPodSandbox")).items] == [first]
        assert len(own.leases()) == 1
        await cri.remove_all()
    own.stop()
    assert own.leaks() == []


async def test_the_next_start_finishes_an_interrupted_stop(own, kubelet_of):
    """The caller sees that the sandbox is not ready, and may never ask again."""
    own.start(PODWIRE_FAILPOINTS="runtime.cni-deleted=kill")
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        await cri.start(pod)
        await cri.refused("StopPodSandbox", pod_sandbox_id=pod.id)
        own.wait()
        own.start()
        assert (await cri("PodSandboxStatus", pod_sandbox_id=pod.id)).status.state == pb.SANDBOX_NOTREADY
        held = [*(own.state / "cni/cache").iterdir(), *(own.prefix / "run/netns").iterdir(), *own.leases()]
        assert held == []
        await cri.remove_all()
    own.stop()
    assert own.leaks() == []


async def test_a_clean_stop_leaves_pods_running(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        pid = await cri.pid(id_)
        assert own.stop() == 0
        assert lives(pid)
        own.start()
        assert await cri.pid(id_) == pid
        assert await cri.said(id_, "echo", "here") == "here\n"
        await cri.remove(pod)
    own.stop()
    assert own.leaks() == []


async def test_a_restarted_runtime_recognizes_a_container_without_keeping_its_secrets(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        config = cri.container_config("sh", "-c", "sleep 1000", "--password=hunter2")
        config.envs.add(key="PASSWORD", value=b"hunter2")
        id_ = await cri.create(pod, config)
        own.restart()
        again = await cri("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        assert again.container_id == id_
        config.envs[0].value = b"another"
        refusal = await cri.refused("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        assert refusal.name == "ALREADY_EXISTS"
        await cri("StartContainer", container_id=id_)
        assert await cri.said(id_, "echo $PASSWORD") == "hunter2\n"
        directory = own.state / "runtime/containers" / id_
        record = json.loads((directory / "record.json").read_text().splitlines()[-1])["record"]
        assert b"hunter2" not in base64.b64decode(record["config"])
        assert stat.S_IMODE((directory / "config.json").stat().st_mode) == 0o600
        await cri.remove(pod)
    own.stop()


async def test_a_second_runtime_on_the_same_prefix_is_refused(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        podwire = Path(sys.executable).with_name("podwire")
        words = [podwire, "runtime", "--prefix", own.prefix, "--socket", own.prefix / "other.sock"]
        child = await asyncio.create_subprocess_exec(*own.space.command(*words), stderr=asyncio.subprocess.PIPE)
        _, output = await asyncio.wait_for(child.communicate(), 20)
        assert child.returncode == 1
        assert b"another podwire runtime" in output
        assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING
        await cri.remove(pod)


async def test_a_deleted_network_namespace_is_noticed_and_the_pod_removable(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        path = own.prefix / "run/netns" / f"podwire-{pod.id}"
        own.space.output("umount", path)
        path.unlink()
        own.restart()
        status = (await cri("PodSandboxStatus", pod_sandbox_id=pod.id)).status
        assert (status.state, status.network.ip) == (pb.SANDBOX_NOTREADY, "")
        await cri.remove(pod)
    own.stop()
    assert own.leaks() == []


async def test_a_container_without_its_shim_ends_as_unknown(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod, "sleep 1000")
        pid = await cri.pid(id_)
        (shim,) = [process for process, line in own.processes().items() if "podwire-shim" in line and " run " in line]
        os.kill(shim, signal.SIGKILL)
        await asyncio.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = await cri.ended(id_)
        assert (status.exit_code, status.reason) == (255, "Unknown")
        await cri.remove(pod)
    own.stop()
    assert own.leaks() == []


async def test_a_damaged_record_affects_only_its_own_sandbox(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod, lost = await cri.run(), await cri.run()
        id_ = await cri.start(pod)
        own.kill()
        (own.state / "runtime/sandboxes" / lost.id / "record.json").write_bytes(b'{"id": "to')
        own.start()
        assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING
        assert [item.id for item in (await cri("ListPodSandbox")).items] == [pod.id]
        assert not (own.prefix / "run/netns" / f"podwire-{lost.id}").exists()
        assert own.leases() == [pod.ip]
        assert own.leakcheck() == (0, [])
        [kept] = (own.state / "runtime/damaged").iterdir()
        assert kept.read_bytes() == b'{"id": "to'
        await cri.remove(pod)
