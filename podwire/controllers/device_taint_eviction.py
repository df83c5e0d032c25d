"""Evicts pods from devices with NoExecute taints that their claims do not tolerate, at once or after their
toleration."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from podwire.controllers import device_taints
from podwire.controllers.device_taints import Effect, Eviction, Identity, SliceTaints
from podwire.controllers.disruption import disrupt
from podwire.controllers.event_recorder import EventRecorder
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CLAIMS, PODS, SLICES, TAINT_RULES
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.timers import Timers
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects import claims, pods, slices
from podwire.objects.claims import ResourceClaim
from podwire.objects.device_taints import NO_EXECUTE, DeviceTaint, DeviceTaintRule, read_rule
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

Ref = tuple[str, str]
"""Namespace and name."""

Source = tuple[str, str, str]
"""A source of taints: resource, name and uid."""

_EVENT_REASON = "DeviceTaintManagerEviction"


class DeviceEvictions:
    """Evicts pods by device taints. While no device has such a taint and no rule adds one, claims and pods are not
    read."""

    resources: ClassVar = frozenset(map(resource_of, (SLICES, TAINT_RULES, CLAIMS, PODS)))

    def __init__(self, api: Client, graph: Graph, clock: Clock, limits: Limits = DEFAULT) -> None:
        self._api = api
        self._limits = limits
        self._graph = graph
        self._clock = clock
        self._recorder = EventRecorder(api, clock, "device-taint-eviction")
        self._sources: WorkQueue[Source] = WorkQueue("device_evictions", self._reconcile_source, workers=1)
        self._claims: WorkQueue[Ref] = WorkQueue("device_evictions", self._reconcile_claim)
        self._pods: WorkQueue[str] = WorkQueue("device_evictions", self._reconcile_pod)
        self._statuses: WorkQueue[str] = WorkQueue("device_evictions", self._reconcile_status, workers=1)
        self.timers: Timers[str] = Timers(clock, self._pods.add)
        self.status_timers: Timers[str] = Timers(clock, self._statuses.add)
        self._slice_taints: dict[str, SliceTaints] = {}
        self._taints: dict[Identity, tuple[DeviceTaint, ...]] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._evictions: dict[Ref, Eviction] = {}
        self._holders: dict[Ref, frozenset[str]] = {}
        self._held: defaultdict[str, set[Ref]] = defaultdict(set)
        """Claims with a pending eviction, by pod."""
        self._to_check: set[str] = set()
        """Pods to reconcile once all claims were checked."""
        self._unprocessed: set[Source] = set()
        """Sources whose change was not fully processed yet."""
        self._pending: set[str] = set()
        self._evicted: Counter[str] = Counter()

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource in (resource_of(SLICES), resource_of(TAINT_RULES)):
            self._sources.add((latest.kind.resource, latest.name, latest.uid))
        elif latest.resource == resource_of(CLAIMS):
            ref = (latest.namespace, latest.name)
            if self._active or ref in self._evictions:
                self._claims.add(ref)
        elif latest.resource == resource_of(PODS) and latest.uid in self._held:
            self._pods.add(latest.uid)

    @property
    def _active(self) -> bool:
        return bool(self._taints) or any(rule.spec.taint.effect == NO_EXECUTE for rule in self._rules.values())

    def on_synced(self) -> None:
        """Nothing to do: claims are listed when a taint appears."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for part in (self._sources, self._claims, self._pods, self._statuses, self.timers, self.status_timers):
                parts.create_task(part.run())

    async def _reconcile_source(self, source: Source) -> None:
        """Reconciles a slice or rule: when its taints have changed, all claims are checked."""
        resource, name, uid = source
        if resource == SLICES.resource:
            changed = self._learn_slice(name, await self._find(SLICES, name))
        else:
            changed = self._learn_rule(uid, await self._find(TAINT_RULES, name))
        if not changed and source not in self._unprocessed:
            return
        self._unprocessed.add(source)
        for object_ in (await self._api.list(CLAIMS)).items:
            self._check(claims.read(object_))
        try:
            await self._reconcile_status(uid)  # before any pod is evicted
        finally:
            self._look_at_pods()
        self._unprocessed.discard(source)

    def _learn_slice(self, name: str, found: Object | None) -> bool:
        if found is None:
            self._slice_taints.pop(name, None)
        else:
            self._slice_taints[name] = device_taints.noexecute_taints(slices.read(found))
        taints = device_taints.tainted(self._slice_taints.values())
        changed, self._taints = taints != self._taints, taints
        return changed

    def _learn_rule(self, uid: str, found: Object | None) -> bool:
        rule = read_rule(found) if found is not None and found["metadata"]["uid"] == uid else None
        before = self._rules.get(uid)
        if rule is None:
            self._rules.pop(uid, None)
            self._evicted.pop(uid, None)
            self.status_timers.cancel(uid)
            return before is not None
        self._rules[uid] = rule
        return before is None or before.spec != rule.spec

    async def _reconcile_claim(self, ref: Ref) -> None:
        namespace, name = ref
        found = await self._find(CLAIMS, name, namespace)
        if found is None:
            self._release(ref)
        else:
            self._check(claims.read(found))
        self._look_at_pods()

    def _look_at_pods(self) -> None:
        for key in self._to_check:
            self._pods.add(key)
        self._to_check.clear()

    def _check(self, claim: ResourceClaim) -> None:
        """Computes whether and when the pods of a claim must be evicted."""
        ref = (claim.namespace, claim.name)
        eviction = device_taints.eviction_of(claim, self._taints, self._rules.values())
        if eviction is None:
            self._release(ref)
            return
        holders = frozenset(consumer.uid for consumer in claim.status.reserved_for if consumer.is_pod)
        before = self._holders.get(ref, frozenset())
        if (eviction, holders) == (self._evictions.get(ref), before):
            return
        self._evictions[ref], self._holders[ref] = eviction, holders
        for uid in before - holders:
            self._drop(uid, ref)
        for uid in holders:
            self._held[uid].add(ref)
            self._to_check.add(uid)

    def _release(self, ref: Ref) -> None:
        self._evictions.pop(ref, None)
        for uid in self._holders.pop(ref, ()):
            self._drop(uid, ref)

    def _drop(self, uid: str, ref: Ref) -> None:
        self._held[uid].discard(ref)
        if not self._held[uid]:
            del self._held[uid]
        self._to_check.add(uid)

    async def _reconcile_pod(self, uid: str) -> None:
        """Keeps the pod, waits, or evicts it."""
        eviction = self._eviction_of(uid)
        seen = self._graph.node(uid)
        if eviction is None or seen is None or seen.deleting:
            await self._cancel_eviction(uid, seen)
            return
        found = await self._find(PODS, seen.name, seen.namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return
        pod = pods.read(found)
        if not pod.spec.node_name or pod.deleting or pod.finished:
            return  # its binding is a change, which reconciles it again
        self._pending.add(uid)
        seconds = eviction.when - self._clock.wall()
        if seconds > 0:
            self.timers.set(uid, self.timers.now() + seconds)
        else:
            await self._evict(found, eviction.rules)
        self._look_at_rules(eviction.rules)

    def _eviction_of(self, uid: str) -> Eviction | None:
        return device_taints.earliest(self._evictions[ref] for ref in self._held.get(uid, ()) if ref in self._evictions)

    def _look_at_rules(self, rules: Iterable[str]) -> None:
        for rule in rules:
            self.status_timers.set(rule, self.status_timers.now() + self._limits.taint_rule_status_period)

    async def _cancel_eviction(self, uid: str, seen: PartialObject | None) -> None:
        self.timers.cancel(uid)
        if uid not in self._pending:
            return
        self._pending.discard(uid)
        if seen is not None and not seen.deleting:
            meta = {"name": seen.name, "namespace": seen.namespace, "uid": uid}
            about = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
            await self._recorder.record(about, NORMAL, _EVENT_REASON, "Cancelling deletion")

    async def _evict(self, pod: Object, rules: Iterable[str]) -> None:
        meta = pod["metadata"]
        log.info("evicting pod from tainted device", extra={"pod": f"{meta['namespace']}/{meta['name']}"})
        message = "Device Taint manager: deleting due to NoExecute taint"
        if await disrupt(self._api, pod, "DeletionByDeviceTaintManager", message, rfc3339(self._clock.wall())):
            await self._recorder.record(pod, NORMAL, _EVENT_REASON, "Marking for deletion")
            self._evicted.update(rules)
        self._pending.discard(meta["uid"])

    async def _reconcile_status(self, uid: str) -> None:
        """Updates the status of a rule."""
        if (rule := self._rules.get(uid)) is None or (found := await self._find(TAINT_RULES, rule.name)) is None:
            return
        latest = device_taints.condition(rule, await self._effect(rule))
        status = found.get("status") or {}
        before = list(status.get("conditions") or ())
        same: Object = next((condition for condition in before if condition.get("type") == latest["type"]), {})
        if latest.items() <= {"message": "", **same}.items():
            return
        others = [condition for condition in before if condition.get("type") != latest["type"]]
        now = {**latest, "lastTransitionTime": rfc3339(self._clock.wall())}
        await self._api.replace({**found, "status": {**status, "conditions": [*others, now]}}, subresource="status")

    async def _effect(self, rule: DeviceTaintRule) -> Effect:
        uid, evicted = rule.metadata.uid, self._evicted[rule.metadata.uid]
        if rule.spec.taint.effect != "None":
            concerned = [key for key in self._held if (eviction := self._eviction_of(key)) and uid in eviction.rules]
            return Effect(**self._counted(concerned), evicted=evicted)
        taint = msgspec.structs.replace(rule.spec.taint, effect=NO_EXECUTE)
        would = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))
        published = [
            (*slice_.pool, device.name)
            for slice_ in map(slices.read, (await self._api.list(SLICES)).items)
            for device in slice_.spec.devices
        ]
        held = [claims.read(item) for item in (await self._api.list(CLAIMS)).items]
        concerned = [
            holder.uid
            for claim in held
            if device_taints.eviction_of(claim, {}, [would]) is not None
            for holder in claim.status.reserved_for
        ]
        return Effect(
            **self._counted(concerned),
            evicted=evicted,
            published=sum(rule.covers(*identity) for identity in published),
            allocated=sum(rule.covers(*device.identity) for claim in held for device in claim.allocated),
        )

    def _counted(self, uids: Iterable[str]) -> dict[str, int]:
        there = [seen for uid in {*uids} if (seen := self._graph.node(uid)) is not None and not seen.deleting]
        return {"pods": len(there), "namespaces": len({pod.namespace for pod in there})}

    async def _find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
