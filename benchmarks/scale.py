"""A large cluster's API server: memory beside many watches, and small requests beside large lists."""

import asyncio
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure
from benchmarks.machine import DISK, CannotMeasure
from benchmarks.server import TOKEN, Server
from benchmarks.workload import NAMESPACE, PODS, pod
from podwire.kinds import stored
from podwire.linux.proc.processes import memory_of
from podwire.store.sqlite import SqliteStore

PODS_OF_A_LARGE_CLUSTER = 20_000
NODES = 5_000
LISTS = 4
CHANGES = 3_000
CHANGED_PODS = 100
ANNOTATION = "x" * 15_000
"""Makes a pod of 17 KB, as operators with much to say write them."""
META = "g=meta.k8s.io;v=v1"
FORMS = {
    "object": "application/json",
    "metadata": f"application/json;as=PartialObjectMetadata;{META}",
    "table": f"application/json;as=Table;{META}",
}
SELECTORS = ("", "&fieldSelector=spec.nodeName%3Dnode-1", "&fieldSelector=status.phase!%3DFailed", "&labelSelector=app")
BATCH = 500


def mixed_watches() -> Iterator[Figure]:
    """Twelve watches in three forms, with and without selectors, while large pods change."""
    with _filled(pods=0) as server:
        server.fill(PODS, (_pod_of_node(number) for number in range(CHANGED_PODS)))
        before = memory_of(server.process.pid)
        reading = [
            threading.Thread(
                target=_read_watch, args=(server, f"/api/v1/pods?watch=true{selector}", accept), daemon=True
            )
            for accept in FORMS.values()
            for selector in SELECTORS
        ]
        for thread in reading:
            thread.start()
        time.sleep(1)
        _change_pods(server)
        grown = memory_of(server.process.pid) - before
    yield Figure(
        group=f"{len(reading)} watches, while {CHANGES} changes of pods of 17 KB pass",
        what="memory, grown by",
        value=grown / 1e6,
        unit=" MB",
    )


def large_lists() -> Iterator[Figure]:
    """A small GET beside lists of all pods, lists by node, and the memory after all that."""
    group = f"API server with {PODS_OF_A_LARGE_CLUSTER} pods"
    with _filled(pods=PODS_OF_A_LARGE_CLUSTER) as server:
        before = memory_of(server.process.pid)
        stalls, seconds = _get_while(server, ["/api/v1/pods"] * LISTS)
        yield Figure(group=group, what=f"small GET beside {LISTS} LISTs, worst", value=max(stalls), unit=" ms",
                     p50_ms=statistics.median(stalls))  # fmt: skip
        yield Figure(
            group=group, what=f"{LISTS} LISTs of all, until the last has ended", value=seconds * 1e3, unit=" ms"
        )
        by_node = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-7"
        stalls, seconds = _get_while(server, [by_node])
        yield Figure(group=group, what="small GET beside the first LIST by node, worst", value=max(stalls), unit=" ms",
                     p50_ms=statistics.median(stalls))  # fmt: skip
        yield Figure(group=group, what="LIST by node, the first", value=seconds * 1e3, unit=" ms")
        took = [_list(server, by_node, FORMS["object"]) for _ in range(20)]
        yield Figure(group=group, what="LIST by node, later", value=statistics.median(took) * 1e3, unit=" ms")
        for accept in FORMS.values():
            _list(server, "/api/v1/pods", accept)
        yield Figure(group=group, what="memory before", value=before / 1e6, unit=" MB")
        yield Figure(group=group, what="memory after the lists", value=memory_of(server.process.pid) / 1e6, unit=" MB")


@contextlib.contextmanager
def _filled(*, pods: int) -> Iterator[Server]:
    """A server over a store that was filled beforehand, which is faster than by requests."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        store = Path(folder) / "store"
        store.mkdir(mode=0o700)
        asyncio.run(_fill(store, pods))
        server = Server(Path(folder))
        try:
            server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            yield server
        finally:
            server.stop()


async def _fill(directory: Path, pods: int) -> None:
    store = await SqliteStore.open(directory)
    for start in range(0, pods, BATCH):
        numbers = range(start, min(pods, start + BATCH))
        await asyncio.gather(
            *(store.create(f"/registry/pods/{NAMESPACE}/pod-{number}", _stored_pod(number)) for number in numbers)
        )
    await store.close()


def _pod_of_node(number: int) -> dict[str, Any]:
    made = pod(f"pod-{number}")
    return {**made, "spec": {**made["spec"], "nodeName": f"node-{number % NODES}"}}


def _stored_pod(number: int) -> bytes:
    made = _pod_of_node(number)
    metadata = {**made["metadata"], "namespace": NAMESPACE, "uid": f"00000000-0000-4000-8000-{number:012d}"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": "Running", "conditions": [{"type": f"C{each}", "status": "True", "message": "m" * 60}
                                                 for each in range(12)]}  # fmt: skip
    return stored.pack(
        {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": made["spec"], "status": status}
    )


def _change_pods(server: Server) -> None:
    with contextlib.closing(server.connect()) as wire:
        for number in range(CHANGES):
            annotations = {"long": ANNOTATION, "number": str(number)}
            body = msgspec.json.encode({"metadata": {"annotations": annotations}})
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/merge-patch+json"}
            wire.request("PATCH", f"{PODS}/pod-{number % CHANGED_PODS}", body=body, headers=headers)
            answer = wire.getresponse()
            text = answer.read()
            if answer.status != HTTPStatus.OK:
                raise CannotMeasure(f"a pod cannot be changed: {text.decode()[:500]}")


def _read_watch(server: Server, path: str, accept: str) -> None:
    with contextlib.suppress(OSError, ValueError), contextlib.closing(server.connect()) as wire:
        answer = _get(wire, path, accept)
        while answer.read1(1 << 20):
            pass


def _list(server: Server, path: str, accept: str) -> float:
    begin = time.perf_counter()
    with contextlib.closing(server.connect()) as wire:
        answer = _get(wire, path, accept)
        while answer.read1(1 << 20):
            pass
    return time.perf_counter() - begin


def _get_while(server: Server, lists: list[str]) -> tuple[list[float], float]:
    """Returns the milliseconds of small GETs while these lists are read, and the seconds of all lists."""
    threads = [threading.Thread(target=_list, args=(server, path, FORMS["object"])) for path in lists]
    stalls = []
    with contextlib.closing(server.connect()) as wire:
        _get(wire, f"/api/v1/namespaces/{NAMESPACE}").read()
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        while not stalls or any(thread.is_alive() for thread in threads):
            asked = time.perf_counter()
            _get(wire, f"/api/v1/namespaces/{NAMESPACE}").read()
            stalls.append((time.perf_counter() - asked) * 1e3)
        seconds = time.perf_counter() - begin
    return stalls, seconds


def _get(wire: Any, path: str, accept: str = FORMS["object"]) -> Any:
    wire.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", "Accept": accept})
    return wire.getresponse()
