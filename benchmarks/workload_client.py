"""Orders of the client about workloads: Deployments that become available, roll over, and Jobs that complete."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.runtimes import IMAGE
from benchmarks.server import DEADLINE
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, PatchType, Propagation, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

NAMESPACE = "default"
COMMAND = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]
JOB_SECONDS = 1.0
"""For each Job at most, on a slow machine."""
DEPLOYMENTS, JOBS = BUILTIN["apps/v1", "Deployment"], BUILTIN["batch/v1", "Job"]
_LINE = re.compile(r"^apiserver_request_total\{(.*)\} (\d+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def deployment(name: str, replicas: int) -> Object:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": COMMAND}
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def job(name: str) -> Object:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


class Workloads:
    """Runs workloads; each result has the seconds and the requests of all components, by verb and resource."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        name, count = order["name"], order["count"]
        steps: dict[str, Callable[[], Any]] = {
            "deploy": lambda: self._deploy(name, count),
            "roll": lambda: self._roll(name, count),
            "jobs": lambda: self._jobs(name, count),
            "remove": lambda: self._remove(name),
        }
        before, begin = await self._requests(), time.perf_counter()
        await steps[order["step"]]()
        seconds = time.perf_counter() - begin
        requests = await self._requests() - before
        return {"seconds": seconds, "requests": {f"{verb} {what}": n for (verb, what), n in requests.items()}}

    async def _deploy(self, name: str, count: int) -> None:
        await self._client.create(deployment(name, count))
        await self._until(DEPLOYMENTS, name, lambda found: _available(found, count))

    async def _roll(self, name: str, count: int) -> None:
        variable = [{"name": "main", "env": [{"name": "ROUND", "value": str(time.time_ns())}]}]
        patch = {"spec": {"template": {"spec": {"containers": variable}}}}
        changed = await self._client.patch(DEPLOYMENTS, name, patch, NAMESPACE, type_=PatchType.STRATEGIC)
        generation = changed["metadata"]["generation"]

        def rolled(found: Object) -> bool:
            status = found["status"]
            current = status.get("observedGeneration", 0) >= generation
            return current and status.get("replicas") == count and _available(found, count)

        await self._until(DEPLOYMENTS, name, rolled)

    async def _jobs(self, name: str, count: int) -> None:
        names = [f"{name}-{number}" for number in range(count)]
        done: set[str] = set()
        watching = await self._client.watch(JOBS, Scope(namespace=NAMESPACE))
        creating = asyncio.create_task(self._create_jobs(names))
        async with asyncio.timeout(DEADLINE * 4 + count * JOB_SECONDS):
            async for frame in watching:
                meta, status = frame.object["metadata"], frame.object.get("status") or {}
                if meta.get("name") in names and status.get("completionTime"):
                    done.add(meta["name"])
                if len(done) == count:
                    break
        await creating

    async def _create_jobs(self, names: Sequence[str]) -> None:
        for name in names:
            await self._client.create(job(name))

    async def _remove(self, name: str) -> None:
        """Removes a Deployment, or all Jobs, with their pods."""
        kind = DEPLOYMENTS if name else JOBS
        if name:
            await self._client.delete(kind, name, NAMESPACE, propagation=Propagation.FOREGROUND)
        else:
            await self._client.delete_collection(kind, Scope(namespace=NAMESPACE), propagation=Propagation.FOREGROUND)
        async with asyncio.timeout(DEADLINE * 10):
            while await self._pods():  # noqa: ASYNC110 - a measurement does not rely on events
                await asyncio.sleep(0.1)

    async def _pods(self) -> Sequence[Object]:
        return (await self._client.list(BUILTIN["v1", "Pod"], Scope(namespace=NAMESPACE))).items

    async def _until(self, kind: Kind, name: str, condition: Callable[[Object], bool]) -> None:
        async with asyncio.timeout(DEADLINE * 2):
            async with self._client.informer(
                kind, Scope(namespace=NAMESPACE, field_selector=f"metadata.name={name}")
            ) as seen:
                async for change in seen:
                    if (found := getattr(change, "object", None)) is not None and condition(found):
                        return

    async def _requests(self) -> "Counter[tuple[str, str]]":
        counts: Counter[tuple[str, str]] = Counter()
        for labels, number in _LINE.findall((await self._client.raw("/metrics")).decode()):
            row = dict(_LABEL.findall(labels))
            if row["resource"]:
                what = f"{row['resource']}/{row['subresource']}" if row["subresource"] else row["resource"]
                counts[row["verb"], what] += int(number)
        return counts


def _available(found: Object, count: int) -> bool:
    status = found.get("status") or {}
    return status.get("availableReplicas") == count and status.get("updatedReplicas") == count
