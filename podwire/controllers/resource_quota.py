"""ResourceQuota: keeps status.hard and status.used of every quota.

The API server adds what new objects use; this controller recalculates everything after a change, so that deleted and
finished objects are given back, and corrects what the API server could not know. A burst of changes is one
recalculation. The write names the version that was read, so a charge in between is not lost: it starts again.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import QUOTAS, KnownKinds, preferred
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.kinds.podspec.resource_totals import Amounts
from podwire.kinds.quota.decision import total
from podwire.kinds.quota.evaluators import SPECIAL, counted_kind, evaluator_of
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

Ref = tuple[str, str]
"""Namespace and name."""


class QuotaController:
    """Recalculates a quota at once when it is new, soon after objects of its namespace were deleted, later after they
    have changed, and from time to time."""

    resources: ClassVar = None

    def __init__(self, api: Client, graph: Graph, kinds: KnownKinds, clock: Clock, limits: Limits = DEFAULT) -> None:
        self._api = api
        self._graph = graph
        self._kinds = kinds
        self._clock = clock
        self._limits = limits
        self._queue: WorkQueue[Ref] = WorkQueue("resource_quota", self._reconcile, workers=2)
        self.timers: Timers[Ref] = Timers(clock, self._queue.add)
        self._due: dict[Ref, float] = {}
        self._quotas: dict[str, set[str]] = {}
        """Names by namespace."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or not latest.namespace:
            return
        if latest.resource == resource_of(QUOTAS):
            self._quota_changed(before, now, (latest.namespace, latest.name))
        elif latest.namespace in self._quotas and evaluator_of(*latest.resource) is not None:
            delay = self._limits.quota_delay if now is None else self._limits.quota_settle
            for name in self._quotas[latest.namespace]:
                self._schedule((latest.namespace, name), delay)

    def _quota_changed(self, before: PartialObject | None, now: PartialObject | None, ref: Ref) -> None:
        namespace, name = ref
        if now is None:
            names = self._quotas.get(namespace, set())
            names.discard(name)
            if not names:
                self._quotas.pop(namespace, None)
            self._due.pop(ref, None)
            self.timers.cancel(ref)
            return
        self._quotas.setdefault(namespace, set()).add(name)
        if before is not None:
            self._schedule(ref, self._limits.quota_settle)
        elif self._graph.complete:
            self._queue.add(ref)

    def _schedule(self, ref: Ref, delay: float) -> None:
        """Recalculates after a delay, or earlier if that is already planned."""
        due = self.timers.now() + delay
        if due < self._due.get(ref, float("inf")):
            self._due[ref] = due
            self.timers.set(ref, due)

    def on_synced(self) -> None:
        for namespace, names in self._quotas.items():
            for name in names:
                self._queue.add((namespace, name))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self.timers.run())

    async def _reconcile(self, ref: Ref) -> None:
        self._due.pop(ref, None)
        namespace, name = ref
        if name not in self._quotas.get(namespace, ()):
            return
        try:
            quota = await self._api.get(QUOTAS, name, namespace)
            status = {"hard": (quota.get("spec") or {}).get("hard") or {}, "used": await self._used(quota)}
            if not _same(status, quota.get("status") or {}):
                await self._api.replace({**quota, "status": status}, subresource="status")
        except ApiError as error:
            if error.code != 404:  # a conflict too: the quota was charged meanwhile
                raise
        self._schedule(ref, self._limits.quota_resync)

    async def _used(self, quota: Object) -> dict[str, str]:
        """Returns the usage of every resource of the quota whose kind is served."""
        hard = (quota.get("spec") or {}).get("hard") or {}
        wanted = {counted_kind(name) for name in hard} - {None}
        served = {resource_of(kind): kind for kind in preferred(await self._kinds.all()) if kind.namespaced}
        used: Amounts = {}
        for resource in wanted:
            kind = served.get(resource) if resource else None
            evaluator = evaluator_of(*resource_of(kind)) if kind else None
            if kind is not None and evaluator is not None:
                objects = await self._objects(kind, quota["metadata"]["namespace"])
                used.update(total(quota, evaluator, objects, self._clock.wall()))
        return {name: str(amount) for name, amount in used.items()}

    async def _objects(self, kind: Kind, namespace: str) -> Sequence[Object]:
        scope = Scope(namespace=namespace, metadata_only=resource_of(kind) not in SPECIAL)
        return (await self._api.list(kind, scope)).items


def _same(new: Object, old: Object) -> bool:
    return all(new[part] == (old.get(part) or {}) for part in ("hard", "used")) and "hard" in old
