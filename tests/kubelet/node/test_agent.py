"""A node agent against a real API server, and against one that is not there."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.node import NodeAgent, NodeLimits, NodeSettings, Readiness
from podwire.kubelet.node.agent import NODES
from podwire.kubelet.node.lease import LEASES, NAMESPACE
from podwire.kubelet.node.settings import DEFAULT_LIMITS
from podwire.linux.machine import Facts, FreeResources
from podwire.objects.nodes import ContainerImage
from podwire.objects.times import parse
from podwire.protocols.k8sapi.client_side import Client, PatchType, Unreachable
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
GIB = 1024**3


class SmallMachine:
    """Tests change what is left of it."""

    def __init__(self) -> None:
        self.boot = "boot-1"
        self.memory = 4 * GIB

    def facts(self):
        return Facts(
            cpus=2,
            memory=8 * GIB,
            swap=0,
            hugepages=(("2Mi", 0),),
            kernel="6.18",
            os_image="Test Linux",
            architecture="amd64",
            machine_id="m",
            system_uuid="s",
            boot_id=self.boot,
        )

    def left(self, path):
        return FreeResources(memory=self.memory, disk=GIB, disk_size=GIB, inodes=9, inodes_size=9, pids=9, pids_size=9)

    def addresses(self):
        return ()


class Line:
    """The way to the server, which tests may cut; remembers what is asked."""

    def __init__(self, http) -> None:
        self._http = http
        self.cut = False
        self.asked = []

    async def request(self, method, path, **options):
        self.asked.append((method, path))
        if self.cut:
            raise Unreachable("cut")
        return await self._http.request(method, path, **options)

    async def stream(self, method, path, **options):
        if self.cut:
            raise Unreachable("cut")
        return await self._http.stream(method, path, **options)


class Bench:
    """An agent, and all that it was given."""

    def __init__(self, server, limits=DEFAULT_LIMITS, **settings) -> None:
        self.line = Line(LoopbackHttp(server.assembled.server.handle, ADMIN))
        self.machine = SmallMachine()
        self.reported = []
        self.settings = NodeSettings(**{"name": "n1", "addresses": ("10.0.0.2",), **settings})
        recorder = SimpleNamespace(tell=lambda _about, *event: self.reported.append(event))
        self.agent = NodeAgent(Client(self.line), SystemClock(), self.machine, self.settings, recorder, limits)
        self.agent.set_runtime_version("podwire", "1")

    @contextlib.asynccontextmanager
    async def at_work(self):
        task = asyncio.create_task(self.agent.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def reasons(self):
        return [reason for _, reason, _ in self.reported]


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
def api(server):
    return Client(LoopbackHttp(server.assembled.server.handle, ADMIN))


@pytest.fixture
def bench(server, limits):
    bench = Bench(server, limits)
    bench.agent.set_runtime(True)
    return bench


@pytest.fixture
def limits():
    """Intervals of the agent; `hurried` overrides them."""
    return DEFAULT_LIMITS


HURRIED = NodeLimits(lease_period=0.05, backoff=(0.01, 0.05))
hurried = pytest.mark.parametrize("limits", [HURRIED], ids=["hurried"])
"""Shortens all intervals."""


async def soon(event):
    async with asyncio.timeout(30):
        await event


async def find(api, kind, name, namespace=""):
    try:
        return await api.get(kind, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def condition(node, type_="Ready"):
    return next(condition for condition in node["status"]["conditions"] if condition["type"] == type_)


async def test_a_ready_node_is_registered_in_one_request(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        assert [item for item in bench.line.asked if "nodes" in item[1]][:1] == [("POST", "/api/v1/nodes")]
        assert not any(method == "PATCH" for method, _ in bench.line.asked)
        node = await api.get(NODES, "n1")
        assert condition(node)["status"] == "True"
        assert "taints" not in node["spec"]
        assert bench.agent.node.name == "n1"
    assert bench.reasons == [
        "Starting",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ]


async def test_a_node_reports_not_ready_and_then_ready(server, api):
    bench = Bench(server)
    async with bench.at_work():
        node = await eventually_async(lambda: find(api, NODES, "n1"))
        assert condition(node)["message"] == "container runtime status check may not have completed yet"
        assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        bench.agent.set_runtime(*Readiness(True))
        await soon(bench.agent.ready())
        assert condition(await api.get(NODES, "n1"))["reason"] == "KubeletReady"


async def test_a_failing_runtime_is_reported_at_once(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        bench.agent.set_runtime(False, "KubeletNotReady", "container runtime is down")

        async def failed():
            return condition(await api.get(NODES, "n1"))["message"] == "container runtime is down"

        await eventually_async(failed)
        assert bench.reasons[-1] == "NodeNotReady"


@hurried
async def test_the_lease_is_the_nodes_own_and_is_renewed(bench, api):
    async with bench.at_work():
        first = await eventually_async(lambda: find(api, LEASES, "n1", NAMESPACE))
        node = await api.get(NODES, "n1")
        assert first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

        async def renewed():
            lease = await api.get(LEASES, "n1", NAMESPACE)
            return parse(lease["spec"]["renewTime"]) > parse(first["spec"]["renewTime"])

        await eventually_async(renewed)


@hurried
async def test_a_lease_that_was_taken_or_deleted_is_restored(bench, api):
    async with bench.at_work():
        await eventually_async(lambda: find(api, LEASES, "n1", NAMESPACE))
        await api.patch(LEASES, "n1", {"spec": {"holderIdentity": "thief"}}, NAMESPACE)

        async def taken_back():
            lease = await find(api, LEASES, "n1", NAMESPACE)
            return lease is not None and lease["spec"]["holderIdentity"] == "n1"

        await eventually_async(taken_back)
        await api.delete(LEASES, "n1", NAMESPACE)
        await eventually_async(taken_back)


@hurried
async def test_a_node_that_is_deleted_is_registered_again(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        before = await api.get(NODES, "n1")
        await eventually_async(lambda: find(api, LEASES, "n1", NAMESPACE))
        await api.delete(NODES, "n1")

        async def again():
            node = await find(api, NODES, "n1")
            return node is not None and node["metadata"]["uid"] != before["metadata"]["uid"] and node

        node = await eventually_async(again)
        assert condition(node)["status"] == "True"

        async def owned():
            lease = await api.get(LEASES, "n1", NAMESPACE)
            return lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

        await eventually_async(owned)


async def test_a_node_that_was_there_is_taken_over(server, api):
    first = Bench(server, pod_cidrs=("10.1.0.0/24",))
    first.agent.set_runtime(True)
    async with first.at_work():
        await soon(first.agent.ready())
    await api.patch(NODES, "n1", {"metadata": {"labels": {"zone": "b"}}, "spec": {"unschedulable": True}})
    again = Bench(server, pod_cidrs=("10.2.0.0/24",), labels={"rack": "a"}, addresses=("10.0.0.3", "fd00::3"))
    again.machine.boot = "boot-2"
    again.agent.set_runtime(True)
    async with again.at_work():
        await soon(again.agent.ready())
        node = await api.get(NODES, "n1")
    assert node["spec"] == {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "unschedulable": True}
    assert {"zone": "b", "rack": "a"}.items() <= node["metadata"]["labels"].items()
    internal = [address["address"] for address in node["status"]["addresses"] if address["type"] == "InternalIP"]
    assert internal == ["10.0.0.3", "fd00::3"]
    assert again.reasons == ["Starting", "Rebooted"]


@hurried
async def test_a_server_that_is_not_there_yet_is_waited_for(bench, api):
    bench.line.cut = True
    async with bench.at_work():

        async def tried():
            return len(bench.line.asked) >= 3

        await eventually_async(tried)
        assert await find(api, NODES, "n1") is None
        bench.line.cut = False
        await soon(bench.agent.ready())
        assert await find(api, NODES, "n1")


@hurried
async def test_after_an_outage_the_newest_status_is_sent(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        bench.line.cut = True
        bench.agent.set_runtime(False, "KubeletNotReady", "down for a moment")
        bench.agent.set_runtime(False, "KubeletNotReady", "down for good")
        before = len(bench.line.asked)

        async def tried():
            return len(bench.line.asked) >= before + 3

        await eventually_async(tried)
        bench.line.cut = False

        async def sent():
            return condition(await api.get(NODES, "n1"))["message"] == "down for good"

        await eventually_async(sent)


@hurried
async def test_pressure_and_images_are_reported_with_the_next_heartbeat(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        bench.machine.memory = 1
        bench.agent.set_images([ContainerImage(names=("busybox:1",), size_bytes=7)])

        async def reported():
            node = await api.get(NODES, "n1")
            return condition(node, "MemoryPressure")["status"] == "True" and node["status"].get("images")

        assert await eventually_async(reported) == [{"names": ["busybox:1"], "sizeBytes": 7}]
        assert "NodeHasInsufficientMemory" in bench.reasons


@hurried
async def test_a_foreign_ready_condition_is_overwritten(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        other = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}
        patch = {"status": {"conditions": [lost, other]}}
        await api.patch(NODES, "n1", patch, type_=PatchType.STRATEGIC, subresource="status")

        async def restored():
            node = await api.get(NODES, "n1")
            return condition(node)["status"] == "True" and node

        node = await eventually_async(restored)
        assert condition(node, "NetworkUnavailable")["reason"] == "RouteCreated"


@hurried
async def test_an_unchanged_status_is_not_sent(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        await eventually_async(lambda: find(api, LEASES, "n1", NAMESPACE))
        before = (await api.get(NODES, "n1"))["metadata"]["resourceVersion"]
        first = len(bench.line.asked)

        async def several_looks():
            return len(bench.line.asked) >= first + 5

        await eventually_async(several_looks)
        assert (await api.get(NODES, "n1"))["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("limits", [replace(HURRIED, report_period=0.0)], ids=["at once"])
async def test_a_status_that_is_old_is_sent_again(bench, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        before = (await api.get(NODES, "n1"))["metadata"]["resourceVersion"]

        async def sent():
            return ("PATCH", "/api/v1/nodes/n1/status") in bench.line.asked

        await eventually_async(sent)
        assert condition(await api.get(NODES, "n1"))["status"] == "True"
        assert before


async def test_a_machine_without_an_address_is_reached_from_itself(server):
    bench = Bench(server, addresses=())
    facts = bench.agent.facts
    assert (facts.name, facts.ips, facts.allocatable["cpu"]) == ("n1", ("127.0.0.1",), "2")


KUBECTL = shutil.which("kubectl") or str(Path(sys.prefix) / "debian/usr/bin/kubectl")


async def kubectl(server, *words):
    command = [KUBECTL, "--kubeconfig", str(server.kubeconfig), *words]
    env = {**os.environ, "HOME": str(server.kubeconfig.parent)}
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, check=True)
    return done.stdout


async def test_kubectl_shows_the_node_as_any_other(bench, server, api):
    async with bench.at_work():
        await soon(bench.agent.ready())
        await eventually_async(lambda: find(api, LEASES, "n1", NAMESPACE))
        wide = (await kubectl(server, "get", "node", "-o", "wide")).splitlines()
        described = await kubectl(server, "describe", "node", "n1")
        answer = json.loads(await kubectl(server, "get", "node", "n1", "-o", "json"))
    assert wide[1].split()[:3] == ["n1", "Ready", "<none>"]
    assert {"10.0.0.2", "6.18", "podwire://1"} <= set(wide[1].split())
    assert "KubeletReady                 kubelet is posting ready status" in described
    assert "HolderIdentity:" in described
    assert "Taints:             <none>" in described
    assert answer["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
