"""The scheduling loop: informers feed the snapshot and the queue; one decision at a time; bindings run concurrently.

An assumed pod (decided, binding in flight) counts on its node at once. It stays assumed until the watch of placed pods
delivers it, or until a failed binding was resolved by reading the pod: an answer that was lost may still have bound it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.objects import nodes
from podwire.objects.claims import ResourceClaim
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import EVERYWHERE, Client, ClientError, Scope
from podwire.protocols.k8sapi.client_side.events import EVENTS_V1, NORMAL, WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Synced, Updated, key_of, metadata
from podwire.protocols.prometheus import Metrics
from podwire.scheduler import pod_info
from podwire.scheduler.algorithm import Chosen, Unschedulable, choose
from podwire.scheduler.claims import dynamic_resources as claims
from podwire.scheduler.claims.cache import ClaimDecision
from podwire.scheduler.claims.claim_writer import ClaimChanged, ClaimWriter
from podwire.scheduler.claims.informers import DeviceInformers
from podwire.scheduler.claims.kind_access import Access, kind_access
from podwire.scheduler.decision_cache import DecisionCache
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.kinds import (
    BUDGETS,
    CLAIMS,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    STORAGE_CLASSES,
    TAINT_RULES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from podwire.scheduler.metrics import SchedulerMetrics
from podwire.scheduler.pod_conditions import GATED, PendingReason, PodConditions
from podwire.scheduler.pod_info import PodInfo, Unreadable
from podwire.scheduler.preemption import budgets
from podwire.scheduler.preemption.candidates import Candidate
from podwire.scheduler.preemption.evictor import Evictor
from podwire.scheduler.profiles import DEFAULT, DEFAULT_NAME, Profile
from podwire.scheduler.queue import Limits, PodQueue
from podwire.scheduler.reports import Reports, UnschedulableLog
from podwire.scheduler.snapshot import Snapshot
from podwire.scheduler.volumes.cache import VolumeDecision
from podwire.scheduler.volumes.informers import VolumeInformers
from podwire.scheduler.volumes.volume_binding import decide_volumes
from podwire.scheduler.volumes.volume_writer import VolumesNotBound, VolumeWriter
from podwire.tasks.backoff import Pauses
from podwire.tasks.slices import Turns

log = logging.getLogger("podwire.scheduler")

_DEVICES = ("claims", "slices", "device classes", "device taint rules")
_STORAGE = ("volumes", "volume claims", "storage classes", "CSI drivers", "CSI nodes", "CSI capacities")

PENDING, PLACED = Scope(field_selector="spec.nodeName="), Scope(field_selector="spec.nodeName!=")
METADATA = Scope(metadata_only=True)

FIRST_RETRY = 0.1
"""Seconds until a kind that may not be listed is tried again; roles may still be on their way."""

ASSUMED = declare("scheduler.assumed", "a node is chosen and counted for a pod; the binding is not sent yet")
NOMINATED = declare("scheduler.nominated", "a pod has a nominated node; its victims are not evicted yet")
BOUND = declare("scheduler.bound", "the server has bound a pod; nobody here has noted it yet")


class Scheduler:
    """Gives every pod a node. All state comes from watches, so the process can be killed at any time."""

    def __init__(
        self,
        api: Client,
        clock: Clock,
        *,
        instance: str = DEFAULT_NAME,
        limits: Limits | None = None,
        profiles: Sequence[Profile] = (DEFAULT,),
        metrics: Metrics | None = None,
    ) -> None:
        self._clock = clock
        self._profiles = {profile.name: profile for profile in profiles}
        self._limits = limits or Limits()
        self._api = api
        self._snapshot = Snapshot()
        self._decisions = DecisionCache()
        self._queue = PodQueue(self._limits)
        self._meter = SchedulerMetrics(metrics or Metrics(), self._queue)
        self._conditions = PodConditions(api, clock)
        self._reports = Reports(self._conditions, self._queue, self._limits)
        self._unschedulable = UnschedulableLog()
        self._recorders = {
            name: Recorder(api, clock, component=name, host=instance, shape=EVENTS_V1) for name in self._profiles
        }
        self._pending_reasons: dict[str, PendingReason] = {}
        self._assumed: dict[str, PodInfo] = {}
        """Pods that count on a node although no watch has delivered their binding yet."""
        self._claims = ClaimWriter(api, clock, self._snapshot.claims, self._limits)
        self._volumes = VolumeWriter(api, self._snapshot.volumes, self._limits, self._snapshot.node)
        self._volumes_unsynced: set[str] | None = None
        """The kinds of storage that were not listed yet; None before the first pod with a claim: nothing is watched."""
        self._evictor = Evictor(api, clock, self._recorders)
        self._unsynced = {"pending", "placed", "nodes", "namespaces", "budgets", *_DEVICES}
        self._synced = asyncio.Event()
        self._bindings = asyncio.Semaphore(self._limits.concurrent_bindings)
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Runs until cancelled; an API server that does not answer is retried."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start("pending", self._follow("pending", PODS, PENDING, self._pending))
                self._start("placed", self._follow("placed", PODS, PLACED, self._placed))
                self._start("nodes", self._follow("nodes", NODES, EVERYWHERE, self._node))
                self._start("namespaces", self._follow("namespaces", NAMESPACES, METADATA, self._namespace))
                self._start("budgets", self._follow("budgets", BUDGETS, EVERYWHERE, self._budget))
                follower = DeviceInformers(self._snapshot.claims, self._queue.activate)
                sources = ((CLAIMS, follower.claim), (SLICES, follower.slice), (DEVICE_CLASSES, follower.device_class),
                           (TAINT_RULES, follower.rule))  # fmt: skip
                for name, (kind, saw) in zip(_DEVICES, sources, strict=True):
                    self._start(name, self._follow_if_served(name, kind, saw))
                for recorder in self._recorders.values():
                    self._start("events", recorder.run())
                self._start("flush", self._flush())
                self._start("reports", self._reports.run())
                # Schedules pods one by one, once all informers have synced.
                await self._synced.wait()
                log.info("scheduler is synced", extra={"nodes": len(self._snapshot.nodes), "pods": len(self._queue)})
                while True:
                    info = await self._queue.pop()
                    try:
                        self._schedule(info)
                    except Exception:  # an unexpected pod must not block all others
                        log.exception("scheduling a pod failed", extra={"pod": info.pod.ref})
                        self._queue.back_off(info.pod.uid)
                    await asyncio.sleep(0)  # bindings and watches run between two decisions
        finally:
            self._queue.close()
            self._unschedulable.close()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work, name=name)

    async def _follow(self, name: str, kind: Kind, scope: Scope, saw: Callable[[Change], None]) -> None:
        turns = Turns()  # a lease is renewed while thousands of objects are listed
        async with self._api.informer(kind, scope) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    self._is_synced(name)
                else:
                    saw(change)
                await turns.next()

    def _is_synced(self, name: str) -> None:
        self._unsynced.discard(name)
        if self._volumes_unsynced is not None and name in self._volumes_unsynced:
            self._volumes_unsynced.discard(name)
            if not self._volumes_unsynced:
                self._snapshot.volumes.known = True
                self._queue.activate(ClusterEvent.VOLUMES)
        if self._unsynced.issubset(_DEVICES):
            self._synced.set()  # only pods with claims need the rest
        if self._unsynced.isdisjoint(_DEVICES) and not self._snapshot.claims.known:
            self._snapshot.claims.known = True
            self._queue.activate(ClusterEvent.DEVICES)

    def _watch_volumes(self) -> None:
        """Starts to watch storage, with the first pod that needs it: most clusters have none, and each watch costs."""
        if self._volumes_unsynced is not None:
            return
        self._volumes_unsynced = {*_STORAGE}
        follower = VolumeInformers(self._snapshot.volumes, self._queue.activate)
        sources = ((VOLUMES, follower.volume), (VOLUME_CLAIMS, follower.claim),
                   (STORAGE_CLASSES, follower.storage_class), (CSI_DRIVERS, follower.driver),
                   (CSI_NODES, follower.csi_node), (CSI_CAPACITIES, follower.capacity))  # fmt: skip
        for name, (kind, saw) in zip(_STORAGE, sources, strict=True):
            self._start(name, self._follow(name, kind, EVERYWHERE, saw))

    async def _follow_if_served(self, name: str, kind: Kind, saw: Callable[[Change], None]) -> None:
        """Follows a kind; an older API server may not serve it, then there are no objects of it. While it may not be
        listed, pods with claims have the reason in their condition and events."""
        cache, pauses = self._snapshot.claims, Pauses(FIRST_RETRY, self._limits.max_backoff)
        while (found := await kind_access(self._api, kind))[0] is Access.FORBIDDEN:
            why = f"the scheduler cannot list {kind.resource}.{kind.group}: {found[1]}"
            if cache.forbidden_kinds.get(kind.kind) != why:
                log.warning("scheduler lacks permission to list a kind", extra={"kind": kind.kind, "error": found[1]})
                cache.forbidden_kinds[kind.kind] = why
                self._queue.activate(ClusterEvent.DEVICES)
            await asyncio.sleep(pauses.next())
        cache.forbidden_kinds.pop(kind.kind, None)
        why = found[1]
        if found[0] is Access.SERVED:
            try:
                await self._follow(name, kind, EVERYWHERE, saw)
            except ApiError as error:
                if error.code != 404:
                    raise
                why = error.message
        log.debug("kind is not served by the API server", extra={"kind": kind.kind, "error": why})
        cache.unsupported_kinds.add(kind.kind)
        self._is_synced(name)

    def _pending(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                previous = change.previous if isinstance(change, Updated) else None
                info = _read(object_)
                if info is None or not self._is_ours(info):
                    self._forget_pending(metadata(object_).get("uid", ""))
                elif info.pod.spec.scheduling_gates:
                    self._forget_pending(info.pod.uid)
                    self._reports.put(info, GATED)
                elif not self._snapshot.node_of(info.pod.uid):
                    self._follow_nomination(info, previous)
                    self._queue.update(info, may_schedule=previous is not None and _changed(previous, object_))
                    if (
                        self._queue.is_unschedulable(info.pod.uid)
                        and (pending_reason := self._pending_reasons.get(info.pod.uid)) is not None
                    ):
                        self._reports.put(info, pending_reason)
                else:
                    self._queue.refresh(info)  # if its binding fails, this version is retried
            case Deleted(object_):
                self._volumes.pod_deleted(metadata(object_).get("uid", ""))
                self._forget_pending(metadata(object_).get("uid", ""))

    def _is_ours(self, info: PodInfo) -> bool:
        pod = info.pod
        return pod.spec.scheduler_name in self._profiles and not pod.deleting and not pod.finished

    def _follow_nomination(self, info: PodInfo, previous: Object | None) -> None:
        """Takes over a changed nomination; one that this scheduler has made counts before it is written.

        Nominations of gated pods do not count.
        """
        nominations, node = self._snapshot.nominations, info.pod.status.nominated_node_name
        before = previous if previous and not previous["spec"].get("schedulingGates") else {}
        if node == (before.get("status") or {}).get("nominatedNodeName", ""):
            node = nominations.node_of(info.pod.uid)
        if node:
            nominations.put(info, node)
        else:
            self._drop_nomination(info.pod.uid)

    def _drop_nomination(self, uid: str, used: str = "") -> None:
        """Forgets a nomination; unless its node was used, the space there is free for others."""
        node = self._snapshot.nominations.drop(uid)
        if node and node != used:
            self._queue.activate(ClusterEvent.POD_GONE)

    def _forget_pending(self, uid: str) -> None:
        self._queue.drop(uid)
        self._drop_nomination(uid, self._snapshot.node_of(uid))
        self._reports.forget(uid)
        self._pending_reasons.pop(uid, None)

    def _placed(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                info = _read(object_)
                if info is not None:
                    self._assumed.pop(info.pod.uid, None)
                    self._forget_pending(info.pod.uid)
                    self._count_pod(info)
            case Deleted(object_):
                self._release(metadata(object_).get("uid", ""))

    def _count_pod(self, info: PodInfo) -> None:
        if info.pod.finished:
            self._release(info.pod.uid)
            return
        before = self._snapshot.drop_pod(info.pod.uid)
        self._snapshot.put_pod(info, info.pod.spec.node_name)
        if before is None or before.pod.metadata.labels != info.pod.metadata.labels:
            self._queue.activate(ClusterEvent.POD_CAME)
        if before is not None and before.requests != info.requests:
            self._queue.activate(ClusterEvent.POD_GONE)
        elif before is not None and before.pod.deleting != info.pod.deleting:
            # It holds everything until it is gone, but does not count in topology spread any more.
            self._queue.activate(ClusterEvent.POD_GONE, _is_spread)

    def _release(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        if self._snapshot.volumes.forget(uid):
            self._queue.activate(ClusterEvent.VOLUMES)
        if self._snapshot.claims.release_pending(uid):
            self._queue.activate(ClusterEvent.DEVICES)
        if (info := self._snapshot.drop_pod(uid)) is not None:
            if not info.pod.spec.resource_claims:
                self._snapshot.victims.discard(uid)
            self._queue.activate(ClusterEvent.POD_GONE)

    def _node(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                self._put_node(object_)
            case Deleted(object_):
                self._snapshot.drop_node(metadata(object_).get("name", ""))
                self._queue.activate(ClusterEvent.NODE)

    def _budget(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                try:
                    self._snapshot.budgets[key_of(object_)] = budgets.read(object_)
                except ValueError as error:
                    log.warning("cannot parse disruption budget", extra={"error": str(error)})
                    self._snapshot.budgets.pop(key_of(object_), None)
            case Deleted(object_):
                self._snapshot.budgets.pop(key_of(object_), None)

    def _namespace(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                name, labels = metadata(object_).get("name", ""), metadata(object_).get("labels") or {}
                if self._snapshot.namespaces.get(name) != labels:
                    self._snapshot.namespaces[name] = labels
                    self._queue.activate(ClusterEvent.POD_CAME)  # terms of pods may match others now
            case Deleted(object_):
                self._snapshot.namespaces.pop(metadata(object_).get("name", ""), None)

    def _put_node(self, object_: Object) -> None:
        try:
            node = nodes.read(object_)
            before = self._snapshot.node(node.name)
            self._snapshot.put_node(node)
        except (msgspec.ValidationError, ValueError) as error:
            name = metadata(object_).get("name", "")
            log.warning("cannot parse node object", extra={"node": name, "error": str(error)})
            return
        if before is None or _scheduling_fields(before) != _scheduling_fields(node):
            self._queue.activate(ClusterEvent.NODE)

    def _schedule(self, info: PodInfo) -> None:
        pod = info.pod
        if info.claims:
            self._watch_volumes()
        began = self._clock.monotonic()
        choice = choose(info, self._snapshot, self._profiles[pod.spec.scheduler_name], self._decisions)
        self._meter.decided(self._clock.monotonic() - began)
        match choice:
            case Chosen(node):
                decisions = claims.decide_claims(info, self._snapshot, node)
                self._snapshot.claims.reserve(pod.uid, decisions)
                volumes = decide_volumes(info, self._snapshot, node)
                if volumes:
                    self._snapshot.volumes.assume(pod.uid, node, volumes)
                self._snapshot.put_pod(info, node)
                self._assumed[pod.uid] = info
                self._drop_nomination(pod.uid, node)
                self._queue.activate(ClusterEvent.POD_CAME)
                self._start(f"bind {pod.ref}", self._bind(info, node, decisions, volumes, began))
            case Unschedulable(message, retry_on, quiet, candidate, clears_nomination):
                self._attempted(info, "unschedulable", began)
                if quiet:
                    self._queue.mark_unschedulable(pod.uid, retry_on)
                    self._pending_reasons.pop(pod.uid, None)
                    return
                if candidate is not None:
                    self._meter.preempted(len(candidate.victims))
                    self._nominate(info, candidate)
                elif clears_nomination:
                    self._drop_nomination(pod.uid)
                # Deallocates a claim whose devices exclude the pod's nodes or do not exist, unless other pods
                # use it.
                if (
                    candidate is None
                    and pod.spec.resource_claims
                    and (claim := claims.to_deallocate(info, self._snapshot))
                ):
                    why = (
                        claims.why_in_vain(claim, self._snapshot.claims)
                        or "its devices exclude nodes that the pod needs"
                    )
                    self._start(f"deallocate {claim.ref}", self._deallocate(pod, claim, why))
                nominated = self._snapshot.nominations.node_of(pod.uid)
                pending_reason = self._pending_reasons[pod.uid] = PendingReason("Unschedulable", message, nominated)
                self._unschedulable.add(pod.ref, message)
                self._recorders[pod.spec.scheduler_name].tell(
                    pod, WARNING, "FailedScheduling", message, action="Scheduling"
                )
                if candidate is not None:
                    self._start(f"preempt for {pod.ref}", self._preempt(info, candidate, pending_reason, retry_on))
                else:
                    self._queue.mark_unschedulable(pod.uid, retry_on)
                    self._reports.put(info, pending_reason)

    def _nominate(self, info: PodInfo, candidate: Candidate) -> None:
        """Reserves the node for the pod. Pods of lower priority that wait for it have to find another one."""
        self._snapshot.victims.update(victim.pod.uid for victim in candidate.victims)
        for rival in list(self._snapshot.nominations.on(candidate.node)):
            if rival.pod.spec.priority < info.pod.spec.priority:
                self._snapshot.nominations.drop(rival.pod.uid)
                self._queue.activate_pod(rival.pod.uid)
        self._snapshot.nominations.put(info, candidate.node)

    async def _preempt(
        self, info: PodInfo, candidate: Candidate, pending_reason: PendingReason, retry_on: ClusterEvent
    ) -> None:
        """Evicts the victims; the pod stays in flight meanwhile, so that it does not choose others.

        The nomination is written first: a scheduler that is killed here finds it when it starts again.
        """
        uid = info.pod.uid
        try:
            if self._conditions.needs_write(info.pod, pending_reason):
                await self._conditions.write(info.pod, pending_reason)
            failpoint(NOMINATED)
            await self._evictor.evict(info.pod, candidate)
        except (ApiError, ClientError) as error:
            log.info("cannot preempt pods", extra={"pod": info.pod.ref, "node": candidate.node, "error": str(error)})
            self._give_up(info, candidate)
            return
        except Exception:  # an invalid answer ends this preemption only
            log.exception("preempting pods failed", extra={"pod": info.pod.ref, "node": candidate.node})
            self._give_up(info, candidate)
            return
        self._queue.mark_unschedulable(uid, retry_on | ClusterEvent.POD_GONE)
        nominated = self._snapshot.nominations.node_of(uid)
        if uid in self._pending_reasons and (newest := self._queue.info(uid)) is not None:
            self._pending_reasons[uid] = replace(pending_reason, nominated_node=nominated)
            self._reports.put(newest, self._pending_reasons[uid])
        left = [victim for victim in candidate.victims if self._snapshot.node_of(victim.pod.uid) != candidate.node]
        if left or nominated != candidate.node:
            self._queue.activate_pod(uid)  # victims were gone before this pod waited for them

    def _give_up(self, info: PodInfo, candidate: Candidate) -> None:
        self._snapshot.victims.difference_update(victim.pod.uid for victim in candidate.victims)
        self._drop_nomination(info.pod.uid)
        self._queue.back_off(info.pod.uid)

    async def _deallocate(self, pod: Pod, claim: ResourceClaim, why: str) -> None:
        try:
            await self._claims.deallocate(claim)
        except (ApiError, ClientError) as error:
            log.info("cannot deallocate a claim", extra={"claim": claim.ref, "error": str(error)})
        else:
            log.info("claim was deallocated", extra={"claim": claim.ref, "error": why})
            reference = Reference(CLAIMS.kind, claim.name, claim.namespace, claim.uid, CLAIMS.api_version)
            recorder = self._recorders[pod.spec.scheduler_name]
            recorder.tell(reference, WARNING, "Deallocated", why, action="Scheduling")

    def _attempted(self, info: PodInfo, result: str, began: float) -> None:
        self._meter.attempted(info.pod.spec.scheduler_name, result, self._clock.monotonic() - began)

    async def _bind(
        self, info: PodInfo, node: str, decisions: Sequence[ClaimDecision], volumes: VolumeDecision, began: float
    ) -> None:
        pod = info.pod
        recorder = self._recorders[pod.spec.scheduler_name]
        try:
            if volumes:  # may take minutes: not among the concurrent bindings
                await self._volumes.bind(pod, node, volumes)
            with self._reports.behind():
                async with self._bindings:
                    if self._snapshot.node(node) is None:
                        self._retry_pod(info)  # the node was deleted while this binding waited
                        return
                    failpoint(ASSUMED)
                    await self._claims.reserve(pod, decisions)
                    await self._api.bind(pod.name, pod.namespace, node, uid=pod.uid)
                    failpoint(BOUND)
        except VolumesNotBound as error:
            self._attempted(info, "error", began)
            log.info("volumes were not bound", extra={"pod": pod.ref, "node": node, "error": str(error)})
            text = f'running PreBind plugin "VolumeBinding": {error}'
            recorder.tell(pod, WARNING, "FailedScheduling", text, action="Scheduling")
            self._retry_pod(info)
        except ClaimChanged as error:
            self._attempted(info, "error", began)
            log.info("claims changed before binding", extra={"pod": pod.ref, "node": node, "error": str(error)})
            self._retry_pod(info)
        except (ApiError, ClientError) as error:
            self._attempted(info, "error", began)
            log.info("cannot bind a pod", extra={"pod": pod.ref, "node": node, "error": str(error)})
            if isinstance(error, ApiError) and error.code not in (404, 409):
                self._retry_pod(info)
                recorder.tell(pod, WARNING, "FailedScheduling", error.message, action="Scheduling")
                self._reports.put(info, PendingReason("SchedulerError", error.message))
            else:
                await self._resolve_binding(info)
        except Exception:  # an invalid answer ends this binding only
            self._attempted(info, "error", began)
            log.exception("binding a pod failed", extra={"pod": pod.ref, "node": node})
            await self._resolve_binding(info)
        else:
            self._forget_pending(pod.uid)
            self._attempted(info, "scheduled", began)
            log.info("pod was bound", extra={"pod": pod.ref, "node": node})
            text = f"Successfully assigned {pod.ref} to {node}"
            recorder.tell(pod, NORMAL, "Scheduled", text, action="Binding")

    async def _resolve_binding(self, info: PodInfo) -> None:
        """Reads the pod until its state is known: another scheduler may have bound it, or the answer was lost."""
        pause = self._limits.initial_backoff
        while info.pod.uid in self._assumed:
            try:
                seen = await self._look(info)
            except (ApiError, ClientError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._limits.max_backoff)
            else:
                self._apply_resolved(info, seen)
                return

    async def _look(self, info: PodInfo) -> Object | None:
        try:
            return await self._api.get(PODS, info.pod.name, info.pod.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _apply_resolved(self, info: PodInfo, seen: Object | None) -> None:
        uid = info.pod.uid
        if uid not in self._assumed:
            return  # a watch event was faster
        if seen is None or metadata(seen).get("uid") != uid:
            self._forget_pending(uid)
            self._release(uid)
        elif node := seen["spec"].get("nodeName", ""):
            self._forget_pending(uid)
            self._snapshot.put_pod(info, node)
        else:
            self._retry_pod(info)

    def _retry_pod(self, info: PodInfo) -> None:
        self._release(info.pod.uid)
        if info.pod.status.nominated_node_name:
            self._snapshot.nominations.put(info, info.pod.status.nominated_node_name)
        self._queue.back_off(info.pod.uid)

    async def _flush(self) -> None:
        """Retries everything periodically, in case a watch event was missed."""
        before: Mapping[str, PodInfo] = {}
        while True:
            await asyncio.sleep(self._limits.flush)
            self._queue.activate_all()
            self._forget_victims()
            for uid, info in list(self._assumed.items()):
                if before.get(uid) is info:
                    await self._resolve_binding(info)
            before = dict(self._assumed)

    def _forget_victims(self) -> None:
        """Forgets victims that are gone, with their claims."""
        victims = self._snapshot.victims
        for uid in [uid for uid in victims if not self._snapshot.node_of(uid)]:
            if not self._snapshot.claims.claims_of({uid}):
                victims.discard(uid)


def _is_spread(info: PodInfo) -> bool:
    return bool(info.pod.spec.topology_spread_constraints)


def _changed(before: Object, after: Object) -> bool:
    """Returns whether a change affects filters."""
    return _looked_at(before) != _looked_at(after)


def _looked_at(pod: Object) -> tuple[Any, ...]:
    return pod.get("spec"), metadata(pod).get("labels"), (pod.get("status") or {}).get("resourceClaimStatuses")


def _scheduling_fields(node: Node) -> tuple[Any, ...]:
    """Returns the fields that filters look at; heartbeats are not among them."""
    return node.status.allocatable, node.metadata.labels, node.spec.taints, node.spec.unschedulable


def _read(object_: Object) -> PodInfo | None:
    try:
        return pod_info.read(object_)
    except Unreadable as error:
        log.warning("cannot parse pod object", extra={"pod": "/".join(key_of(object_)), "error": str(error)})
        return None
