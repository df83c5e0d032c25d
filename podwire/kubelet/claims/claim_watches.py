"""Claims that pods wait for, watched by name until they need not wait any more."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from podwire.kubelet.claims import pod_claims
from podwire.kubelet.ports import Api
from podwire.objects import claims
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated

log = logging.getLogger(__name__)


def _kind() -> Kind:
    found = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceClaim")
    if found is None:
        raise LookupError("ResourceClaim")
    return found


CLAIMS = _kind()


def _mark(change: Added | Updated | Deleted) -> str:
    try:
        return "" if isinstance(change, Deleted) else pod_claims.claim_fingerprint(claims.read(change.object))
    except msgspec.ValidationError:
        return ""


class ClaimWatches:
    """`changed` is told the uid of the pod. `run` is the parent of all watches."""

    def __init__(self, api: Api, changed: Callable[[str], None]) -> None:
        self._api = api
        self._changed = changed
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        """By the pod's uid and the claim's name."""
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None  # a group that ends takes nobody new

    def wait(self, uid: str, namespace: str, seen: Mapping[str, str]) -> None:
        """Tell when one of these claims is not what was seen: by name, its mark, or nothing if there was none."""
        if self._group is None:
            return
        tasks = self._tasks.setdefault(uid, {})
        for name in tasks.keys() - seen.keys():
            tasks.pop(name).cancel()
        for name in seen.keys() - tasks.keys():
            watch = self._follow(uid, namespace, name, seen[name])
            tasks[name] = self._group.create_task(watch, name=f"claim {namespace}/{name}")

    def forget(self, uid: str) -> None:
        for each in self._tasks.pop(uid, {}).values():
            each.cancel()

    async def _follow(self, uid: str, namespace: str, name: str, seen: str) -> None:
        scope = Scope(namespace=namespace, field_selector=f"metadata.name={name}")
        try:
            async with self._api.informer(CLAIMS, scope) as informer:
                async for change in informer:
                    if isinstance(change, Added | Updated | Deleted) and (now := _mark(change)) != seen:
                        seen = now
                        self._changed(uid)
        except ApiError as error:  # a server that lets nodes read a claim need not let them watch it
            log.info("claim not watched", extra={"claim": f"{namespace}/{name}", "why": error.message})
