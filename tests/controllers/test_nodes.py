"""Node life, evictions and pod garbage collection on a real API server, with a clock that the tests move."""

import asyncio
import contextlib
import time

import msgspec
import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers import Absent, Complete, Present
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import EVENTS, LEASES, NODES, PODS
from podwire.controllers.limits import Limits
from podwire.controllers.metadata import resource_of
from podwire.controllers.node_lifecycle import LEASE_NAMESPACE, NodeLife
from podwire.controllers.pod_gc import OUT_OF_SERVICE, PodGc
from podwire.controllers.taint_eviction import Evictions
from podwire.protocols.k8sapi.client_side import Client, PatchType, Unreachable
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
LIMITS = Limits(finished_pods=2)
CONDITIONS = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}


class MovableClock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Line:
    """The way to the server, which tests may cut; counts what is asked."""

    def __init__(self, http) -> None:
        self._http = http
        self.cut = False
        self.asked = 0

    async def request(self, method, path, **options):
        self.asked += 1
        if self.cut:
            raise Unreachable("cut")
        return await self._http.request(method, path, **options)


class Office:
    """The three controllers at work."""

    def __init__(self, server) -> None:
        handler = server.assembled.server.handle
        self.line = Line(LoopbackHttp(handler, ADMIN))
        api, self.graph, self.clock = Client(self.line), Graph(), MovableClock()
        self.evictions = Evictions(api, self.graph, self.clock)
        self.life = NodeLife(api, self.graph, self.clock, self.evictions.tainted)
        self.gc = PodGc(api, self.graph, self.clock, LIMITS)
        self._all = (self.life, self.evictions, self.gc)
        self._feed = StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)

    def _tell(self, tidings) -> None:
        match tidings:
            case Complete():
                self.graph.complete = True
                for item in self._all:
                    item.on_synced()
            case Present(seen):
                self._saw(self.graph.put(seen), seen)
            case Absent(seen):
                self._saw(self.graph.drop(seen.uid), None)

    def _saw(self, before, now) -> None:
        for item in self._all:
            item.on_change(before, now)

    @contextlib.asynccontextmanager
    async def at_work(self):
        tasks = [asyncio.create_task(item.run()) for item in self._all]
        tasks.append(asyncio.create_task(self._feed.follow(self._tell, frozenset({resource_of(NODES)}))))
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pass_(self, seconds: float) -> None:
        """Time passes, and all are awake."""
        for _ in range(round(seconds)):
            self.clock.now += 1
            for item in self._all:
                item.timers.fire_due()
            self.life.turns.fire_due()
            await asyncio.sleep(0)
        await self.settled()

    async def sleep(self, seconds: float) -> None:
        """Time passes, and nobody is awake."""
        self.clock.now += seconds
        await self.settled()

    async def settled(self) -> None:
        """Until they have asked nothing for a while."""

        async def quiet():
            before = self.line.asked
            await asyncio.sleep(0.1)
            return self.line.asked == before

        await eventually_async(quiet)


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
async def api(server):
    client = Client(LoopbackHttp(server.assembled.server.handle, ADMIN))
    await client.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    )
    return client


@pytest.fixture
async def office(server):
    async with Office(server).at_work() as office:
        yield office


async def becomes(ask, expected):
    """Until the answer is the expected one."""

    async def same():
        return await ask() == expected

    await eventually_async(same)


async def gone(api, name="web"):
    await becomes(lambda: get(api, PODS, name), None)


async def reported(api, kind, name, reason):
    async def there():
        return reason in await reasons(api, kind, name)

    await eventually_async(there)


def conditions(office, **changed):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(office.clock.now))
    return [
        {"type": type_, "status": status, "lastHeartbeatTime": now}
        for type_, status in {**CONDITIONS, **changed}.items()
    ]


async def join(api, office, name="n1", **spec):
    """A node registers, and is known."""
    await api.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": spec,
            "status": {"conditions": conditions(office)},
        }
    )
    await api.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": name},
        }
    )
    await reported(api, "Node", name, "RegisteredNode")
    await office.settled()


async def renew(api, name="n1", text="2020-01-01T00:00:00.000000Z"):
    """The kubelet lives, whatever its clock says."""
    holder = f"{name}-{time.monotonic_ns()}"
    await api.patch(LEASES, name, {"spec": {"renewTime": text, "holderIdentity": holder}}, LEASE_NAMESPACE)


async def report(api, office, name="n1", **changed):
    patch = {"status": {"conditions": conditions(office, **changed)}}
    await api.patch(NODES, name, patch, type_=PatchType.STRATEGIC, subresource="status")
    await office.settled()


async def run_pod(api, name="web", node="n1", **spec):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec},
    }
    await api.create(pod)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(PODS, name, {"status": status}, "default", subresource="status")


async def get(api, kind, name, namespace="default"):
    try:
        return await api.get(kind, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def reasons(api, kind, name):
    found = (await api.list(EVENTS)).items
    about = [item for item in found if (item["involvedObject"]["kind"], item["involvedObject"]["name"]) == (kind, name)]
    return [item["reason"] for item in about]


async def ready(api, kind=NODES, name="n1"):
    rows = (await api.get(kind, name, "default"))["status"]["conditions"]
    return next(row["status"] for row in rows if row["type"] == "Ready")


async def taints(api, name="n1"):
    found = (await api.get(NODES, name))["spec"].get("taints", ())
    return [(item["key"].removeprefix("node.kubernetes.io/"), item["effect"]) for item in found]


async def leaving(api, name="web"):
    """Whether the pod is gone or on its way."""
    pod = await get(api, PODS, name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


async def test_a_node_that_falls_silent_is_unreachable_until_it_is_back(office, api):
    await join(api, office)
    await join(api, office, "n2")
    await run_pod(api)
    await office.pass_(LIMITS.heartbeat_grace - 1)
    assert (await ready(api), await taints(api)) == ("True", [])
    await renew(api, "n2")
    await office.pass_(2)
    await becomes(lambda: ready(api), "Unknown")
    await becomes(lambda: taints(api), [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")])
    await becomes(lambda: ready(api, PODS, "web"), "False")
    await reported(api, "Node", "n1", "NodeNotReady")
    await reported(api, "Pod", "web", "NodeNotReady")
    assert not await leaving(api)
    await renew(api)
    await report(api, office)
    await becomes(lambda: taints(api), [])
    assert await ready(api) == "True"


async def test_a_node_that_renews_its_lease_is_ready_even_with_a_wrong_clock(office, api):
    await join(api, office)
    for _ in range(12):
        await renew(api)
        await office.pass_(10)
    assert (await ready(api), await taints(api)) == ("True", [])


async def test_a_node_without_a_lease_lives_by_its_reports(office, api):
    await join(api, office)
    await api.delete(LEASES, "n1", LEASE_NAMESPACE)
    for _ in range(3):
        await office.pass_(LIMITS.heartbeat_grace - 5)
        await report(api, office)
    assert await ready(api) == "True"
    await office.pass_(LIMITS.heartbeat_grace + 1)
    await becomes(lambda: ready(api), "Unknown")


async def test_a_manually_created_node_becomes_unknown(office, api):
    await join(api, office, "n2")
    await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    await office.settled()
    await becomes(lambda: taints(api), [])
    await office.pass_(LIMITS.heartbeat_grace - 1)
    await renew(api, "n2")
    await office.pass_(2)
    await becomes(lambda: ready(api), "Unknown")
    await becomes(lambda: taints(api), [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")])


async def test_a_controller_that_was_suspended_marks_no_node_unknown(office, api):
    await join(api, office)
    await run_pod(api, tolerations=[])
    await office.pass_(10)
    await office.sleep(60)
    await office.pass_(10)
    assert (await ready(api), await taints(api)) == ("True", [])
    await renew(api)
    await office.pass_(LIMITS.heartbeat_grace - 1)
    assert await ready(api) == "True"


async def test_while_the_api_cannot_be_asked_silence_means_nothing(office, api):
    await join(api, office)
    office.line.cut = True
    await office.pass_(10 * LIMITS.heartbeat_grace)
    office.line.cut = False
    await office.pass_(LIMITS.heartbeat_grace / 2)
    assert await ready(api) == "True"
    await office.pass_(LIMITS.heartbeat_grace * 2)
    await becomes(lambda: ready(api), "Unknown")


async def test_no_pod_is_evicted_while_no_node_of_any_zone_is_ready(office, api):
    """As upstream: more likely nodes and API server do not reach each other."""
    for name in ("n1", "n2"):
        await join(api, office, name)
    await report(api, office, Ready="False")
    await becomes(lambda: taints(api), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")])
    await report(api, office, "n2", Ready="False")
    for name in ("n1", "n2"):
        await becomes(lambda name=name: taints(api, name), [("not-ready", "NoSchedule")])
    await report(api, office, "n2")
    await becomes(lambda: taints(api, "n2"), [])
    await office.pass_(1 / LIMITS.node_eviction_rate)
    await becomes(lambda: taints(api), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")])


async def test_nodes_of_a_zone_are_tainted_one_after_the_other(office, api):
    for name in ("n1", "n2", "n3", "n4"):
        await join(api, office, name)
    for name in ("n1", "n2"):
        await report(api, office, name, Ready="False")
    await becomes(lambda: taints(api), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")])
    assert await taints(api, "n2") == [("not-ready", "NoSchedule")]
    await office.pass_(1 / LIMITS.node_eviction_rate)
    await becomes(lambda: taints(api, "n2"), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")])


async def test_a_node_that_is_not_ready_is_tainted_as_long_as_it_is(office, api):
    await join(api, office)
    await join(api, office, "n2")
    await report(api, office, Ready="False")
    await becomes(lambda: taints(api), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")])
    await report(api, office)
    await becomes(lambda: taints(api), [])


async def test_a_cordoned_node_is_tainted_as_long_as_it_is(office, api):
    await join(api, office)
    await api.patch(NODES, "n1", {"spec": {"unschedulable": True}})
    await office.settled()
    await becomes(lambda: taints(api), [("unschedulable", "NoSchedule")])
    await api.patch(NODES, "n1", {"spec": {"unschedulable": None}})
    await office.settled()
    await becomes(lambda: taints(api), [])


async def taint(api, office, *given):
    await api.patch(NODES, "n1", {"spec": {"taints": list(given)}})
    await office.settled()


def tolerating(**more):
    return {"tolerations": [{**TAINT, "operator": "Exists", **more}]}


async def test_pods_leave_a_node_when_their_patience_is_over(office, api):
    await join(api, office)
    await run_pod(api, "hasty")
    await run_pod(api, "patient", **tolerating(tolerationSeconds=30))
    await run_pod(api, "stoic", **tolerating())
    await taint(api, office, TAINT)
    await becomes(lambda: leaving(api, "hasty"), True)
    assert [await leaving(api, name) for name in ("patient", "stoic")] == [False, False]
    await reported(api, "Pod", "hasty", "TaintManagerEviction")
    rows = (await api.get(PODS, "hasty", "default"))["status"]["conditions"]
    assert {"DisruptionTarget": "DeletionByTaintManager"}.items() <= {
        row["type"]: row.get("reason") for row in rows
    }.items()
    for _ in range(3):
        await renew(api)
        await office.pass_(9)
    assert not await leaving(api, "patient")
    await office.pass_(4)
    await becomes(lambda: leaving(api, "patient"), True)
    assert not await leaving(api, "stoic")


async def test_a_pod_stays_when_the_taint_goes_in_time(office, api):
    await join(api, office)
    await run_pod(api, **tolerating(tolerationSeconds=30))
    await taint(api, office, TAINT)
    await office.pass_(20)
    await taint(api, office)
    await renew(api)
    await office.pass_(30)
    assert not await leaving(api)
    await becomes(lambda: reasons(api, "Pod", "web"), ["TaintManagerEviction"])


async def test_a_pod_that_comes_to_a_tainted_node_leaves_it_again(office, api):
    await join(api, office)
    await taint(api, office, TAINT)
    await run_pod(api)
    await run_pod(api, "elsewhere", node="n2")
    await office.settled()
    await becomes(lambda: leaving(api), True)
    assert not await leaving(api, "elsewhere")


async def test_pods_are_not_asked_for_while_no_node_is_tainted(office, api):
    await join(api, office)
    await office.settled()
    before = office.line.asked
    for number in range(5):
        await run_pod(api, f"web-{number}")
    await office.settled()
    assert office.line.asked == before


async def test_pods_of_a_node_that_is_gone_are_taken_away_after_a_while(office, api):
    await join(api, office)
    await run_pod(api)
    await api.delete(NODES, "n1")
    await office.settled()
    await office.pass_(LIMITS.node_grace - 1)
    assert not await leaving(api)
    await office.pass_(LIMITS.pod_gc_period + 2)
    await gone(api)


async def test_pods_of_a_node_that_comes_back_stay(office, api):
    await join(api, office)
    await run_pod(api)
    await api.delete(NODES, "n1")
    await office.pass_(10)
    await join_again(api, office)
    await office.pass_(LIMITS.node_grace * 2)
    assert not await leaving(api)


async def join_again(api, office):
    await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    await office.settled()


async def test_a_pod_that_is_bound_to_a_node_that_never_was_is_taken_away(office, api):
    await run_pod(api, node="ghost")
    await office.settled()
    await office.pass_(LIMITS.pod_gc_period + 1)
    assert not await leaving(api)
    await office.pass_(LIMITS.node_grace + LIMITS.pod_gc_period + 1)
    await gone(api)


async def test_a_deleted_pod_that_was_never_bound_is_taken_away(office, api, server):
    await run_pod(api, "pattern")
    pod = await api.get(PODS, "pattern", "default")
    pod["metadata"] |= {"name": "web", "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    pod["metadata"].pop("resourceVersion")
    pod["metadata"]["deletionGracePeriodSeconds"] = 30
    pod["spec"].pop("nodeName")
    await server.assembled.engine.store.create("/registry/pods/default/web", msgspec.json.encode(pod))
    await office.settled()
    await office.pass_(LIMITS.pod_gc_period + 1)
    await gone(api)


@pytest.mark.parametrize("ready", ["True", "Unknown"])
async def test_terminating_pods_of_a_node_out_of_service_are_taken_away(office, api, ready):
    await join(api, office)
    await run_pod(api)
    await run_pod(api, "stays")
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoSchedule"}
    await api.patch(NODES, "n1", {"spec": {"taints": [taint]}})
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    await api.patch(NODES, "n1", {"status": status}, subresource="status")
    await api.delete(PODS, "web", "default")
    await office.settled()
    await office.pass_(LIMITS.pod_gc_period + 1)
    if ready == "True":
        assert await leaving(api)
    else:
        await gone(api)
    assert await get(api, PODS, "stays")


async def test_of_too_many_finished_pods_the_oldest_go(office, api):
    await join(api, office)
    for number in range(4):
        await run_pod(api, f"job-{number}")
        await api.patch(PODS, f"job-{number}", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    await run_pod(api)
    await office.settled()
    await office.pass_(LIMITS.pod_gc_period + 1)

    async def left():
        return len((await api.list(PODS)).items)

    await becomes(left, 3)
    assert await get(api, PODS, "web")
