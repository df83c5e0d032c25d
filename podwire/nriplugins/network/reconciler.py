"""Keeps the pods of this node as the resources want them: at once in hooks, and after every change."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from podwire.linux.errors import LinuxError
from podwire.nriplugins.network import pod_network
from podwire.nriplugins.network.kinds import CUSTOM, PODS
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import Read
from podwire.nriplugins.network.policy.bridges import NotJudged
from podwire.nriplugins.network.policy_enforcer import NOT_ENFORCED, Facts, PolicyEnforcer, PolicyWarning
from podwire.nriplugins.network.ports import Now
from podwire.nriplugins.network.resource_cache import ResourceCache
from podwire.nriplugins.network.resources import Head
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_writer import Statuses
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.protocols.k8sapi.client_side.events import WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, key_of, metadata

_log = logging.getLogger("podwire.nriplugins.network")

T = TypeVar("T")
AT_ONCE = 4
"""Pods whose namespaces are gone through at the same time."""
RETRY = 2.0
"""Seconds after which the kernel is asked again for what it refused."""
AUDIT = 30.0
"""Seconds after which the kernel is asked for all that it has: somebody else may have been at it."""


class NetworkReconciler:
    def __init__(
        self,
        *,
        policing: PolicyEnforcer,
        statuses: Statuses,
        events: Recorder,
        meter: Meter,
        now: Now,
    ) -> None:
        self._policing, self._statuses = policing, statuses
        self._events, self._meter, self._now = events, meter, now
        self.known = ResourceCache()
        self.locals: dict[str, Sandbox] = {}
        self.refused: dict[str, Sandbox] = {}
        """By UID, pods that could not have what they must; until they can, or are deleted."""
        self._changes: list[tuple[Kind, Change]] = []
        self._unfit: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._work = asyncio.Event()
        self._may_settle = asyncio.Event()
        """From the first Synchronize on: before it nobody knows whose rules are in the kernel."""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="policies")
        """Policies are one thing, and one thread has them."""
        self._edition = 0
        """How often resources have changed."""
        self._failed = False
        """Whether the kernel refused something in the last pass."""
        self._waiting: list[asyncio.Future[None]] = []
        self._hands = asyncio.Semaphore(AT_ONCE)

    # What is heard.

    def heard(self, kind: Kind, change: Change) -> None:
        """A change of a copy."""
        if isinstance(change, Synced):
            return
        if kind in CUSTOM:
            self._resource(kind, change)
            return
        self._changes.append((kind, change))
        if kind is PODS:
            self._pod(change.object, gone=isinstance(change, Deleted))
        self._work.set()

    def _resource(self, kind: Kind, change: Change) -> None:
        assert not isinstance(change, Synced)  # noqa: S101 - those are none of a resource
        namespace, _ = key_of(change.object)
        if isinstance(change, Deleted):
            self.known.remove(kind, change.object)
            changed = True
        else:
            changed = self.known.put(kind, change.object)
        if changed:
            self._edition += 1
            self._unfit |= {each.id for each in self.locals.values() if each.namespace == namespace}
            self._work.set()
        self._statuses.touch(kind, change.object)

    def _pod(self, object_: Object, *, gone: bool) -> None:
        uid = metadata(object_).get("uid", "")
        if gone:
            if self.refused.pop(uid, None) is not None:
                self._statuses.concern(self.known.of(key_of(object_)[0]).heads())
            return
        for each in self.locals.values():
            if each.uid == uid and each.learn(object_):
                self._unfit.add(each.id)

    def chosen(self, local: Sandbox) -> list[Head]:
        """The resources that concern a pod."""
        return [each for each in self.known.of(local.namespace).heads() if each.uid in local.concerned]

    # Hooks.

    async def admit(self, local: Sandbox, reads: Sequence[Read]) -> None:
        """Everything that a new pod is to have, before it can send a packet. Raises RpcError: it must not run."""
        edition, resources = self._edition, self.known.of(local.namespace, reads)
        local.bare = True
        try:
            here, changes = tuple(self.locals.values()), self._taken()
            await self._in_order(lambda: self._policing.protect(local, here, changes))
            await asyncio.to_thread(pod_network.fit, local, resources)
            self._tell(local)
            if fatal := [each for each in local.troubles if each.fatal]:
                raise FailedPrecondition("; ".join(map(str, fatal)))
        except BaseException as error:
            self.refused[local.uid] = local
            self._meter.failed("pod", type(error).__name__)
            await self._in_order(lambda: self._policing.release(local))
            if isinstance(error, NotJudged):
                self._remark(local, PolicyWarning(NOT_ENFORCED, str(error)))
            if isinstance(error, LinuxError | NotJudged):
                raise FailedPrecondition(str(error)) from error
            raise
        finally:
            self._statuses.concern(self.known.of(local.namespace).heads())
        self.refused.pop(local.uid, None)
        self.locals[local.id] = local
        if edition != self._edition:  # what came meanwhile was not told to this pod
            self._unfit.add(local.id)
        self._work.set()

    def refit(self, local: Sandbox) -> None:
        """A pod has other labels than when it was looked at."""
        self._unfit.add(local.id)
        self._work.set()

    async def dismiss(self, local: Sandbox) -> None:
        """A pod ends: nothing of it stays."""
        known = self.locals.pop(local.id, local)
        self._unfit.discard(local.id)
        async with self._lock(local.id):
            try:
                await self._in_order(lambda: self._policing.release(known))
            except LinuxError:
                self._work.set()  # the next pass finds addresses that nobody has
                raise
            finally:
                await asyncio.to_thread(pod_network.remove, known)
        self._locks.pop(local.id, None)
        self._statuses.concern(self.known.of(local.namespace).heads())

    async def resume(self, found: Iterable[Sandbox], pod_of: Callable[[Sandbox], Object | None]) -> None:
        """All pods that there are, at the beginning of a connection; brings them to what they should have."""
        there = {each.id: each for each in found}
        for gone in [each for id_, each in self.locals.items() if id_ not in there]:
            await self.dismiss(gone)
        for each in there.values():
            each.learn(pod_of(each))
            self.locals.setdefault(each.id, each)
        self._unfit |= there.keys()
        self._may_settle.set()
        self._work.set()

    # What follows from changes.

    async def run(self, complete: asyncio.Event) -> None:
        """Work until cancelled, from when everything is known."""
        await complete.wait()
        await self._may_settle.wait()
        audit = False
        while True:
            await self.look(audit=audit)
            try:
                async with asyncio.timeout(RETRY if self._failed else AUDIT), self._hearing_bridges():
                    await self._work.wait()
                audit = False
            except TimeoutError:
                audit = True
                self._unfit |= self.locals.keys()

    @asynccontextmanager
    async def _hearing_bridges(self) -> AsyncIterator[None]:
        """Whoever writes to their settings makes work; a pass then looks and listens anew."""
        loop, descriptor = asyncio.get_running_loop(), self._policing.bridges
        if descriptor is None:
            yield
            return
        loop.add_reader(descriptor, self._work.set)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    async def caught_up(self, within: float) -> bool:
        """Wait for a pass that begins from now on; False when it is not over in so many seconds."""
        passed = asyncio.get_running_loop().create_future()
        self._waiting.append(passed)
        self._work.set()
        try:
            async with asyncio.timeout(within):
                await passed
        except TimeoutError:
            return False
        return True

    async def look(self, *, audit: bool = False) -> None:
        """One pass: all changes so far are in the kernel afterwards."""
        waiting, self._waiting = self._waiting, []
        try:
            await self._pass(audit=audit)
        finally:
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def _pass(self, *, audit: bool = False) -> None:
        self._work.clear()
        begun = self._now()
        here, changes = tuple(self.locals.values()), self._taken()
        self._failed = False
        try:
            remarks = await self._in_order(lambda: self._policing.settle(here, changes, audit=audit))
        except LinuxError as error:
            self._failed = True
            self._meter.failed("policies", type(error).__name__)
            _log.error("policies could not be set", extra={"why": str(error)})
        else:
            self._meter.updated("policies", self._now() - begun)
            for each in here:
                self._remark(each, remarks.get(each.uid))
        unfit, self._unfit = self._unfit, set()
        if unfit:
            await asyncio.gather(*(self._fit(each) for each in unfit))
            self._meter.updated("routes and mesh", self._now() - begun)

    async def _fit(self, id_: str) -> None:
        local = self.locals.get(id_)
        if local is None:
            return
        async with self._hands, self._lock(id_):
            if id_ not in self.locals:
                return
            try:
                await asyncio.to_thread(pod_network.fit, local, self.known.of(local.namespace))
            except LinuxError as error:
                self._failed = True
                _log.warning("a pod could not be changed", extra={"pod": local.ref, "why": str(error)})
                self._meter.failed("pod", type(error).__name__)
                return
        self._tell(local)
        self._statuses.concern(self.known.of(local.namespace).heads())

    async def facts(self) -> Facts:
        """Of policies, for whoever counts. Raises LinuxError."""
        return await self._in_order(self._policing.facts)

    # Words.

    def _tell(self, local: Sandbox) -> None:
        """What is wrong with resources, once for each thing that is."""
        for each in local.troubles:
            self._meter.failed(each.resource.kind, each.why)
        self._warn(local, "resources", [(f"{each.resource.kind}{each.why}", str(each)) for each in local.troubles])

    def _remark(self, local: Sandbox, remark: PolicyWarning | None) -> None:
        self._warn(local, "policies", [] if remark is None else [remark])

    def _warn(self, local: Sandbox, part: str, wrong: Iterable[tuple[str, str]]) -> None:
        now, before = frozenset(wrong), local.told.get(part, frozenset())
        local.told[part] = now
        for reason, message in sorted(now - before):
            _log.warning(message, extra={"pod": local.ref, "reason": reason})
            self._events.tell(Reference("Pod", local.name, local.namespace, local.uid), WARNING, reason, message)

    def _taken(self) -> list[tuple[Kind, Change]]:
        taken, self._changes = self._changes, []
        return taken

    def _lock(self, id_: str) -> asyncio.Lock:
        return self._locks.setdefault(id_, asyncio.Lock())

    def close(self) -> None:
        self._worker.shutdown(wait=True)

    async def _in_order(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
