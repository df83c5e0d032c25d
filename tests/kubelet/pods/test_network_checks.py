"""How CHECKs of a runtime are reported, and when they are requested."""

import asyncio
import contextlib
import json

import pytest

from podwire.kubelet.pods.limits import RuntimeLimits
from podwire.kubelet.pods.network_checks import FAILED, RECOVERED, CheckResult, NetworkChecks, event, read
from podwire.kubelet.pods.observed import ObservedPod, Sandbox
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import NotFound

SECONDS = 30
NO = {"state": "failed", "message": "CNI plugin bridge failed CHECK: eth0 is down"}
OK = {"state": "ok"}
WELL = "The pod's network is as it was made again"


@pytest.mark.parametrize(
    ("reported", "before", "news"),
    [
        pytest.param(CheckResult("ok"), None, None, id="well from the first"),
        pytest.param(CheckResult("failed", "no route"), None, ("Warning", FAILED, "no route"), id="it fails"),
        pytest.param(CheckResult("failed", "no route"), "no route", None, id="it still fails"),
        pytest.param(CheckResult("failed", "no link"), "no route", ("Warning", FAILED, "no link"), id="another"),
        pytest.param(CheckResult("ok"), "no route", ("Normal", RECOVERED, WELL), id="it is well again"),
    ],
)  # fmt: skip
def test_only_new_findings_are_recorded(reported, before, news):
    assert event(reported, before) == news


@pytest.mark.parametrize("info", ["", "{}", "ok", "[1]", '{"state": 1}'])
def test_a_foreign_info_entry_of_the_same_name_is_ignored(info):
    assert read(info) is None


class Runtime:
    """Gives configured answers, by sandbox."""

    def __init__(self):
        self.info = {}
        self.asked = []

    async def call(self, _method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        assert request.verbose
        self.asked.append(request.pod_sandbox_id)
        await asyncio.sleep(0)
        if request.pod_sandbox_id not in self.info:
            raise NotFound("it is gone")
        found = self.info[request.pod_sandbox_id]
        return pb.PodSandboxStatusResponse(info={} if found is None else {"networkCheck": json.dumps(found)})


class Recorder:
    def __init__(self):
        self.reported = []

    def tell(self, pod, _type, reason, _message):
        self.reported.append((pod.name, reason))


class CheckedNode:
    def __init__(self):
        self.runtime, self.recorder = Runtime(), Recorder()
        self.pods = {letter: pods.read({"metadata": {"name": letter, "uid": letter}, "spec": {}}) for letter in "ab"}
        self.checks = NetworkChecks(self.runtime, self.recorder, self.pods.get, RuntimeLimits())
        self.checks.pods_synced.set()

    async def asked(self, count):
        async with asyncio.timeout(SECONDS):
            while len(self.runtime.asked) < count or self.checks._queue.qsize():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)


@pytest.fixture
async def node():
    made = CheckedNode()
    running = asyncio.create_task(made.checks.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_network_failure_and_its_end_are_recorded_once(node):
    for at, found in enumerate([OK, NO, NO, OK, OK, None], 1):
        node.runtime.info["s"] = found
        node.checks.check("a", "s")
        await node.asked(at)
    assert node.recorder.reported == [("a", FAILED), ("a", RECOVERED)]


async def test_a_new_sandbox_starts_with_no_findings(node):
    node.runtime.info = {"s1": NO, "s2": OK}
    for at, each in enumerate(("s1", "s2"), 1):
        node.checks.check("a", each)
        await node.asked(at)
    node.runtime.info["s2"] = NO
    node.checks.check("a", "s2")
    await node.asked(3)
    assert node.recorder.reported == [("a", FAILED), ("a", FAILED)]


async def test_removed_and_foreign_sandboxes_are_skipped(node):
    node.runtime.info = {"s": NO, "t": NO}
    for uid, sandbox in (("a", "gone"), ("nobody", "t"), ("b", "s")):
        node.checks.check(uid, sandbox)
    await node.asked(3)
    assert node.recorder.reported == [("b", FAILED)]


async def test_when_the_runtime_comes_pods_with_a_network_of_their_own_are_looked_at():
    node = CheckedNode()
    node.checks.pods_synced.clear()
    node.runtime.info = {"s": NO}
    seen = {
        "a": ObservedPod(sandboxes=(Sandbox(id="s", ready=True), Sandbox(id="old", ready=False))),
        "b": ObservedPod(sandboxes=(Sandbox(id="host", ready=True, host_network=True),)),
        "c": ObservedPod(sandboxes=(Sandbox(id="stopped", ready=False),)),
        "d": ObservedPod(),
    }
    node.checks.check_all(seen)
    running = asyncio.create_task(node.checks.run())
    await asyncio.sleep(0.05)
    assert node.runtime.asked == [], "the pods are not known yet"
    node.checks.pods_synced.set()
    await node.asked(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (node.runtime.asked, node.recorder.reported) == (["s"], [("a", FAILED)])
