"""The loop: pods and nodes as watched, one decision after the other, bindings beside them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.objects import nodes
from podwire.objects.claims import ResourceClaim
from podwire.objects.nodes import Node
from podwire.protocols.k8sapi.client_side import EVERYWHERE, ClientError, Scope
from podwire.protocols.k8sapi.client_side.events import EVENTS_V1, NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Synced, Updated, key_of, metadata
from podwire.scheduler import pod_info
from podwire.scheduler.algorithm import Chosen, Unschedulable, choose
from podwire.scheduler.claims import dynamic_resources as claims
from podwire.scheduler.claims.cache import Decided
from podwire.scheduler.claims.claim_writer import ClaimWriter, Lost
from podwire.scheduler.claims.informers import ClaimFollower
from podwire.scheduler.framework import Happening
from podwire.scheduler.kinds import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, TAINT_RULES
from podwire.scheduler.pod_conditions import GATED, Reports, Verdict
from podwire.scheduler.pod_info import PodInfo, Unreadable
from podwire.scheduler.ports import Api
from podwire.scheduler.queue import FIRST_PAUSE, LONGEST_PAUSE, PodQueue
from podwire.scheduler.snapshot import Snapshot

log = logging.getLogger("podwire.scheduler")

NAME = "default-scheduler"

FLUSH = 300.0
"""Seconds after which everybody is looked at again, should anything ever have been missed."""

BINDINGS_AT_ONCE = 16
"""More would only wait in the server, and each needs a connection."""

_DEVICES = ("claims", "slices", "device classes", "device taint rules")

PENDING, PLACED = Scope(field_selector="spec.nodeName="), Scope(field_selector="spec.nodeName!=")

ASSUMED = declare("scheduler.assumed", "a node is chosen and counted for a pod; the binding is not sent yet")
BOUND = declare("scheduler.bound", "the server has bound a pod; nobody here has noted it yet")


class Scheduler:
    """Gives every pod a node. Whatever it knows it has from the watches, so it can be killed at any time."""

    def __init__(self, api: Api, clock: Clock, *, instance: str = NAME) -> None:
        self._api = api
        self._snapshot = Snapshot()
        self._queue = PodQueue()
        self._reports = Reports(api, clock)
        self._recorder = Recorder(api, clock, component=NAME, host=instance, shape=EVENTS_V1)
        self._verdicts: dict[str, Verdict] = {}
        self._assumed: dict[str, PodInfo] = {}
        """Counted on a node although no watch has told so yet."""
        self._claims = ClaimWriter(api, clock, self._snapshot.claims)
        self._unsynced = {"pending", "placed", "nodes", *_DEVICES}
        self._synced = asyncio.Event()
        self._bindings = asyncio.Semaphore(BINDINGS_AT_ONCE)
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Work until cancelled; a server that does not answer is asked again."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start("pending", self._follow("pending", PODS, PENDING, self._pending))
                self._start("placed", self._follow("placed", PODS, PLACED, self._placed))
                self._start("nodes", self._follow("nodes", NODES, EVERYWHERE, self._node))
                self._follow_devices()
                self._start("events", self._recorder.run())
                self._start("flush", self._flush())
                await self._work()
        finally:
            self._queue.close()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work, name=name)

    async def _follow(self, name: str, kind: Kind, scope: Scope, saw: Callable[[Change], None]) -> None:
        async with self._api.informer(kind, scope) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    self._is_synced(name)
                else:
                    saw(change)

    def _is_synced(self, name: str) -> None:
        self._unsynced.discard(name)
        if self._unsynced.issubset(_DEVICES):
            self._synced.set()  # only pods with claims ask for the rest
        if self._unsynced.isdisjoint(_DEVICES) and not self._snapshot.claims.known:
            self._snapshot.claims.known = True
            self._queue.wake(Happening.DEVICES)

    def _follow_devices(self) -> None:
        follower = ClaimFollower(self._snapshot.claims, self._queue.wake)
        sources = ((CLAIMS, follower.claim), (SLICES, follower.slice), (DEVICE_CLASSES, follower.device_class),
                   (TAINT_RULES, follower.rule))  # fmt: skip
        for name, (kind, saw) in zip(_DEVICES, sources, strict=True):
            self._start(name, self._follow_if_served(name, kind, saw))

    async def _follow_if_served(self, name: str, kind: Kind, saw: Callable[[Change], None]) -> None:
        """An API server may be too old to know a kind: then there is none of it."""
        try:
            await self._follow(name, kind, EVERYWHERE, saw)
        except ApiError as error:
            if error.code != 404:
                raise
            log.debug("not served by the API server", extra={"kind": kind.kind, "why": error.message})
            self._snapshot.claims.unserved.add(kind.kind)
            self._is_synced(name)

    def _pending(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                self._waits(object_, change.previous if isinstance(change, Updated) else None)
            case Deleted(object_):
                self._no_longer_waits(metadata(object_).get("uid", ""))

    def _waits(self, object_: Object, previous: Object | None) -> None:
        info = _read(object_)
        if info is None or not _ours(info):
            self._no_longer_waits(metadata(object_).get("uid", ""))
        elif info.pod.spec.scheduling_gates:
            self._no_longer_waits(info.pod.uid)
            self._report(info, GATED)
        elif not self._snapshot.place(info.pod.uid):
            self._queue.update(info, worth_a_try=previous is not None and _changed(previous, object_))
            if self._queue.asleep(info.pod.uid) and (verdict := self._verdicts.get(info.pod.uid)) is not None:
                self._report(info, verdict)
        else:
            self._queue.refresh(info)  # should its binding fail, it is tried again as it is now

    def _no_longer_waits(self, uid: str) -> None:
        self._queue.drop(uid)
        self._reports.forget(uid)
        self._verdicts.pop(uid, None)

    def _placed(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                info = _read(object_)
                if info is not None:
                    self._assumed.pop(info.pod.uid, None)
                    self._no_longer_waits(info.pod.uid)
                    self._holds(info)
            case Deleted(object_):
                self._gone(metadata(object_).get("uid", ""))

    def _holds(self, info: PodInfo) -> None:
        if info.pod.finished:
            self._gone(info.pod.uid)
            return
        before = self._snapshot.drop_pod(info.pod.uid)
        self._snapshot.put_pod(info, info.pod.spec.node_name)
        if before is None or before.pod.metadata.labels != info.pod.metadata.labels:
            self._queue.wake(Happening.POD_CAME)
        if before is not None and (before.requests, before.pod.deleting) != (info.requests, info.pod.deleting):
            self._queue.wake(Happening.POD_GONE)

    def _gone(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        if self._snapshot.claims.give_up(uid):
            self._queue.wake(Happening.DEVICES)
        if self._snapshot.drop_pod(uid) is not None:
            self._queue.wake(Happening.POD_GONE)

    def _node(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                self._node_is_there(object_)
            case Deleted(object_):
                self._snapshot.drop_node(metadata(object_).get("name", ""))
                self._queue.wake(Happening.NODE)

    def _node_is_there(self, object_: Object) -> None:
        try:
            node = nodes.read(object_)
            before = self._snapshot.node(node.name)
            self._snapshot.put_node(node)
        except (msgspec.ValidationError, ValueError) as error:
            name = metadata(object_).get("name", "")
            log.warning("node cannot be read", extra={"node": name, "why": str(error)})
            return
        if before is None or _judged(before) != _judged(node):
            self._queue.wake(Happening.NODE)

    async def _work(self) -> None:
        """Nobody is judged before everything that is there is known."""
        await self._synced.wait()
        log.info("working", extra={"nodes": len(self._snapshot.nodes), "pods": len(self._queue)})
        while True:
            info = await self._queue.take()
            try:
                self._decide(info)
            except Exception:  # a pod that nobody thought of must not keep all others waiting
                log.exception("pod cannot be judged", extra={"pod": info.pod.ref})
                self._queue.pause(info.pod.uid)
            await asyncio.sleep(0)  # bindings begin, and watches are heard, between two decisions

    def _decide(self, info: PodInfo) -> None:
        pod = info.pod
        match choose(info, self._snapshot):
            case Chosen(node):
                decided = claims.decided(info, self._snapshot, node)
                self._snapshot.claims.reserve(pod.uid, decided)
                self._snapshot.put_pod(info, node)
                self._assumed[pod.uid] = info
                self._queue.wake(Happening.POD_CAME)
                self._start(f"bind {pod.ref}", self._bind(info, node, decided))
            case Unschedulable(message, helped_by, quiet):
                self._queue.sleep(pod.uid, helped_by)
                if quiet:
                    self._verdicts.pop(pod.uid, None)
                    return
                self._make_room(info)
                verdict = self._verdicts[pod.uid] = Verdict("Unschedulable", message)
                log.info("no node will do", extra={"pod": pod.ref, "why": message})
                self._recorder.tell(pod, WARNING, "FailedScheduling", message, action="Scheduling")
                self._report(info, verdict)

    def _make_room(self, info: PodInfo) -> None:
        """A claim that is allocated where its pod cannot go is given its choice back, unless others use it."""
        if info.pod.spec.resource_claims and (claim := claims.to_deallocate(info, self._snapshot)) is not None:
            self._start(f"deallocate {claim.ref}", self._deallocate(claim))

    async def _deallocate(self, claim: ResourceClaim) -> None:
        try:
            await self._claims.deallocate(claim)
        except (ApiError, ClientError) as error:
            log.info("not deallocated", extra={"claim": claim.ref, "why": str(error)})
        else:
            log.info("deallocated", extra={"claim": claim.ref})

    async def _bind(self, info: PodInfo, node: str, decided: Sequence[Decided]) -> None:
        pod = info.pod
        try:
            async with self._bindings:
                if self._snapshot.node(node) is None:
                    self._try_again(info)  # it went while this waited its turn
                    return
                failpoint(ASSUMED)
                await self._claims.reserve(pod, decided)
                await self._api.bind(pod.name, pod.namespace, node, uid=pod.uid)
                failpoint(BOUND)
        except Lost as error:
            log.info("not bound", extra={"pod": pod.ref, "node": node, "why": str(error)})
            self._try_again(info)
        except (ApiError, ClientError) as error:
            log.info("not bound", extra={"pod": pod.ref, "node": node, "why": str(error)})
            await self._after_failure(info, error)
        except Exception:  # an answer that is none ends this binding, not those of all other pods
            log.exception("not bound", extra={"pod": pod.ref, "node": node})
            await self._find_out(info)
        else:
            self._no_longer_waits(pod.uid)
            log.info("bound", extra={"pod": pod.ref, "node": node})
            text = f"Successfully assigned {pod.ref} to {node}"
            self._recorder.tell(pod, NORMAL, "Scheduled", text, action="Binding")

    async def _after_failure(self, info: PodInfo, error: ApiError | ClientError) -> None:
        if isinstance(error, ApiError) and error.code not in (404, 409):
            self._try_again(info)
            self._recorder.tell(info.pod, WARNING, "FailedScheduling", error.message, action="Scheduling")
            self._report(info, Verdict("SchedulerError", error.message))
        else:
            await self._find_out(info)

    async def _find_out(self, info: PodInfo) -> None:
        """Somebody else may have bound it, or the answer was lost: it stays counted until its place is known."""
        pause = FIRST_PAUSE
        while info.pod.uid in self._assumed:
            try:
                seen = await self._look(info)
            except (ApiError, ClientError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._found_out(info, seen)
                return

    async def _look(self, info: PodInfo) -> Object | None:
        try:
            return await self._api.get(PODS, info.pod.name, info.pod.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _found_out(self, info: PodInfo, seen: Object | None) -> None:
        uid = info.pod.uid
        if uid not in self._assumed:
            return  # a watch was quicker
        if seen is None or metadata(seen).get("uid") != uid:
            self._no_longer_waits(uid)
            self._gone(uid)
        elif node := seen["spec"].get("nodeName", ""):
            self._no_longer_waits(uid)
            self._snapshot.put_pod(info, node)
        else:
            self._try_again(info)

    def _try_again(self, info: PodInfo) -> None:
        self._gone(info.pod.uid)
        self._queue.pause(info.pod.uid)

    def _report(self, info: PodInfo, verdict: Verdict) -> None:
        if self._reports.wanted(info.pod, verdict):
            self._start(f"report {info.pod.ref}", self._write_report(info, verdict))

    async def _write_report(self, info: PodInfo, verdict: Verdict) -> None:
        if not await self._reports.write(info.pod, verdict) and self._queue.asleep(info.pod.uid):
            self._queue.pause(info.pod.uid)

    async def _flush(self) -> None:
        """Should a watch ever have missed something, nobody waits longer than this."""
        before: Mapping[str, PodInfo] = {}
        while True:
            await asyncio.sleep(FLUSH)
            self._queue.wake_all()
            for uid, info in list(self._assumed.items()):
                if before.get(uid) is info:
                    await self._find_out(info)
            before = dict(self._assumed)


def _ours(info: PodInfo) -> bool:
    pod = info.pod
    return pod.spec.scheduler_name == NAME and not pod.deleting and not pod.finished


def _changed(before: Object, after: Object) -> bool:
    """In what filters look at."""
    return _looked_at(before) != _looked_at(after)


def _looked_at(pod: Object) -> tuple[Any, ...]:
    return pod.get("spec"), metadata(pod).get("labels"), (pod.get("status") or {}).get("resourceClaimStatuses")


def _judged(node: Node) -> tuple[Any, ...]:
    """All that filters look at; heartbeats are not."""
    return node.status.allocatable, node.metadata.labels, node.spec.taints, node.spec.unschedulable


def _read(object_: Object) -> PodInfo | None:
    try:
        return pod_info.read(object_)
    except Unreadable as error:
        log.warning("pod cannot be read", extra={"pod": "/".join(key_of(object_)), "why": str(error)})
        return None
