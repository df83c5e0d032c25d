"""Namespaces and pods of a test, by the API client. Synchronous, as tests are."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from podwire.client import Api, connect
from podwire.protocols.k8sapi.status import ApiError
from podwire.testing.cluster import TestCluster
from podwire.testing.trace import Trace

READY_SECONDS = 60.0
_PAUSE = 0.05
IMAGE = "podwire.local/busybox:latest"
T = TypeVar("T")
Object = dict[str, Any]


def with_api(cluster: TestCluster, work: Callable[[Api], Awaitable[T]]) -> T:
    """Runs API calls."""

    async def connected() -> T:
        async with connect(str(cluster.kubeconfig)) as api:
            return await work(api)

    return asyncio.run(connected())


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a test."""

    cluster: TestCluster
    name: str
    namespace: str
    uid: str

    @property
    def object(self) -> Object:
        """The pod as the API server has it now."""
        return with_api(self.cluster, lambda api: api.get("v1", "Pod", self.name, self.namespace))

    @property
    def trace(self) -> Trace:
        return self.cluster.trace(self.uid, self.namespace)

    def run(self, *command: str) -> str:
        """Runs a command in its first container; returns its output. Raises AssertionError when it fails."""
        result = with_api(self.cluster, lambda api: api.run(self.name, list(command), namespace=self.namespace))
        if result.exit_code:
            raise AssertionError(f"{' '.join(command)}: exit code {result.exit_code}\n{result.stderr.decode()}")
        return result.stdout.decode()

    def delete(self) -> None:
        """Deletes it, and waits until it is gone."""

        async def work(api: Api) -> None:
            await api.delete("v1", "Pod", self.name, self.namespace, grace_seconds=0)
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    try:
                        found = await api.get("v1", "Pod", self.name, self.namespace)
                    except ApiError as error:
                        if error.code == 404:
                            return
                        raise
                    if found["metadata"]["uid"] != self.uid:
                        return
                    await asyncio.sleep(_PAUSE)

        with_api(self.cluster, work)


def create_namespace(cluster: TestCluster, prefix: str) -> str:
    """Creates a namespace for a test; returns its name, when pods can be created in it."""

    async def work(api: Api) -> str:
        meta = {"generateName": f"{prefix}-"}
        made = await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        name: str = made["metadata"]["name"]
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    await api.get("v1", "ServiceAccount", "default", name)
                except ApiError as error:
                    if error.code != 404:
                        raise
                    await asyncio.sleep(_PAUSE)
                else:
                    return name

    return with_api(cluster, work)


def delete_namespace(cluster: TestCluster, name: str) -> None:
    with_api(cluster, lambda api: api.delete("v1", "Namespace", name))


def run_pod(cluster: TestCluster, namespace: str, manifest: Object, *, ready: bool = True) -> Pod:
    """Creates a pod, and waits until it is ready. Raises AssertionError with its conditions and events."""

    async def work(api: Api) -> Pod:
        made = await api.create({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})
        meta = made["metadata"]
        pod = Pod(cluster, meta["name"], namespace, meta["uid"])
        if ready:
            await _wait_ready(api, pod)
        return pod

    return with_api(cluster, work)


async def _wait_ready(api: Api, pod: Pod) -> None:
    found: Object = {}
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not _is_ready(found):
                await asyncio.sleep(_PAUSE)
                found = await api.get("v1", "Pod", pod.name, pod.namespace)
    except TimeoutError:
        events = [event async for event in api.list("v1", "Event", namespace=pod.namespace)]
        shown = "\n".join(f"  {event['reason']}: {event['message']}" for event in events)
        message = f"pod {pod.namespace}/{pod.name} is not ready after {READY_SECONDS:g} s"
        raise AssertionError(f"{message}: {found.get('status', {}).get('conditions')}\n{shown}") from None


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def simple_pod(name: str, **spec: Any) -> Object:
    """A pod that waits, with the image of `podwire up`; `spec` is added to its specification."""
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "100000"]}
    meta = {"name": name} if name else {"generateName": "pod-"}
    full = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": full}
