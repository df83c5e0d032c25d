"""HorizontalPodAutoscalers on a real API server; the metrics APIs are played."""

import asyncio
import contextlib

import msgspec
import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import IDENTITY, StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import AUTOSCALERS, DEPLOYMENTS, EVENTS, PODS, REPLICA_SETS
from podwire.controllers.limits import Limits
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Reply, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
NAMES = frozenset({"horizontal-pod-autoscaler-controller", "serviceaccount-controller"})


class MetricsHttp:
    """The controllers' connection, on which the metrics APIs answer as a test wants."""

    def __init__(self, http):
        self._http = http
        self.answers = {}
        self.writes = []

    async def request(self, method, path, **more):
        assert "?" not in path, "the query is an argument of its own"
        if method != "GET":
            self.writes.append((method, path))
        for part, answer in self.answers.items():
            if part in path:
                return Reply(200, {"content-type": "application/json"}, msgspec.json.encode(answer))
        return await self._http.request(method, path, **more)

    async def stream(self, method, path, **more):
        return await self._http.stream(method, path, **more)

    def use(self, **milli):
        """Answers with this CPU usage of each pod."""
        now = rfc3339(SystemClock().wall())
        items = [
            {"metadata": {"name": name}, "timestamp": now, "window": "10s",
             "containers": [{"name": "c", "usage": {"cpu": f"{value}m", "memory": "10Mi"}}]}
            for name, value in milli.items()
        ]  # fmt: skip
        self.answers["/apis/metrics.k8s.io/v1beta1/"] = {"items": items}


class World:
    def __init__(self, api, metrics):
        self.api, self.metrics = api, metrics

    async def pod(self, name, phase="Running"):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}}}
        meta = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        await self.api.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
        )
        old = rfc3339(SystemClock().wall() - 3600)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": old}
        status = {"phase": phase, "startTime": old, "conditions": [ready]}
        await self.api.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def deployment(self, replicas, name="web"):
        labels = {"app": "web"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
        meta = {"name": name, "namespace": "default"}
        await self.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    async def autoscaler(self, *metrics, name="web", target=None, **spec):
        meta = {"name": name, "namespace": "default"}
        reference = target or {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        given = {"scaleTargetRef": reference, "maxReplicas": 10, **({"metrics": list(metrics)} if metrics else {})}
        await self.api.create(
            {"apiVersion": "autoscaling/v2", "kind": AUTOSCALERS.kind, "metadata": meta, "spec": {**given, **spec}}
        )

    async def condition(self, type_, reason, name="web"):
        async def look():
            hpa = await self.api.get(AUTOSCALERS, name, "default")
            conditions = (hpa.get("status") or {}).get("conditions") or ()
            found = {row["type"]: row for row in conditions}
            assert found.get(type_, {}).get("reason") == reason, found
            return hpa, found[type_]

        return await eventually_async(look)

    async def replicas(self, count):
        async def look():
            present = (await self.api.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"]
            assert present == count
            return True

        await eventually_async(look)

    async def event(self, reason):
        async def look():
            events = (await self.api.list(EVENTS, Scope(namespace="default"))).items
            found = [row["message"] for row in events if row["reason"] == reason]
            assert found, [(row["reason"], row["message"]) for row in events]
            return found[0]

        return await eventually_async(look)


@pytest.fixture
async def world(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        handler = server.assembled.server.handle
        api, metrics = Client(LoopbackHttp(handler, ADMIN)), MetricsHttp(LoopbackHttp(handler, IDENTITY))
        feed = StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)
        limits = Limits(autoscaler_period=0.2, autoscaler_down_window=0.5)
        work = controllers.run(Client(metrics), feed, SystemClock(), root_ca="PEM", limits=limits, names=NAMES)
        task = asyncio.create_task(work)
        created = World(api, metrics)
        await eventually_async(lambda: _account(api))
        try:
            yield created
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _account(api):
    listed = await api.raw("/api/v1/namespaces/default/serviceaccounts")
    assert b'"name":"default"' in listed
    return True


def cpu(percent):
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    }


async def test_a_deployment_is_scaled_up_and_down_by_its_cpu(world):
    for name in ("one", "two"):
        await world.pod(name)
    await world.deployment(2)
    world.metrics.use(one=90, two=110)
    await world.autoscaler(cpu(50))
    await world.replicas(4)
    hpa, able = await world.condition("ScalingActive", "ValidMetricFound")
    assert able["message"].endswith("a replica count from cpu resource utilization (percentage of request)")
    current = {"averageUtilization": 100, "averageValue": "100m"}
    assert hpa["status"]["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    assert "lastScaleTime" in hpa["status"]
    message = "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    assert await world.event("SuccessfulRescale") == message
    world.metrics.use(one=5, two=5)
    await world.replicas(1)


async def test_a_status_that_stays_is_not_written_again(world):
    await world.pod("one")
    await world.deployment(1)
    world.metrics.use(one=50)
    await world.autoscaler(cpu(50))
    await world.condition("ScalingLimited", "DesiredWithinRange")
    await asyncio.sleep(0.3)
    before = len(world.metrics.writes)
    await asyncio.sleep(0.7)  # some periods
    assert world.metrics.writes[before:] == []


@pytest.mark.parametrize(
    ("metric", "reason", "message"),
    [
        pytest.param(
            {"type": "Pods",
             "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
            "FailedGetPodsMetric",
            "unable to get metric q: unable to fetch metrics from custom metrics API: "
            "no known available metric versions found",
            id="pods",
        ),
        pytest.param(
            {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "5"}}},
            "FailedGetExternalMetric",
            "unable to get external metric default/q/nil: unable to fetch metrics from external metrics API: "
            "the server could not find the requested resource (get q.external.metrics.k8s.io)",
            id="external",
        ),
        pytest.param(
            {"type": "Object", "object": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "5"},
             "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}}},
            "FailedGetObjectMetric",
            "unable to get metric q: Service default/s on unable to fetch metrics from custom metrics API: "
            "no known available metric versions found",
            id="object",
        ),
        pytest.param(
            cpu(50),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: "
            "no metrics returned from resource metrics API",
            id="resource",
        ),
    ],
)  # fmt: skip
async def test_metrics_that_nobody_serves_are_a_condition_and_an_event(world, metric, reason, message):
    await world.pod("one")
    await world.deployment(1)
    if reason == "FailedGetResourceMetric":
        world.metrics.use()
    await world.autoscaler(metric)
    _, active = await world.condition("ScalingActive", reason)
    assert active["message"] == f"the HPA was unable to compute the replica count: {message}"
    assert await world.event(reason) == message
    assert (await world.event("FailedComputeMetricsReplicas")).startswith("invalid metrics (1 invalid out of 1), first")


async def test_custom_and_external_metrics_when_somebody_serves_them(world):
    await world.pod("one")
    await world.deployment(1)
    now = rfc3339(SystemClock().wall())
    value = {"describedObject": {"name": "one"}, "timestamp": now, "value": "20"}
    world.metrics.answers = {
        "/apis/custom.metrics.k8s.io/v1beta2/": {"items": [value]},
        "/apis/custom.metrics.k8s.io": {"versions": [{"version": "v1beta2"}]},
        "/apis/external.metrics.k8s.io/": {"items": [{"value": "7500m"}, {"value": "7500m"}]},
    }
    pods = {
        "type": "Pods",
        "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    }
    external = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "5"}}}
    await world.autoscaler(pods, external)
    await world.replicas(3)
    hpa, _ = await world.condition("ScalingActive", "ValidMetricFound")
    assert [row["type"] for row in hpa["status"]["currentMetrics"]] == ["Pods", "External"]
    assert hpa["status"]["currentMetrics"][1]["external"]["current"] == {"value": "15"}


async def test_targets_that_cannot_be_scaled(world):
    await world.autoscaler(cpu(50))
    _, able = await world.condition("AbleToScale", "FailedGetScale")
    assert able["message"].endswith('deployments.apps "web" not found')
    await world.autoscaler(cpu(50), name="odd", target={"apiVersion": "nope.io/v1", "kind": "Nope", "name": "x"})
    _, able = await world.condition("AbleToScale", "FailedGetScale", "odd")
    assert 'no matches for kind "Nope" in group "nope.io"' in able["message"]


async def test_bounds_need_no_metrics(world):
    await world.deployment(20)
    await world.autoscaler(cpu(50), minReplicas=3)
    await world.replicas(10)
    assert (
        await world.event("SuccessfulRescale")
        == "New size: 10; reason: Current number of replicas above Spec.MaxReplicas"
    )


async def test_a_target_that_is_scaled_to_zero_is_left_alone(world):
    await world.deployment(0)
    await world.autoscaler(cpu(50))
    await world.condition("ScalingActive", "ScalingDisabled")
    await world.replicas(0)


async def test_two_autoscalers_of_the_same_pods_do_nothing(world):
    await world.pod("one")
    await world.deployment(1)
    world.metrics.use(one=500)
    await world.autoscaler(cpu(600), name="a")
    await world.condition("ScalingActive", "ValidMetricFound", "a")
    await world.autoscaler(cpu(50), name="b")
    _, active = await world.condition("ScalingActive", "AmbiguousSelector", "b")
    assert active["message"] == "pods by selector app=web are controlled by multiple HPAs: [{a default} {b default}]"


async def test_a_replica_set_is_scaled_through_autoscaling_v1(world):
    await world.pod("one")
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    meta = {"name": "web", "namespace": "default"}
    await world.api.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec})
    world.metrics.use(one=150)
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    given = {"scaleTargetRef": target, "maxReplicas": 10, "targetCPUUtilizationPercentage": 50}
    await world.api.create({"apiVersion": "autoscaling/v1", "kind": AUTOSCALERS.kind, "metadata": meta, "spec": given})

    async def look():
        assert (await world.api.get(REPLICA_SETS, "web", "default"))["spec"]["replicas"] == 3
        return True

    await eventually_async(look)
