"""Pods leave devices with NoExecute taints that their claims do not tolerate, at once or when their time is over."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from podwire.controllers import device_taints
from podwire.controllers.device_taints import Due, Effect, Identity, Offered
from podwire.controllers.disruption import take_away
from podwire.controllers.event_recorder import Teller
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CLAIMS, PODS, SLICES, TAINT_RULES
from podwire.controllers.metadata import Seen, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.timers import Alarms
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects import claims, pods, slices
from podwire.objects.claims import ResourceClaim
from podwire.objects.device_taints import NO_EXECUTE, DeviceTaint, DeviceTaintRule, read_rule
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

STATUS_PERIOD = 10.0
"""Seconds between two looks at what a rule has done so far."""

Ref = tuple[str, str]
"""Namespace and name."""

Source = tuple[str, str, str]
"""What gives taints: its resource, its name and its uid."""

_TOLD = "DeviceTaintManagerEviction"


class DeviceEvictions:
    """While no device has such a taint and no rule gives one, claims and pods are not looked at."""

    def __init__(self, api: Api, graph: Graph, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._teller = Teller(api, clock, "device-taint-eviction")
        self._sources: WorkQueue[Source] = WorkQueue("device_evictions", self._attend_source, workers=1)
        self._claims: WorkQueue[Ref] = WorkQueue("device_evictions", self._attend_claim)
        self._pods: WorkQueue[str] = WorkQueue("device_evictions", self._attend_pod)
        self._statuses: WorkQueue[str] = WorkQueue("device_evictions", self._attend_status, workers=1)
        self.alarms: Alarms[str] = Alarms(clock, self._pods.add)
        self.status_alarms: Alarms[str] = Alarms(clock, self._statuses.add)
        self._offered: dict[str, Offered] = {}
        self._taints: dict[Identity, tuple[DeviceTaint, ...]] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._due: dict[Ref, Due] = {}
        self._holders: dict[Ref, frozenset[str]] = {}
        self._held: defaultdict[str, set[Ref]] = defaultdict(set)
        """By pod: the claims that it has to give up."""
        self._concerned: set[str] = set()
        """Pods that have to be looked at when all claims were."""
        self._unfinished: set[Source] = set()
        """What was learned, but not yet acted on."""
        self._leaving: set[str] = set()
        self._evicted: Counter[str] = Counter()

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource in (resource_of(SLICES), resource_of(TAINT_RULES)):
            self._sources.add((latest.kind.resource, latest.name, latest.uid))
        elif latest.resource == resource_of(CLAIMS):
            ref = (latest.namespace, latest.name)
            if self._active or ref in self._due:
                self._claims.add(ref)
        elif latest.resource == resource_of(PODS) and latest.uid in self._held:
            self._pods.add(latest.uid)

    @property
    def _active(self) -> bool:
        return bool(self._taints) or any(each.spec.taint.effect == NO_EXECUTE for each in self._rules.values())

    def completed(self) -> None:
        """Nothing waits for this: claims are asked for when a taint is told."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for each in (self._sources, self._claims, self._pods, self._statuses, self.alarms, self.status_alarms):
                parts.create_task(each.run())

    async def _attend_source(self, source: Source) -> None:
        """A slice or a rule: where what it says has changed, all claims are looked at."""
        resource, name, uid = source
        if resource == SLICES.resource:
            changed = self._learn_slice(name, await self._find(SLICES, name))
        else:
            changed = self._learn_rule(uid, await self._find(TAINT_RULES, name))
        if not changed and source not in self._unfinished:
            return
        self._unfinished.add(source)
        for object_ in (await self._api.list(CLAIMS)).items:
            self._judge(claims.read(object_))
        try:
            await self._attend_status(uid)  # before anybody is evicted
        finally:
            self._look_at_pods()
        self._unfinished.discard(source)

    def _learn_slice(self, name: str, found: Object | None) -> bool:
        if found is None:
            self._offered.pop(name, None)
        else:
            self._offered[name] = device_taints.offered(slices.read(found))
        taints = device_taints.tainted(self._offered.values())
        changed, self._taints = taints != self._taints, taints
        return changed

    def _learn_rule(self, uid: str, found: Object | None) -> bool:
        rule = read_rule(found) if found is not None and found["metadata"]["uid"] == uid else None
        before = self._rules.get(uid)
        if rule is None:
            self._rules.pop(uid, None)
            self._evicted.pop(uid, None)
            self.status_alarms.cancel(uid)
            return before is not None
        self._rules[uid] = rule
        return before is None or before.spec != rule.spec

    async def _attend_claim(self, ref: Ref) -> None:
        namespace, name = ref
        found = await self._find(CLAIMS, name, namespace)
        if found is None:
            self._let_go(ref)
        else:
            self._judge(claims.read(found))
        self._look_at_pods()

    def _look_at_pods(self) -> None:
        for each in self._concerned:
            self._pods.add(each)
        self._concerned.clear()

    def _judge(self, claim: ResourceClaim) -> None:
        """Whether its pods have to go, and when."""
        ref = (claim.namespace, claim.name)
        due = device_taints.due(claim, self._taints, self._rules.values())
        if due is None:
            self._let_go(ref)
            return
        holders = frozenset(each.uid for each in claim.status.reserved_for if each.is_pod)
        before = self._holders.get(ref, frozenset())
        if (due, holders) == (self._due.get(ref), before):
            return
        self._due[ref], self._holders[ref] = due, holders
        for uid in before - holders:
            self._drop(uid, ref)
        for uid in holders:
            self._held[uid].add(ref)
            self._concerned.add(uid)

    def _let_go(self, ref: Ref) -> None:
        self._due.pop(ref, None)
        for uid in self._holders.pop(ref, ()):
            self._drop(uid, ref)

    def _drop(self, uid: str, ref: Ref) -> None:
        self._held[uid].discard(ref)
        if not self._held[uid]:
            del self._held[uid]
        self._concerned.add(uid)

    async def _attend_pod(self, uid: str) -> None:
        """Let it stay, let it wait, or evict it."""
        due = self._due_of(uid)
        seen = self._graph.node(uid)
        if due is None or seen is None or seen.deleting:
            await self._relent(uid, seen)
            return
        found = await self._find(PODS, seen.name, seen.namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return
        pod = pods.read(found)
        if not pod.spec.node_name or pod.deleting or pod.finished:
            return  # it changes when it is bound, and then it is looked at again
        self._leaving.add(uid)
        seconds = due.when - self._clock.wall()
        if seconds > 0:
            self.alarms.set(uid, self.alarms.now() + seconds)
        else:
            await self._evict(found, due.rules)
        self._look_at_rules(due.rules)

    def _due_of(self, uid: str) -> Due | None:
        return device_taints.first(self._due[ref] for ref in self._held.get(uid, ()) if ref in self._due)

    def _look_at_rules(self, rules: Iterable[str]) -> None:
        for each in rules:
            self.status_alarms.set(each, self.status_alarms.now() + STATUS_PERIOD)

    async def _relent(self, uid: str, seen: Seen | None) -> None:
        self.alarms.cancel(uid)
        if uid not in self._leaving:
            return
        self._leaving.discard(uid)
        if seen is not None and not seen.deleting:
            meta = {"name": seen.name, "namespace": seen.namespace, "uid": uid}
            about = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
            await self._teller.tell(about, NORMAL, _TOLD, "Cancelling deletion")

    async def _evict(self, pod: Object, rules: Iterable[str]) -> None:
        meta = pod["metadata"]
        log.info("evicting", extra={"pod": f"{meta['namespace']}/{meta['name']}"})
        message = "Device Taint manager: deleting due to NoExecute taint"
        if await take_away(self._api, pod, "DeletionByDeviceTaintManager", message, rfc3339(self._clock.wall())):
            await self._teller.tell(pod, NORMAL, _TOLD, "Marking for deletion")
            self._evicted.update(rules)
        self._leaving.discard(meta["uid"])

    async def _attend_status(self, uid: str) -> None:
        """Say in a rule's status what it does, where that is not said yet."""
        if (rule := self._rules.get(uid)) is None or (found := await self._find(TAINT_RULES, rule.name)) is None:
            return
        told = device_taints.condition(rule, await self._effect(rule))
        status = found.get("status") or {}
        before = list(status.get("conditions") or ())
        same: Object = next((each for each in before if each.get("type") == told["type"]), {})
        if told.items() <= {"message": "", **same}.items():
            return
        others = [each for each in before if each.get("type") != told["type"]]
        now = {**told, "lastTransitionTime": rfc3339(self._clock.wall())}
        await self._api.replace({**found, "status": {**status, "conditions": [*others, now]}}, subresource="status")

    async def _effect(self, rule: DeviceTaintRule) -> Effect:
        uid, evicted = rule.metadata.uid, self._evicted[rule.metadata.uid]
        if rule.spec.taint.effect != "None":
            concerned = [each for each in self._held if (due := self._due_of(each)) and uid in due.rules]
            return Effect(**self._counted(concerned), evicted=evicted)
        taint = msgspec.structs.replace(rule.spec.taint, effect=NO_EXECUTE)
        would = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))
        published = [
            (*each.pool, device.name)
            for each in map(slices.read, (await self._api.list(SLICES)).items)
            for device in each.spec.devices
        ]
        held = [claims.read(each) for each in (await self._api.list(CLAIMS)).items]
        concerned = [
            holder.uid
            for claim in held
            if device_taints.due(claim, {}, [would]) is not None
            for holder in claim.status.reserved_for
        ]
        return Effect(
            **self._counted(concerned),
            evicted=evicted,
            published=sum(rule.covers(*each) for each in published),
            allocated=sum(rule.covers(*each.identity) for claim in held for each in claim.allocated),
        )

    def _counted(self, uids: Iterable[str]) -> dict[str, int]:
        there = [seen for uid in {*uids} if (seen := self._graph.node(uid)) is not None and not seen.deleting]
        return {"pods": len(there), "namespaces": len({each.namespace for each in there})}

    async def _find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
