"""Watches claims that pods wait for, by name, until they do not wait any more."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from podwire.kubelet.claims import pod_claims
from podwire.objects import claims
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated

log = logging.getLogger(__name__)


def _kind() -> Kind:
    kind = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceClaim")
    if kind is None:
        raise LookupError("ResourceClaim")
    return kind


CLAIMS = _kind()


def _version(change: Added | Updated | Deleted) -> str:
    try:
        return "" if isinstance(change, Deleted) else pod_claims.version(claims.read(change.object))
    except msgspec.ValidationError:
        return ""


class ClaimWatches:
    """`changed` is called with the uid of the pod. `run` is the parent of all watches."""

    def __init__(self, api: Client, changed: Callable[[str], None]) -> None:
        self._api = api
        self._changed = changed
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        """By the pod's uid and the claim's name."""
        self._running: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._running = group
            try:
                await asyncio.Event().wait()
            finally:
                self._running = None  # a task group that is shutting down refuses new tasks

    def wait(self, uid: str, namespace: str, seen: Mapping[str, str]) -> None:
        """Watch these claims: `seen` is, by name, the version that the pod has seen, empty if there was no claim."""
        if self._running is None:
            return
        tasks = self._tasks.setdefault(uid, {})
        for name in tasks.keys() - seen.keys():
            tasks.pop(name).cancel()
        for name in seen.keys() - tasks.keys():
            watch = self._follow(uid, namespace, name, seen[name])
            tasks[name] = self._running.create_task(watch, name=f"claim {namespace}/{name}")

    def forget(self, uid: str) -> None:
        for task in self._tasks.pop(uid, {}).values():
            task.cancel()

    async def _follow(self, uid: str, namespace: str, name: str, seen: str) -> None:
        scope = Scope(namespace=namespace, field_selector=f"metadata.name={name}")
        try:
            async with self._api.informer(CLAIMS, scope) as informer:
                async for change in informer:
                    if isinstance(change, Added | Updated | Deleted) and (now := _version(change)) != seen:
                        seen = now
                        self._changed(uid)
        except ApiError as error:  # nodes may be allowed to get a claim and not to watch it
            log.info("cannot watch claim", extra={"claim": f"{namespace}/{name}", "error": error.message})
