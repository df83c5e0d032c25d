"""The loop that controllers of one kind share: reconcile an object when it, its dependents or a timer call for it.

A controller names its kind and the kinds of its dependents, and implements `reconcile(owner)`. Dependents are found by
their controller reference, orphans by the selectors of owners in their namespace. Nothing is reconciled before all
objects are known. Failures are retried with back-off by the work queue.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from podwire.controllers.adoption import Adoption
from podwire.controllers.context import Context
from podwire.controllers.expectations import Expectations
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import PodControl
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.objects import selectors
from podwire.objects.selectors import NOTHING, LabelSelector
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


class _Spec(msgspec.Struct):
    selector: dict[str, Any] | None = None


class _WithSelector(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_WithSelector).decode


class Reconciler:
    """Reconciles the objects of one kind, by uid."""

    name: ClassVar[str]
    """The controller's name in `--controllers`."""
    component: ClassVar[str] = ""
    """The name in events, where upstream has another one."""
    kind: ClassVar[Kind]
    dependents: ClassVar[tuple[Kind, ...]] = ()
    workers: ClassVar[int] = 4

    def __init__(self, context: Context) -> None:
        self.context = context
        self.api, self.graph, self.clock, self.limits = context.api, context.graph, context.clock, context.limits
        self.recorder = Recorder(context.api, context.clock, component=self.component or self.name)
        self.pods = PodControl(context.api, self.recorder)
        self.adoption = Adoption(context.api)
        self.expectations = Expectations(context.clock)
        self.queue: WorkQueue[str] = WorkQueue(
            self.name.removesuffix("-controller"), self._reconcile, workers=self.workers
        )
        self.timers: Timers[str] = Timers(context.clock, self.queue.add)
        self._selectors: dict[str, LabelSelector] = {}

    async def reconcile(self, owner: PartialObject) -> None:
        """Brings one object to its desired state. Raises ApiError, ClientError or NotYet to be called again."""
        raise NotImplementedError

    def selector_of(self, spec: Mapping[str, Any]) -> LabelSelector:
        """Returns the selector of an object's spec; one that is invalid selects nothing."""
        try:
            return selectors.from_object(spec.get("selector"))
        except ValueError:
            return NOTHING

    @property
    def resources(self) -> frozenset[tuple[str, str]]:
        return frozenset(map(resource_of, (self.kind, *self.dependents)))

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.kind.group_resource == self.kind.group_resource:
            self._owner_changed(latest, now)
        else:
            self.on_dependent(before, now)

    def _owner_changed(self, latest: PartialObject, now: PartialObject | None) -> None:
        if now is None:
            self.forget(latest.uid)
        elif now.json:
            self._selectors[now.uid] = self.selector_of({"selector": _decode(now.json).spec.selector})
        self.enqueue(latest.uid)

    def forget(self, uid: str) -> None:
        """Drops what is kept about an object that was deleted."""
        self.expectations.forget(uid)
        self.timers.cancel(uid)
        self._selectors.pop(uid, None)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """Observes expectations, and enqueues the owners of a dependent."""
        latest = now or before
        if latest is None:
            return
        controller = latest.controller
        previous = before.controller if before is not None else None
        if previous is not None and (controller is None or controller.uid != previous.uid):
            self.enqueue(previous.uid)
        if controller is not None:
            if before is None:
                self.expectations.created(controller.uid)
            if now is None or now.deleting:
                self.expectations.deleted(controller.uid, latest.uid)
            self.enqueue(controller.uid)
        elif now is not None and (before is None or previous is not None or before.labels != now.labels):
            for owner in self.owners_of_orphan(now):
                self.enqueue(owner)

    def owners_of_orphan(self, orphan: PartialObject) -> Iterable[str]:
        """Returns the uids of the objects whose selector matches an orphan in their namespace."""
        for owner in self.graph.listed(self.kind, orphan.namespace):
            if self._selectors.get(owner.uid, NOTHING).matches(orphan.labels):
                yield owner.uid

    def enqueue(self, uid: str) -> None:
        """Enqueues an object of our kind."""
        owner = self.graph.node(uid)
        if self.graph.complete and owner is not None and owner.resource == resource_of(self.kind):
            self.queue.add(uid)

    def enqueue_after(self, uid: str, seconds: float) -> None:
        """Enqueues an object after some time; an earlier call for the same object is replaced."""
        self.timers.set(uid, self.timers.now() + max(0.0, seconds))

    def on_synced(self) -> None:
        for owner in self.graph.everywhere(self.kind):
            self.queue.add(owner.uid)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.queue.run())
            parts.create_task(self.timers.run())
            parts.create_task(self.recorder.run())

    async def _reconcile(self, uid: str) -> None:
        owner = self.graph.node(uid)
        if owner is None:
            return
        try:
            await self.reconcile(owner)
        except ApiError as error:
            if error.reason is not Reason.CONFLICT:
                raise
            raise NotYet from error  # decided on an old version; the feed reports the new one

    def own_and_orphaned(self, owner: PartialObject, kind: Kind) -> list[PartialObject]:
        """Returns the objects of a kind that the owner controls, and those in its namespace that nobody controls."""
        candidates = ((candidate, candidate.controller) for candidate in self.graph.listed(kind, owner.namespace))
        return [candidate for candidate, by in candidates if by is None or by.uid == owner.uid]

    async def claimed(self, owner: PartialObject, kind: Kind, selector: LabelSelector) -> list[PartialObject]:
        """Returns the objects of a kind that the owner has, after adoption and release."""
        candidates = self.own_and_orphaned(owner, kind)
        return await self.adoption.settle(owner, candidates, lambda candidate: selector.matches(candidate.labels))

    async def update_status(self, object_: Object, status: Mapping[str, Any]) -> None:
        """Writes a status if it differs; an object that is gone needs none."""
        if status == (object_.get("status") or {}):
            return
        try:
            await self.api.replace({**object_, "status": dict(status)}, subresource="status")
        except ApiError as error:
            if error.code != 404:
                raise
