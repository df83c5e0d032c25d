"""Probes and hooks that run commands in real containers."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from podwire.kubelet.pods import observed
from podwire.kubelet.pods.hooks import HookFailed, run_hook
from podwire.kubelet.probes import NodeProber, Probes
from podwire.objects import pods
from podwire.objects.containers import ExecAction, Hook
from podwire.transports.clock import SystemClock
from podwire.transports.probe_sockets import ProbeSockets
from tests.eventually import eventually_async

PATIENCE = 60.0
UNHURRIED = {"periodSeconds": 1, "timeoutSeconds": 30}


class PodTrace:
    """A container, and a kubelet's view of it."""

    def __init__(self, cri, id_):
        self.cri, self.id = cri, id_
        self.prober = NodeProber(cri._client, ProbeSockets())
        self.events: list[str] = []
        self._moved = asyncio.Condition()
        self.probes = Probes(self.prober, SystemClock(), self._changed, self._record)
        self._notices: set[asyncio.Task[None]] = set()

    async def follow(self, **probes):
        container = {"name": "main", **{f"{kind}Probe": probe for kind, probe in probes.items()}}
        self.pod = pods.read(
            {"metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": {"containers": [container]}}
        )
        self.seen = observed.observe_container(await self.cri.status(self.id), "")
        self.probes.follow(self.pod, {"main": self.seen}, ())

    @property
    def ready(self):
        return self.probes.ready(self.pod.spec.containers[0], self.seen)

    @property
    def unhealthy(self):
        return self.probes.unhealthy(self.seen)

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE), self._moved:
            await self._moved.wait_for(condition)

    def _changed(self, _uid):
        self._notice()

    def _record(self, _pod, _container, _type, reason, message):
        self.events.append(f"{reason}: {message}")
        self._notice()

    def _notice(self):
        async def notice():
            async with self._moved:
                self._moved.notify_all()

        task = asyncio.create_task(notice())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)


@pytest.fixture
async def story(cri):
    found = PodTrace(cri, await cri.start(await cri.run()))
    running = asyncio.create_task(found.probes.run())
    yield found
    running.cancel()
    await asyncio.wait([running])


def running_in(id_, word):
    """Processes of a container whose command line has a word in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (path / "cmdline").read_bytes().decode() and id_ in (path / "cgroup").read_text():
                found.append(int(path.name))
    return found


def command(text, **numbers):
    return {"exec": {"command": ["sh", "-c", text]}, **UNHURRIED, **numbers}


async def test_an_exec_probe_sets_and_clears_readiness(story, cri):
    await story.follow(readiness=command("cat /tmp/ready", failureThreshold=1))
    await story.until(lambda: story.events)
    assert "can't open '/tmp/ready'" in story.events[0]
    assert story.events[0].startswith("Unhealthy: Readiness probe failed: ")
    assert not story.ready
    await cri.said(story.id, "touch /tmp/ready")
    await story.until(lambda: story.ready)
    await cri.said(story.id, "rm /tmp/ready")
    await story.until(lambda: not story.ready)
    assert story.unhealthy is None


async def test_a_hanging_liveness_command_is_killed_and_counts_as_failure(story):
    await story.follow(liveness=command("sleep 5678; true", timeoutSeconds=1, failureThreshold=2))
    await story.until(lambda: story.unhealthy)
    failed = 'Unhealthy: Liveness probe failed: command timed out: "sh -c sleep 5678; true" timed out after 1s'
    assert story.events.count(failed) == 2
    await eventually_async(lambda: not running_in(story.id, "5678"), within=PATIENCE)


async def test_a_probe_with_a_gigabyte_of_output_fails(story):
    await story.follow(liveness=command("yes 8765 | head -c 1000000000", failureThreshold=1))
    await story.until(lambda: story.unhealthy)
    assert len(story.events[0]) < 20_000
    await eventually_async(lambda: not running_in(story.id, "8765"), within=PATIENCE)


async def test_a_probe_of_a_stopped_container_is_unknown(story, cri):
    await story.follow(liveness=command("true", failureThreshold=100))
    await cri("StopContainer", container_id=story.id, timeout=0)
    await story.until(lambda: any("unknown state" in event for event in story.events))
    assert (
        "Liveness probe errored and resulted in unknown state: rpc error: code = FailedPrecondition" in story.events[-1]
    )


def hook(text):
    return Hook(exec=ExecAction(command=("sh", "-c", text)))


async def test_a_hook_runs_in_its_container_or_reports_the_reason(story, cri):
    await story.follow()
    target = (story.pod, story.pod.spec.containers[0], story.id, (), story.prober)
    await run_hook(hook("echo hello > /tmp/hello"), *target, 30.0)
    assert await cri.said(story.id, "cat /tmp/hello") == "hello\n"
    with pytest.raises(HookFailed, match='exited with 7: , message: "so what'):
        await run_hook(hook("echo so what; exit 7"), *target, 30.0)
    with pytest.raises(HookFailed, match=r"not finished within 0\.5 s"):
        await run_hook(hook("sleep 6789; true"), *target, 0.5)
    await eventually_async(lambda: not running_in(story.id, "6789"), within=PATIENCE)
