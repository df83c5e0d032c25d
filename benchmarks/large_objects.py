"""The objects of a large cluster, and a store that is filled with them before a server starts."""

import asyncio
import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.server import TOKEN, serving
from benchmarks.workload import NAMESPACE, PODS, pod
from podwire.kinds import stored
from podwire.kubelet.hollow import HollowSettings
from podwire.kubelet.hollow.settings import pod_address
from podwire.kubelet.node import node_object
from podwire.linux.machine import KernelMachine
from podwire.store import open_store

DRIVER, DEVICES = "gpu.example.com", 8
ZONES, APPS = 10, 20
BATCH = 500
TIME = "2026-01-01T00:00:00Z"
Object = dict[str, Any]


def settings(nodes: int) -> HollowSettings:
    return HollowSettings(nodes=nodes, zones=ZONES, dra_driver=DRIVER, dra_devices=DEVICES)


def _meta(kind: int, number: int, **given: Any) -> Object:
    return {"uid": f"00000000-0000-4000-{8000 + kind}-{number:012d}", "creationTimestamp": TIME, **given}


def _node(of: HollowSettings, number: int) -> Object:
    made = node_object.node(of.snapshot(number, KernelMachine().facts()), of.node(number), TIME)
    return {**made, "metadata": {**made["metadata"], **_meta(0, number)}}


def _slice(of: HollowSettings, number: int) -> Object:
    made = of.resource_slice(number, f"00000000-0000-4000-8000-{number:012d}")
    return {**made, "metadata": {**made["metadata"], **_meta(1, number)}}


@functools.cache
def _defaulted() -> Object:
    """A pod as an API server stores it, with all defaults."""
    with serving("--store", "memory://", "--controllers", "none") as server:
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        server.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        made = pod("pod")
        server.call("POST", PODS, {**made, "spec": {**made["spec"], "nodeName": "hollow-0"}})
        with contextlib.closing(server.connect()) as wire:
            wire.request("GET", f"{PODS}/pod", headers={"Authorization": f"Bearer {TOKEN}"})
            read: Object = json.loads(wire.getresponse().read())
            return read


def running_pod(nodes: int, number: int) -> Object:
    made, node = _defaulted(), number % nodes
    state = {"running": {"startedAt": TIME}}
    container = {
        "name": "web", "image": "registry.example/web:1.25", "imageID": "registry.example/web:1.25", "ready": True,
        "restartCount": 0, "started": True, "state": state, "lastState": {}, "containerID": f"hollow://pod-{number}",
    }  # fmt: skip
    address = pod_address(node, number // nodes)
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        **made,
        "metadata": _meta(2, number, name=f"pod-{number}", namespace=NAMESPACE, labels={"app": f"app-{number % APPS}"}),
        "spec": {**made["spec"], "nodeName": f"hollow-{node}"},
        "status": {
            "phase": "Running",
            "startTime": TIME,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": TIME} for type_ in types],
            "containerStatuses": [container],
        },
    }


def objects(nodes: int, pods: int) -> Iterator[tuple[str, Object]]:
    """Yields storage keys and objects."""
    of = settings(nodes)
    expression = f'device.driver == "{DRIVER}"'
    class_ = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": _meta(3, 0, name="gpu"),
              "spec": {"selectors": [{"cel": {"expression": expression}}]}}  # fmt: skip
    yield "/registry/deviceclasses/gpu", class_
    for number in range(nodes):
        yield f"/registry/minions/{of.name(number)}", _node(of, number)
        slice_ = _slice(of, number)
        yield f"/registry/resourceslices/{slice_['metadata']['name']}", slice_
    for number in range(pods):
        yield f"/registry/pods/{NAMESPACE}/pod-{number}", running_pod(nodes, number)


def fill(url: str, folder: Path, nodes: int, pods: int) -> None:
    """Faster than by requests."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    asyncio.run(_fill(url, folder, nodes, pods))


async def _fill(url: str, folder: Path, nodes: int, pods: int) -> None:
    store = await open_store(url, folder)
    batch: list[tuple[str, Object]] = []
    for item in objects(nodes, pods):
        batch.append(item)
        if len(batch) == BATCH:
            await asyncio.gather(*(store.create(key, stored.pack(object_)) for key, object_ in batch))
            batch.clear()
    await asyncio.gather(*(store.create(key, stored.pack(object_)) for key, object_ in batch))
    await store.close()


def pending_pod(kind: str, number: int) -> Object:
    """A pod without a node: plain, with affinity and spreading, or with a claim."""
    app = f"new-{number % APPS}"
    selector = {"matchLabels": {"app": app, "kind": kind}}
    requests = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    spec: Object = {"containers": [{"name": "web", "image": "registry.example/web:1.25", "resources": requests}]}
    if kind == "affinity":
        zone = {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector}  # fmt: skip
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        spec["topologySpreadConstraints"] = [zone]
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if kind == "claims":
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"claim-{number}"}]
    return {"metadata": {"name": f"{kind}-{number}", "labels": {"app": app, "kind": kind}}, "spec": spec}


def claim(number: int) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {"metadata": {"name": f"claim-{number}"}, "spec": {"devices": {"requests": [request]}}}
