"""Hollow nodes with a real API server in memory: registration, leases, pods, restarts, removal."""

import asyncio
import contextlib

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.hollow import HollowNodes, HollowSettings
from podwire.kubelet.hollow.registration import SLICES
from podwire.kubelet.node.agent import NODES
from podwire.kubelet.node.lease import LEASES
from podwire.kubelet.node.settings import NodeLimits
from podwire.kubelet.pods.status_manager import PODS
from podwire.linux.machine import Facts
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.client_side.events import CORE_V1
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
MACHINE = Facts(2, 2**34, 0, (), "6.1", "Debian", "amd64", "m", "s", "b")
PREFIX = "hollow.podwire.dev/"


class World:
    def __init__(self, server):
        self._server = server
        self.http = CountingHttp(LoopbackHttp(server.assembled.server.handle, ADMIN))
        self.api = Client(self.http)

    @contextlib.asynccontextmanager
    async def hollow(self, nodes=3, **settings):
        """Hollow nodes that are registered."""
        limits = settings.pop("limits", NodeLimits(lease_period=0.5))
        hollow = HollowNodes(self.api, SystemClock(), MACHINE, HollowSettings(nodes=nodes, limits=limits, **settings))
        task = asyncio.create_task(hollow.run())
        try:
            await hollow.registered.wait()
            yield hollow
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def pod(self, name="web", node="hollow-0", annotations=None, container=None, **spec):
        meta = {"name": name, "namespace": "default"}
        meta["annotations"] = {PREFIX + key: value for key, value in (annotations or {}).items()}
        containers = [{"name": "app", "image": "busybox", **(container or {})}]
        spec = {"nodeName": node, "containers": containers, "terminationGracePeriodSeconds": 5, **spec}
        return await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def until(self, name, done):
        async def matching():
            pod = await self.api.get(PODS, name, "default")
            assert done(pod["status"]), pod["status"]
            return pod

        return await eventually_async(matching)

    async def running(self, name="web"):
        return await self.until(name, lambda status: status.get("phase") == "Running" and ready(status))

    async def gone(self, name="web"):
        async def absent():
            return all(pod["metadata"]["name"] != name for pod in (await self.api.list(PODS)).items)

        await eventually_async(absent)

    async def names(self, kind):
        return {item["metadata"]["name"] for item in (await self.api.list(kind)).items}

    async def event(self, reason):
        async def found():
            events = (await self.api.list(CORE_V1.kind, Scope(field_selector=f"reason={reason}"))).items
            assert events
            return events[0]

        return await eventually_async(found)


class CountingHttp:
    """Counts what is in flight."""

    def __init__(self, http):
        self._http = http
        self.watches = []

    async def request(self, *args, **more):
        return await self._http.request(*args, **more)

    async def stream(self, method, path, **more):
        self.watches.append(path)
        return await self._http.stream(method, path, **more)


def ready(status):
    return any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions", ()))


def state(status):
    [container] = status.get("containerStatuses") or [{}]
    return container.get("state") or {}


@pytest.fixture
async def world(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        world = World(server)
        account = {"name": "default", "namespace": "default"}
        await world.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield world


async def test_nodes_are_ready_renew_their_leases_and_are_removed_at_the_end(world):
    async with world.hollow(4, zones=2, devices={"example.com/gpu": 8}, dra_devices=2) as hollow:
        items = {item["metadata"]["name"]: item for item in (await world.api.list(NODES)).items}
        assert set(items) == set(hollow.nodes) == {f"hollow-{number}" for number in range(4)}
        assert all(ready(item["status"]) for item in items.values())
        status = items["hollow-3"]["status"]
        assert (status["allocatable"]["example.com/gpu"], status["capacity"]["cpu"]) == ("8", "32")
        assert items["hollow-3"]["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-1"
        assert len(await world.names(SLICES)) == 4
        before = {item["metadata"]["name"]: item["spec"]["renewTime"] for item in (await world.api.list(LEASES)).items}

        async def renewed():
            leases = (await world.api.list(LEASES)).items
            return all(lease["spec"]["renewTime"] > before[lease["metadata"]["name"]] for lease in leases)

        await eventually_async(renewed)
        assert len(world.http.watches) <= 2, "nodes share their watches"
    assert not await world.names(NODES)
    assert not await world.names(LEASES)
    assert not await world.names(SLICES)


async def test_nodes_that_are_kept_are_taken_over_with_their_pods(world):
    async with world.hollow(2, keep=True):
        await world.pod()
        before = await world.running()
    assert await world.names(NODES) == {"hollow-0", "hollow-1"}
    async with world.hollow(2) as hollow:
        await eventually_async(lambda: hollow.nodes["hollow-0"].pods)
        await world.pod("second", node="hollow-0")
        second = await world.running("second")
        after = await world.running()
        assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
        assert after["status"]["podIP"] == before["status"]["podIP"] != second["status"]["podIP"]
    assert not await world.names(NODES)


async def test_a_deleted_node_is_registered_again(world):
    async with world.hollow(2):
        before = (await world.api.get(NODES, "hollow-1"))["metadata"]["uid"]
        await world.api.delete(NODES, "hollow-1")

        async def again():
            try:
                return (await world.api.get(NODES, "hollow-1"))["metadata"]["uid"] != before
            except ApiError:
                return False

        await eventually_async(again)


async def test_a_status_that_others_overwrite_is_reported_again(world):
    async with world.hollow(1):
        conditions = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        await world.api.patch(NODES, "hollow-0", {"status": {"conditions": conditions}}, subresource="status")

        async def reported():
            return ready((await world.api.get(NODES, "hollow-0"))["status"])

        await eventually_async(reported)


@pytest.mark.parametrize(
    ("annotations", "spec", "phase", "terminated"),
    [
        pytest.param({"run-seconds": "0"}, {"restartPolicy": "Never"}, "Succeeded", {"exitCode": 0}, id="succeeds"),
        pytest.param(
            {"run-seconds": "0.1", "exit-code": "3", "message": "bye"},
            {"restartPolicy": "Never"},
            "Failed",
            {"exitCode": 3, "message": "bye"},
            id="fails",
        ),
        pytest.param({"stop-seconds": "0"}, {"activeDeadlineSeconds": 1}, "Failed", {"exitCode": 143}, id="deadline"),
    ],
)
async def test_a_pod_ends_as_its_annotations_say(world, annotations, spec, phase, terminated):
    async with world.hollow(1) as hollow:
        await world.pod(annotations=annotations, **spec)
        pod = await world.until("web", lambda status: status.get("phase") == phase)
        ended = state(pod["status"])["terminated"]
        assert {key: ended[key] for key in terminated} == terminated
        await world.api.delete(PODS, "web", "default")
        await world.gone()
        await eventually_async(lambda: not hollow.nodes["hollow-0"].pods)


async def test_a_pod_starts_with_events_and_an_address_and_leaves_nothing(world):
    async with world.hollow(1) as hollow:
        await world.pod(annotations={"start-seconds": "0.3", "stop-seconds": "0.2"})
        pod = await world.running()
        assert pod["status"]["podIP"] == "10.128.0.1"
        assert state(pod["status"])["running"]
        for reason in ("Pulling", "Pulled", "Created", "Started"):
            assert (await world.event(reason))["source"] == {"component": "kubelet", "host": "hollow-0"}
        await world.api.delete(PODS, "web", "default")
        assert (await world.event("Killing"))["involvedObject"]["name"] == "web"
        await world.gone()
        node = hollow.nodes["hollow-0"]
        await eventually_async(lambda: not node.pods)
        assert not any(node.held.values())


async def test_probes_fail_as_an_annotation_says(world):
    probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "failureThreshold": 1}
    async with world.hollow(1):
        await world.pod(container={"readinessProbe": probe, "livenessProbe": probe})
        await world.running()

        async def fail(names):
            patch = {"metadata": {"annotations": {f"{PREFIX}failing-probes": names}}}
            await world.api.patch(PODS, "web", patch, "default")

        await fail("readiness")
        await world.until("web", lambda status: not ready(status))
        await fail("liveness")
        await world.until("web", lambda status: status["containerStatuses"][0]["restartCount"] == 1)
        assert "simulated failure" in (await world.event("Unhealthy"))["message"]
        assert "failed liveness probe, will be restarted" in (await world.event("Killing"))["message"]


async def test_a_pod_that_cannot_start_says_why(world):
    async with world.hollow(1):
        await world.pod("broken", annotations={"start-error": "no such image"})
        await world.pod("typo", annotations={"run-seconds": "soon"})
        for name, text in (("broken", "no such image"), ("typo", "must be a number of seconds")):
            pod = await world.until(name, lambda status: state(status).get("waiting", {}).get("message"))
            assert text in state(pod["status"])["waiting"]["message"]


async def test_pods_hold_devices_and_addresses(world):
    gpus = {"resources": {"limits": {"example.com/gpu": "2"}}}
    async with world.hollow(1, devices={"example.com/gpu": 3}, max_pods=2) as hollow:
        await world.pod("one", container=gpus)
        await world.running("one")
        assert hollow.nodes["hollow-0"].held["devices"] != {}
        await world.pod("two", container=gpus)
        rejected = await world.until("two", lambda status: status.get("phase") == "Failed")
        assert "example.com/gpu" in rejected["status"]["message"]
        await world.api.delete(PODS, "one", "default")
        await world.gone("one")
        await eventually_async(lambda: not hollow.nodes["hollow-0"].held["devices"])


async def test_claims_are_prepared_before_a_pod_starts_and_unprepared_after_it(world):
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    meta = {"name": "c", "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta,
             "spec": {"devices": {"requests": [request]}}}  # fmt: skip
    device = {"request": "g", "driver": "gpu.example.com", "pool": "hollow-0", "device": "device-1"}
    async with world.hollow(1, dra_driver="gpu.example.com", dra_devices=2) as hollow:
        stored = await world.api.create(claim)
        created = await world.pod(resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
        text = "is not allowed to use ResourceClaim c"
        await world.until("web", lambda status: text in state(status).get("waiting", {}).get("message", ""))
        status = {
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "name": "web", "uid": created["metadata"]["uid"]}],
        }
        await world.api.replace({**stored, "status": status}, subresource="status")
        await world.running()
        [prepared] = hollow.nodes["hollow-0"].held["claims"]
        assert prepared["name"] == "c"
        await world.api.delete(PODS, "web", "default")
        await world.gone()
        await eventually_async(lambda: not hollow.nodes["hollow-0"].held["claims"])
