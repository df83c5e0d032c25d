"""Clients that others wrote, and our own, against a real server."""

import asyncio
import re
import threading
import uuid
from datetime import UTC, datetime

import kr8s
import kubernetes
import lightkube
import pytest
from kr8s.asyncio.objects import ConfigMap as Kr8sConfigMap
from kr8s.asyncio.objects import Pod as Kr8sPod
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from lightkube.core.exceptions import ApiError as LightkubeError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod
from lightkube.types import PatchType

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.watch import Added, Deleted, Synced, Updated
from podwire.transports import http_client
from tests.eventually import eventually

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
}
ROOT_CA = "kube-root-ca.crt"
"""Content that is applied to a namespace again and again."""
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "scope": "Namespaced",
        "names": {"plural": "pools", "singular": "pool", "kind": "Pool", "listKind": "PoolList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def official(server):
    with kubernetes.config.new_client_from_config(str(server.kubeconfig)) as client:
        yield client


def test_the_official_client_keeps_objects(official, namespace):
    core = kubernetes.client.CoreV1Api(official)
    made = core.create_namespaced_pod(namespace, POD)
    assert made.spec.restart_policy == "Always"
    assert isinstance(made.metadata.creation_timestamp, datetime)
    spec = kubernetes.client.V1PodSpec(containers=[kubernetes.client.V1Container(name="c", image="busybox")])
    typed = kubernetes.client.V1Pod(metadata=kubernetes.client.V1ObjectMeta(name="typed"), spec=spec)
    core.create_namespaced_pod(namespace, typed)
    listed = core.list_namespaced_pod(namespace, limit=1)
    assert [item.metadata.name for item in listed.items] == ["typed"]
    rest = core.list_namespaced_pod(namespace, limit=1, _continue=listed.metadata._continue)
    assert [item.metadata.name for item in rest.items] == ["web"]
    for media, body in (
        ("application/strategic-merge-patch+json", {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}),
        ("application/merge-patch+json", {"metadata": {"labels": {"app": None, "tier": "front"}}}),
        ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels/last", "value": "yes"}]),
    ):
        patched = core.patch_namespaced_pod("web", namespace, body, _content_type=media)
    assert (patched.spec.containers[0].image, patched.metadata.labels) == ("nginx:2", {"tier": "front", "last": "yes"})
    with pytest.raises(ApiException) as twice:
        core.create_namespaced_pod(namespace, POD)
    assert (twice.value.status, twice.value.reason) == (409, "Conflict")
    stale = core.read_namespaced_pod("web", namespace)
    stale.metadata.resource_version = "1"
    with pytest.raises(ApiException, match="the object has been modified"):
        core.replace_namespaced_pod("web", namespace, stale)
    assert core.list_pod_for_all_namespaces(field_selector=f"metadata.namespace={namespace}").items


def test_the_official_client_watches(official, namespace):
    core = kubernetes.client.CoreV1Api(official)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "first", "labels": {"seen": "yes"}}})
    events = []

    def change():
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "second", "labels": {"seen": "yes"}}})
        core.patch_namespaced_config_map("second", namespace, {"data": {"a": "b"}})
        core.delete_namespaced_config_map("second", namespace)

    watch = kubernetes.watch.Watch()
    for event in watch.stream(core.list_namespaced_config_map, namespace, label_selector="seen", timeout_seconds=20):
        events.append((event["type"], event["object"].metadata.name))
        if len(events) == 1:
            threading.Thread(target=change).start()
        if event["type"] == "DELETED":
            watch.stop()
    assert events == [("ADDED", "first"), ("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "second")]
    early = kubernetes.watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version="1")
    assert "first" in {next(early)["object"].metadata.name for _ in range(2)}


def test_the_official_client_waits_for_a_deletion(official, namespace, server):
    core = kubernetes.client.CoreV1Api(official)
    core.create_namespaced_pod(namespace, POD)
    target = kubernetes.client.V1ObjectReference(kind="Node", name="somewhere", api_version="v1")
    binding = kubernetes.client.V1Binding(metadata=kubernetes.client.V1ObjectMeta(name="web"), target=target)
    core.create_namespaced_pod_binding("web", namespace, binding, _preload_content=False)
    going = core.delete_namespaced_pod("web", namespace, grace_period_seconds=1)
    assert going.metadata.deletion_grace_period_seconds == 1
    assert core.read_namespaced_pod("web", namespace).metadata.deletion_timestamp
    core.delete_namespaced_pod("web", namespace, body=kubernetes.client.V1DeleteOptions(grace_period_seconds=0))

    def gone():
        try:
            core.read_namespaced_pod("web", namespace)
        except ApiException as error:
            return error.status == 404
        return False

    eventually(gone)
    core.delete_collection_namespaced_config_map(namespace)
    eventually(lambda: [item.metadata.name for item in core.list_namespaced_config_map(namespace).items] == [ROOT_CA])


def test_a_leader_is_elected_with_leases(official, namespace):
    """Two candidates take turns as client-go's election does: conditional PUTs, of which one at a time wins."""
    leases = kubernetes.client.CoordinationV1Api(official)
    now = datetime.now(UTC)
    spec = kubernetes.client.V1LeaseSpec(
        holder_identity="a", lease_duration_seconds=1, acquire_time=now, renew_time=now
    )
    meta = kubernetes.client.V1ObjectMeta(name="leader")
    leases.create_namespaced_lease(namespace, kubernetes.client.V1Lease(metadata=meta, spec=spec))
    holders, lost = [], []

    def campaign(name):
        for _ in range(20):
            lease = leases.read_namespaced_lease("leader", namespace)
            lease.spec.holder_identity = name
            lease.spec.lease_transitions = (lease.spec.lease_transitions or 0) + 1
            lease.spec.renew_time = datetime.now(UTC)
            try:
                leases.replace_namespaced_lease("leader", namespace, lease)
            except ApiException as error:
                lost.append(error.status)
            else:
                holders.append(name)

    threads = [threading.Thread(target=campaign, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = leases.read_namespaced_lease("leader", namespace)
    assert final.spec.lease_transitions == len(holders)
    assert set(lost) <= {409}
    assert final.spec.renew_time > now


def test_the_dynamic_client_learns_every_kind(official, namespace):
    dynamic = DynamicClient(official)
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    made = maps.create(body={"metadata": {"name": "dynamic"}, "data": {"a": "b"}}, namespace=namespace)
    assert made.data.a == "b"
    maps.patch(
        body={"data": {"c": "d"}}, name="dynamic", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert maps.get(name="dynamic", namespace=namespace).data.to_dict() == {"a": "b", "c": "d"}
    group = f"{namespace}.example.com"
    definitions = dynamic.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    definition = {**DEFINITION, "metadata": {"name": f"pools.{group}"}, "spec": {**DEFINITION["spec"], "group": group}}
    definitions.create(body=definition)
    try:
        for event in definitions.watch(name=f"pools.{group}", timeout=20):
            conditions = (event["raw_object"].get("status") or {}).get("conditions") or []
            if ("Established", "True") in {(condition["type"], condition["status"]) for condition in conditions}:
                break
        dynamic.resources.invalidate_cache()
        pools = dynamic.resources.get(api_version=f"{group}/v1", kind="Pool")
        pool = {"apiVersion": f"{group}/v1", "kind": "Pool", "metadata": {"name": "deep"}, "spec": {"size": 3}}
        pools.create(body=pool, namespace=namespace)
        assert pools.get(name="deep", namespace=namespace).spec.size == 3
        pools.delete(name="deep", namespace=namespace)
    finally:
        definitions.delete(name=f"pools.{group}")


@pytest.fixture
def light(server):
    config = lightkube.KubeConfig.from_file(str(server.kubeconfig))
    client = lightkube.Client(config=config, field_manager="stories")
    yield client
    client._client._client.close()


def test_lightkube_lists_patches_and_watches(light, namespace):
    light.create(ConfigMap(metadata=ObjectMeta(name="one", labels={"n": "1"}), data={"a": "b"}), namespace=namespace)
    light.create(ConfigMap(metadata=ObjectMeta(name="two", labels={"n": "2"})), namespace=namespace)
    listed = light.list(ConfigMap, namespace=namespace, labels={"n": ["1", "2"]}, chunk_size=1)
    assert [item.metadata.name for item in listed] == ["one", "two"]
    patched = light.patch(ConfigMap, "one", {"data": {"c": "d"}}, namespace=namespace, patch_type=PatchType.MERGE)
    assert patched.data == {"a": "b", "c": "d"}
    light.patch(ConfigMap, "one", {"data": {"a": None}}, namespace=namespace)
    replaced = light.get(ConfigMap, "one", namespace=namespace)
    replaced.data["e"] = "f"
    assert light.replace(replaced).data == {"c": "d", "e": "f"}
    assert light.get(Namespace, "default").status.phase == "Active"
    watch = light.watch(ConfigMap, namespace=namespace, labels={"n": ["1", "2", "3"]}, server_timeout=20)
    seen = [next(watch), next(watch)]
    light.delete(ConfigMap, "two", namespace=namespace)
    seen.append(next(watch))
    assert sorted((kind, each.metadata.name) for kind, each in seen) == [
        ("ADDED", "one"), ("ADDED", "two"), ("DELETED", "two"),
    ]  # fmt: skip
    watch.close()
    with pytest.raises(LightkubeError, match="not found") as missing:
        light.get(Pod, "absent", namespace=namespace)
    assert missing.value.status.reason == "NotFound"


def test_lightkube_applies_and_meets_conflicts(light, namespace):
    def colours(**data: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name="colours", namespace=namespace), data=data)

    light.apply(colours(a="1"), field_manager="first")
    assert light.apply(colours(b="2"), field_manager="second").data == {"a": "1", "b": "2"}
    conflict = 'Apply failed with 1 conflict: conflict with "first": .data.a'
    with pytest.raises(LightkubeError, match=re.escape(conflict)) as refused:
        light.apply(colours(a="3", b="2"), field_manager="second")
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    assert light.apply(colours(a="3", b="2"), field_manager="second", force=True).data == {"a": "3", "b": "2"}


@pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning")  # it knows up to 1.35
async def test_kr8s_keeps_objects(server, namespace):
    api = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig), namespace=namespace)
    made = await Kr8sConfigMap({"metadata": {"name": "one", "namespace": namespace}, "data": {"a": "b"}}, api=api)
    await made.create()
    assert await made.exists()
    await made.patch({"data": {"c": "d"}})
    assert dict(made.data) == {"a": "b", "c": "d"}
    await made.label({"app": "web"})
    found = [
        configmap.name async for configmap in api.get("configmaps", namespace=namespace, label_selector={"app": "web"})
    ]
    assert found == ["one"]
    pod = await Kr8sPod({**POD, "metadata": {"name": "web", "namespace": namespace}}, api=api)
    await pod.create()
    path = f"/api/v1/namespaces/{namespace}/pods/web/status"
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    merge = {"Content_Type": "application/merge-patch+json"}
    waiting = asyncio.create_task(pod.wait("condition=Ready", timeout=20))
    await asyncio.to_thread(server.rest, "PATCH", path, status, **merge)
    await waiting
    await pod.delete()
    await pod.wait("delete", timeout=20)
    assert not await pod.exists()
    assert {"pods", "configmaps"} <= {resource["name"] for resource in await api.api_resources()}
    assert (await api.version())["major"] == "1"


CONFIG_MAPS = BUILTIN.of_kind("v1", "ConfigMap")


async def test_our_informer_outlives_its_server(start_server):
    server = await asyncio.to_thread(start_server)
    async with http_client.connect(server.access) as http:
        client = Client(http)
        informer = client.informer(CONFIG_MAPS, Scope(namespace="default", label_selector="app"))
        changes = Changes(informer)

        async def put(name, **data):
            meta = {"name": name, "namespace": "default", "labels": {"app": "x"}}
            return await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

        await put("before", a="1")
        assert [type(item) for item in await changes.take(2)] in ([Added, Synced], [Synced, Added])
        for how in (server.kill, server.stop):
            await asyncio.to_thread(how)
            await asyncio.to_thread(server.start)
            name = f"after-{uuid.uuid4().hex[:6]}"
            await put(name)
            await client.patch(CONFIG_MAPS, "before", {"data": {"a": name}}, "default")
            await client.delete(CONFIG_MAPS, name, "default")
            delivered = [(type(item), item.object["metadata"]["name"]) for item in await changes.take(3)]
            assert delivered == [(Added, name), (Updated, "before"), (Deleted, name)]
        await changes.close()
        assert set(informer.objects) == {("default", "before")}


class Changes:
    """Events of an informer, collected in the background."""

    def __init__(self, informer):
        self._queue = asyncio.Queue()
        self._informer = informer
        self._task = asyncio.create_task(self._collect())

    async def _collect(self):
        async for change in self._informer:
            self._queue.put_nowait(change)

    async def take(self, count):
        async with asyncio.timeout(30):
            return [await self._queue.get() for _ in range(count)]

    async def close(self):
        self._task.cancel()
        await asyncio.wait([self._task])
        self._informer.close()
