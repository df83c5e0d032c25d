"""Pods with claims for devices: how fast a scheduler decides on them, and binds them, in a cluster of some size."""

import asyncio
import contextlib
import logging
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK, CannotMeasure, on_core
from benchmarks.server import PODWIRE, ROOT, Server
from podwire.objects import claims, device_classes, nodes, slices
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.watch import Added, Updated
from podwire.scheduler import Chosen, Snapshot, choose, pod_info
from podwire.scheduler.claims import dynamic_resources
from podwire.scheduler.kinds import PODS
from podwire.transports import credentials, http_client

NODES, DEVICES, BOUND = 500, 8, 600
DRIVER, SPACE = "bench.podwire.dev", "default"
SELECTOR = f'device.attributes["{DRIVER}"].mtu >= 9000'
GROUP = f"Pods with a claim, {NODES} nodes of {DEVICES} devices"
DEADLINE = 120.0


def measure(seconds: float) -> Iterator[Figure]:
    logging.getLogger("podwire").setLevel(logging.ERROR)
    yield _decisions(seconds)
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        rate = _bound(Path(folder))
    budget = Peer("budget", 100.0, 1.0, MEASURED)
    yield Figure(group=GROUP, what="claims written and pods bound", value=rate, unit="/s", peer=budget)


def node(number: int) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": f"n{number:03}"}
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {"metadata": {"name": f"n{number:03}", "labels": labels}, "status": {"allocatable": allocatable}}


def slice_(number: int) -> dict[str, Any]:
    devices = [
        {"name": f"eth{port}", "attributes": {"mtu": {"int": 9000 if port % 2 else 1500}}} for port in range(DEVICES)
    ]
    pool = {"name": f"n{number:03}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": f"n{number:03}", "devices": devices}
    return {"metadata": {"name": f"n{number:03}"}, "spec": spec}


def class_() -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {"metadata": {"name": "nic"}, "spec": {"selectors": selectors}}


def claim(number: int) -> dict[str, Any]:
    exactly = {"deviceClassName": "nic", "selectors": [{"cel": {"expression": SELECTOR}}], "count": 1}
    meta = {"name": f"claim-{number}", "namespace": SPACE, "uid": f"uid-claim-{number}"}
    return {"metadata": meta, "spec": {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}}


def pod(number: int) -> dict[str, Any]:
    meta = {"name": f"pod-{number}", "namespace": SPACE, "uid": f"uid-pod-{number}"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "10m"}}}
    asked = [{"name": "nic", "resourceClaimName": f"claim-{number}"}]
    return {"metadata": meta, "spec": {"containers": [container], "resourceClaims": asked}}


def _decisions(seconds: float) -> Figure:
    """The decision alone: filters, search, scores, and the devices counted as taken."""
    snapshot = Snapshot()
    claim_cache = snapshot.claims
    claim_cache.known = True
    claim_cache.classes["nic"] = device_classes.read(class_())
    for number in range(NODES):
        snapshot.put_node(nodes.read(node(number)))
        claim_cache.inventory.put_slice(slices.read(slice_(number)))
    times: list[float] = []
    end = time.perf_counter() + seconds
    for number in range(NODES * DEVICES // 2):
        claim_cache.put_claim(claims.read(claim(number)))
        info = pod_info.read(pod(number))
        begun = time.perf_counter()
        choice = choose(info, snapshot)
        if not isinstance(choice, Chosen):
            raise CannotMeasure(choice.message)
        claim_cache.reserve(info.pod.uid, dynamic_resources.decide_claims(info, snapshot, choice.node))
        snapshot.put_pod(info, choice.node)
        times.append((time.perf_counter() - begun) * 1e3)
        if len(times) > 1 and time.perf_counter() > end:
            break
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    budget = Peer("budget", 5.0, 1.0, MEASURED)
    return Figure(group=GROUP, what="one decision", value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=budget)


def _bound(folder: Path) -> float:
    """Pods per second, by a scheduler and a server in processes of their own."""
    server = Server(folder)
    try:
        _fill(server)
        kubeconfig = folder / "kubeconfig"
        command = [*on_core(-1), *PODWIRE, "scheduler", "--kubeconfig", str(kubeconfig)]
        with (
            (folder / "scheduler.log").open("wb") as log,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            scheduler = subprocess.Popen(command, stderr=log, cwd=ROOT)
            try:
                return runner.run(_watched(kubeconfig))
            finally:
                scheduler.terminate()
                scheduler.wait(DEADLINE)
    finally:
        server.stop()


def _fill(server: Server) -> None:
    account = {"metadata": {"name": "default", "namespace": SPACE}}
    with contextlib.suppress(CannotMeasure):  # its controller may have been quicker
        server.call("POST", f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    server.fill("/api/v1/nodes", map(node, range(NODES)))
    server.fill("/apis/resource.k8s.io/v1/resourceslices", map(slice_, range(NODES)))
    server.fill("/apis/resource.k8s.io/v1/deviceclasses", [class_()])
    server.fill(f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaims", map(claim, range(BOUND)))
    server.fill(f"/api/v1/namespaces/{SPACE}/pods", map(pod, range(BOUND)))


async def _watched(kubeconfig: Path) -> float:
    """From the first pod that has a node to the last."""
    seen: set[str] = set()
    first = 0.0
    placed = Scope(field_selector="spec.nodeName!=")
    async with (
        asyncio.timeout(DEADLINE),
        http_client.connect(credentials.load(kubeconfig)) as http,
        Client(http).informer(PODS, placed) as informer,
    ):
        async for change in informer:
            if isinstance(change, Added | Updated):
                first = first or time.monotonic()
                seen.add(change.object["metadata"]["name"])
                if len(seen) == BOUND:
                    return (BOUND - 1) / (time.monotonic() - first)
    raise AssertionError("an informer never ends")
