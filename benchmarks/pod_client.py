"""The client of the benchmarks of whole pods: `python -m benchmarks.pod_client KUBECONFIG PATTERN …`.

It runs beside a cluster, where its API server is reached. Each line on stdin is an order, each line on stdout the
answer to it, as JSON; times are seconds. It has one watch open, as a client has that waits for a pod. The patterns
are of files that are there as long as there are pods.
"""

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.runtimes import IMAGE
from benchmarks.server import DEADLINE
from benchmarks.workload_client import Workloads
from podwire.linux.proc.processes import memory_of
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import DELETED, Object
from podwire.transports import credentials, http_client

NAMESPACE = "default"
GRACE = 30
PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
COMMAND = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]


def pod(name: str, *, token: bool, claim: str = "") -> dict[str, Any]:
    """A shell that ends on SIGTERM, with a local image; with a claim from a template, if named."""
    container: dict[str, Any] = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": COMMAND}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": GRACE}
    if claim:
        container["resources"] = {"claims": [{"name": "claim"}]}
        spec["resourceClaims"] = [{"name": "claim", "resourceClaimTemplateName": claim}]
    if not token:
        spec["automountServiceAccountToken"] = False
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def runs(object_: Object) -> bool:
    """Whether a pod is Running, with an address and all containers ready."""
    status = object_.get("status") or {}
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
    return status.get("phase") == "Running" and bool(status.get("podIP")) and ready


def is_unschedulable(object_: Object) -> bool:
    conditions = (object_.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable" for condition in conditions
    )


class Pods:
    """Makes and removes pods, and knows when the watch showed what."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._running: dict[str, asyncio.Future[float]] = {}
        self._gone: dict[str, asyncio.Future[float]] = {}
        self._unschedulable: dict[str, asyncio.Future[float]] = {}

    async def watch(self, opened: Callable[[], object]) -> None:
        watching = await self._client.watch(PODS, Scope(namespace=NAMESPACE))
        opened()
        async for frame in watching:
            now = time.perf_counter()
            name = frame.object["metadata"].get("name", "")
            if frame.type == DELETED:
                _settle(self._gone, name, now)
            elif runs(frame.object):
                _settle(self._running, name, now)
            elif is_unschedulable(frame.object):
                _settle(self._unschedulable, name, now)
        raise ConnectionError("the watch ended")

    async def make(self, objects: Sequence[Object]) -> None:
        for object_ in objects:
            await self._client.create(object_)

    async def start(self, names: Sequence[str], *, token: bool, claim: str = "") -> list[float]:
        """Returns how long each pod took from its POST until it was Running."""
        return await asyncio.gather(*(self._start(pod(name, token=token, claim=claim)) for name in names))

    async def delete(self, names: Sequence[str], *, grace: int | None) -> list[float]:
        """Returns how long each pod took from its DELETE until it was gone."""
        return await asyncio.gather(*(self._delete(name, grace) for name in names))

    async def replace(self, waiting: str, ends: str, *, after: float) -> list[float]:
        """Starts a pod although no address is left, and deletes another one `after` seconds later.

        Returns the time from that DELETE until the first pod was Running.
        """
        starting = asyncio.create_task(self._start(pod(waiting, token=False)))
        await asyncio.sleep(after)
        if starting.done():
            raise ValueError(f"{waiting} did not have to wait for an address")
        begin = time.perf_counter()
        seen = self._running[waiting]
        await self._delete(ends, 0)
        await starting
        return [seen.result() - begin]

    async def hand_over(self, owner: str, follower: str, *, claim: str) -> float:
        """Deletes a pod whose device another pod waits for; returns how long that took to be Running from the moment
        when the first pod was gone."""
        waiting = self._unschedulable[follower] = asyncio.get_running_loop().create_future()
        started = self._running[follower] = asyncio.get_running_loop().create_future()
        await self._client.create(pod(follower, token=False, claim=claim))
        await _moment(waiting)
        gone = self._gone[owner] = asyncio.get_running_loop().create_future()
        await self._client.delete(PODS, owner, NAMESPACE)
        freed = await _moment(gone)
        return await _moment(started) - freed

    async def _start(self, pod: dict[str, Any]) -> float:
        seen = self._running[pod["metadata"]["name"]] = asyncio.get_running_loop().create_future()
        begin = time.perf_counter()
        await self._client.create(pod)
        return await _moment(seen) - begin

    async def _delete(self, name: str, grace: int | None) -> float:
        seen = self._gone[name] = asyncio.get_running_loop().create_future()
        begin = time.perf_counter()
        await self._client.delete(PODS, name, NAMESPACE, grace_seconds=grace)
        return await _moment(seen) - begin


async def _moment(seen: asyncio.Future[float]) -> float:
    async with asyncio.timeout(DEADLINE):
        return await seen


def _settle(waiting: dict[str, asyncio.Future[float]], name: str, now: float) -> None:
    future = waiting.pop(name, None)
    if future is not None and not future.done():
        future.set_result(now)


SHIMS = ("podwire-shim", "containerd-shim")
COMPONENTS = ("podwire-up", "pw-", "containerd")
"""Prefixes of process names: per container, and per node."""


def usage() -> dict[str, dict[str, float]]:
    """Returns for each kind of process: number, memory, CPU seconds, and context switches."""
    totals: dict[str, Counter[str]] = {}
    for process, name in _processes():
        kind = "shims" if name.startswith(SHIMS) else name
        with contextlib.suppress(OSError):  # it has ended
            totals.setdefault(kind, Counter()).update(
                {"count": 1, "bytes": memory_of(int(process.name)), **_run(process)}
            )
    return {kind: dict(counts) for kind, counts in totals.items()}


def _processes() -> Iterator[tuple[Path, str]]:
    """Yields the processes of the cluster with their names, also those in the PID namespaces of its nodes."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name = (path / "comm").read_text(encoding="utf-8").strip()
            if name.startswith((*SHIMS, *COMPONENTS)):
                yield path, name


def _run(process: Path) -> dict[str, float]:
    seconds, slept = 0.0, 0
    for path in (process / "task").iterdir():
        seconds += int((path / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        status = (path / "status").read_text(encoding="utf-8")
        slept += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return {"cpu": seconds, "slept": slept}


async def nothing_left(patterns: Sequence[str]) -> None:
    """Waits until no file of a pod and no shim is left."""
    async with asyncio.timeout(DEADLINE):
        while _left(patterns):  # noqa: ASYNC110 - a measurement does not rely on events
            await asyncio.sleep(0.002)


def _left(patterns: Sequence[str]) -> bool:
    files = any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in patterns)
    return files or any(name.startswith(SHIMS) for _, name in _processes())


async def serve(kubeconfig: str, patterns: Sequence[str]) -> None:
    async with (
        http_client.connect(credentials.load(kubeconfig), user_agent="benchmark") as http,
        asyncio.TaskGroup() as tasks,
    ):
        pods, workloads, opened = Pods(Client(http)), Workloads(Client(http)), asyncio.Event()
        watch = tasks.create_task(pods.watch(opened.set))
        await opened.wait()
        gc.freeze()
        async for order in _orders():
            if order["do"] == "workload":
                result = await workloads.obey(order)
            else:
                result = await _obey(pods, order, patterns)
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
        watch.cancel()


async def _obey(pods: Pods, order: dict[str, Any], patterns: Sequence[str]) -> dict[str, Any]:
    begin = time.perf_counter()
    match order["do"]:
        case "start":
            taken = await pods.start(order["names"], token=order["token"], claim=order["claim"])
        case "hand over":
            taken = [await pods.hand_over(order["owner"], order["follower"], claim=order["claim"])]
        case "make":
            await pods.make(order["objects"])
            return {}
        case "replace":
            taken = await pods.replace(order["waiting"], order["ends"], after=order["after"])
        case "delete":
            taken = await pods.delete(order["names"], grace=order["grace"])
        case _:
            return usage()
    all_ = time.perf_counter() - begin
    if order["do"] == "delete" and order["wait"]:
        await nothing_left(patterns)
    return {"each": taken, "all": all_, "left": time.perf_counter() - begin}


async def _orders() -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(sys.argv[1], sys.argv[2:]))
