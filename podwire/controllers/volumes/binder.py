"""persistentvolume-binder-controller: binds claims and volumes, and keeps the phases of both.

One worker handles claims and volumes one after the other, so that two claims never choose the same volume. It reads its
own writes before the feed reports them. A claim that waits is decided again when something may help it: a volume of its
class or name, its class, a pod that uses it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from podwire.controllers.context import Context
from podwire.controllers.kinds import PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import reference_to
from podwire.controllers.volumes import decisions
from podwire.controllers.volumes.claim_users import ClaimUsers, Ref
from podwire.controllers.volumes.decisions import (
    BOUND,
    LOST,
    PENDING,
    Bind,
    ClaimContext,
    DecideClaim,
    Event,
    Lose,
    Mismatch,
    Provision,
    Retry,
    SetPhase,
    TakeDefaultClass,
    Unbind,
    Wait,
)
from podwire.controllers.volumes.latest import LatestObjects
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.objects import persistent_volumes as storage
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object

Key = tuple[Kind, str, str]
"""Kind, namespace, name."""


class _Reference(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _VolumeSpec(msgspec.Struct, rename="camel"):
    claim_ref: _Reference | None = None


class _Volume(msgspec.Struct):
    spec: _VolumeSpec = msgspec.field(default_factory=_VolumeSpec)


_decode = msgspec.json.Decoder(_Volume).decode

_FREE: Ref = ("", "")
"""Stands for no claim."""


class VolumeBinder:
    name: ClassVar[str] = "persistentvolume-binder-controller"
    resources: ClassVar = frozenset(map(resource_of, (VOLUMES, VOLUME_CLAIMS, STORAGE_CLASSES, PODS)))

    def __init__(self, context: Context) -> None:
        self._api, self._graph, self._clock = context.api, context.graph, context.clock
        self._recorder = Recorder(context.api, context.clock, component="persistentvolume-controller")
        self._queue: WorkQueue[Key] = WorkQueue("persistentvolume-binder", self._reconcile, workers=1)
        self._users = ClaimUsers(context.graph)
        self._latest = LatestObjects(context.graph)
        self._named: dict[str, Ref] = {}
        self._by_claim: defaultdict[Ref, set[str]] = defaultdict(set)
        """Uids of volumes by the claim that they name."""
        self._waiting: dict[Ref, Event | None] = {}
        """Claims that are not bound, and the event that was last recorded of each."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(VOLUMES):
            self._volume_changed(latest, there=now is not None)
        elif latest.resource == resource_of(VOLUME_CLAIMS):
            self._claim_changed(latest, there=now is not None)
        elif latest.resource == resource_of(PODS):
            for claim in self._users.on_change(before, now) if before is None or now is None else ():
                if claim in self._waiting:
                    self._enqueue(VOLUME_CLAIMS, *claim)
        else:
            for claim in self._waiting:
                self._enqueue(VOLUME_CLAIMS, *claim)

    def _volume_changed(self, volume: PartialObject, *, there: bool) -> None:
        previous = self._named.pop(volume.uid, None)
        if previous is not None:
            self._by_claim[previous].discard(volume.uid)
            if not self._by_claim[previous]:
                del self._by_claim[previous]
            if previous != _FREE:
                self._enqueue(VOLUME_CLAIMS, *previous)
        if not there:
            self._latest.forget(volume.uid)
            return
        reference = _decode(volume.json).spec.claim_ref
        named = (reference.namespace, reference.name) if reference is not None else _FREE
        self._named[volume.uid] = named
        self._by_claim[named].add(volume.uid)
        self._enqueue(VOLUMES, "", volume.name)
        for claim in self._waiting if named == _FREE else (named,):
            self._enqueue(VOLUME_CLAIMS, *claim)

    def _claim_changed(self, claim: PartialObject, *, there: bool) -> None:
        ref = (claim.namespace, claim.name)
        if not there:
            self._latest.forget(claim.uid)
            self._waiting.pop(ref, None)
        else:
            self._enqueue(VOLUME_CLAIMS, *ref)
        for uid in self._by_claim.get(ref, ()):
            if (volume := self._graph.node(uid)) is not None:
                self._enqueue(VOLUMES, "", volume.name)

    def _enqueue(self, kind: Kind, namespace: str, name: str) -> None:
        if self._graph.complete:
            self._queue.add((kind, namespace, name))

    def on_synced(self) -> None:
        for kind in (VOLUMES, VOLUME_CLAIMS):
            for seen in self._graph.everywhere(kind):
                self._queue.add((kind, seen.namespace, seen.name))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._queue.run())
            parts.create_task(self._recorder.run())

    async def _reconcile(self, key: Key) -> None:
        kind, namespace, name = key
        object_ = self._latest.find(kind, name, namespace)
        if object_ is None:
            return
        try:
            await (self._reconcile_volume(object_) if kind is VOLUMES else self._reconcile_claim(object_))
        except ApiError as error:
            if error.code == 404:
                return  # deleted meanwhile; the feed reports it
            if error.reason is not Reason.CONFLICT:
                raise
            raise NotYet from error

    async def _reconcile_claim(self, claim: Object) -> None:
        ref = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        waiting_pods = [pod.name for pod in self._users.pods(ref) if pod.active and not _node_of(pod)]
        context = ClaimContext(
            volume=lambda name: self._latest.find(VOLUMES, name),
            candidates=self._candidates(ref),
            classes=[class_.object() for class_ in self._graph.everywhere(STORAGE_CLASSES)],
            waiting_pods=waiting_pods,
        )
        decision = decisions.decide_claim(claim, context)
        if not isinstance(decision, Bind | Lose):
            self._waiting.setdefault(ref, None)
        match decision:
            case Bind(volume):
                await self._bind(dict(volume), claim)
                self._waiting.pop(ref, None)
            case Wait(event):
                self._tell_once(claim, event)
                await self._set_claim_phase(claim, PENDING, None)
            case TakeDefaultClass(name):
                spec = {**claim["spec"], "storageClassName": name}
                self._latest.wrote(await self._api.replace({**claim, "spec": spec}))
            case Provision(provisioner, event):
                if (changed := decisions.with_provisioner(claim, provisioner)) is not None:
                    claim = self._latest.wrote(await self._api.replace(changed))
                self._tell_once(claim, event)
            case Lose(event):
                if (claim.get("status") or {}).get("phase") != LOST:
                    await self._set_claim_phase(claim, LOST, None)
                    self._tell(claim, event)
            case Retry(event):
                self._tell_once(claim, event)
                raise NotYet

    def _candidates(self, claim: Ref) -> Iterator[Object]:
        for ref in (claim, _FREE):
            for uid in self._by_claim.get(ref, ()):
                if (seen := self._graph.node(uid)) is not None:
                    yield self._latest.read(seen)

    async def _bind(self, volume: Object, claim: Object) -> None:
        """Binds in upstream's order; each step that is done already is left out."""
        if (changed := storage.bound_volume(volume, claim)) is not None:
            volume = self._latest.wrote(await self._api.replace(changed))
        volume = await self._set_volume_phase(volume, BOUND)
        if (bound := decisions.bound_claim(claim, volume["metadata"]["name"])) is not None:
            claim = self._latest.wrote(await self._api.replace(bound))
        await self._set_claim_phase(claim, BOUND, volume)

    async def _set_claim_phase(self, claim: Object, phase: str, volume: Object | None) -> None:
        status = decisions.claim_status(claim, phase, volume)
        if status != claim.get("status"):
            self._latest.wrote(await self._api.replace({**claim, "status": status}, subresource="status"))

    async def _set_volume_phase(self, volume: Object, phase: str, message: str = "") -> Object:
        before: dict[str, Any] = volume.get("status") or {}
        if before.get("phase") == phase:
            return volume
        kept = {key: value for key, value in before.items() if key != "message"}
        status = {**kept, "phase": phase, "lastPhaseTransitionTime": rfc3339(self._clock.wall())}
        status |= {"message": message} if message else {}
        return self._latest.wrote(await self._api.replace({**volume, "status": status}, subresource="status"))

    async def _reconcile_volume(self, volume: Object) -> None:
        reference = volume["spec"].get("claimRef") or {}
        ref = (reference.get("namespace", ""), reference.get("name", ""))
        claim = self._latest.find(VOLUME_CLAIMS, ref[1], ref[0]) if ref[1] else None
        if reference.get("uid") and (claim is None or claim["metadata"]["uid"] != reference["uid"]):
            claim = await self._look_up(ref)  # before data is given up, the server is asked
        match decisions.decide_volume(volume, claim):
            case SetPhase(phase, event):
                volume = await self._set_volume_phase(volume, phase, event.message if event else "")
                if event is not None:
                    self._tell(volume, event)
                elif phase == decisions.RELEASED:
                    self._enqueue(VOLUMES, "", volume["metadata"]["name"])
            case DecideClaim():
                self._enqueue(VOLUME_CLAIMS, *ref)
            case Mismatch(of_volume, of_claim):
                self._tell(volume, of_volume)
                if claim is not None:
                    self._tell(claim, of_claim)
            case Unbind():
                volume = self._latest.wrote(await self._api.replace(decisions.unbound(volume)))
                await self._set_volume_phase(volume, decisions.AVAILABLE)
            case None:
                pass

    async def _look_up(self, ref: Ref) -> Object | None:
        try:
            return await self._api.get(VOLUME_CLAIMS, ref[1], ref[0])
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _tell(self, about: Object, event: Event) -> None:
        self._recorder.tell(reference_to(about), event.type, event.reason, event.message)

    def _tell_once(self, claim: Object, event: Event | None) -> None:
        """Records an event of a claim that waits, unless it is the one that was recorded last."""
        ref = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        if event is not None and self._waiting.get(ref) != event:
            self._waiting[ref] = event
            self._tell(claim, event)


def _node_of(pod: PartialObject) -> str:
    return pod.pod.node_name if pod.pod is not None else ""
