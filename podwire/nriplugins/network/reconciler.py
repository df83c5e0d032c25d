"""Brings the pods of this node to what the resources say: at once in hooks, and after every change.

A pod is `refused` (its RunPodSandbox failed) or in `sandboxes`. A sandbox whose resources, labels or kernel state may
have changed is dirty until the next pass has applied its routes and mesh. Policies of all pods are reconciled in each
pass, by one thread, because they share one nft table. Routes and mesh of a pod are applied under its lock, those of
several pods concurrently.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from podwire.linux.errors import LinuxError
from podwire.nriplugins.network import pod_network
from podwire.nriplugins.network.kinds import CUSTOM, PODS
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import Read
from podwire.nriplugins.network.policy.bridges import NotEnforceable
from podwire.nriplugins.network.policy_enforcer import NOT_ENFORCED, Facts, PolicyEnforcer, PolicyWarning
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits, Now
from podwire.nriplugins.network.resource_cache import ResourceCache
from podwire.nriplugins.network.resources import Head
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_writer import Statuses
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.protocols.k8sapi.client_side.events import WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, key_of, metadata
from podwire.tasks.keyed_locks import KeyedLocks

_log = logging.getLogger("podwire.nriplugins.network")

T = TypeVar("T")


class NetworkReconciler:
    def __init__(
        self,
        *,
        enforcer: PolicyEnforcer,
        statuses: Statuses,
        events: Recorder,
        meter: Meter,
        now: Now,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._enforcer, self._statuses = enforcer, statuses
        self._events, self._meter, self._now = events, meter, now
        self.known = ResourceCache()
        self.sandboxes: dict[str, Sandbox] = {}
        self.refused: dict[str, Sandbox] = {}
        """By UID: pods whose RunPodSandbox failed, until it succeeds or the pod is deleted."""
        self._changes: list[tuple[Kind, Change]] = []
        self._dirty: set[str] = set()
        self._locks = KeyedLocks()
        self._work = asyncio.Event()
        self._synchronized = asyncio.Event()
        """Set by the first Synchronize: before it, rules in the kernel may belong to pods that are not known yet."""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="policies")
        """The one thread that touches policies."""
        self._edition = 0
        """Incremented whenever a resource changes."""
        self._failed = False
        """Whether a change of the kernel failed in the last pass."""
        self._waiting: list[asyncio.Future[None]] = []
        self._slots = asyncio.Semaphore(limits.pods_at_once)

    # Changes of the API server's objects.

    def on_change(self, kind: Kind, change: Change) -> None:
        """Called by the informers, in the event loop."""
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
        assert not isinstance(change, Synced)  # noqa: S101 - on_change returned for those
        namespace, _ = key_of(change.object)
        if isinstance(change, Deleted):
            self.known.remove(kind, change.object)
            changed = True
        else:
            changed = self.known.put(kind, change.object)
        if changed:
            self._edition += 1
            self._dirty |= {sandbox.id for sandbox in self.sandboxes.values() if sandbox.namespace == namespace}
            self._work.set()
        self._statuses.touch(kind, change.object)

    def _pod(self, object_: Object, *, gone: bool) -> None:
        uid = metadata(object_).get("uid", "")
        if gone:
            if self.refused.pop(uid, None) is not None:
                self._statuses.concern(self.known.of(key_of(object_)[0]).heads())
            return
        for sandbox in self.sandboxes.values():
            if sandbox.uid == uid and sandbox.update_from(object_):
                self._dirty.add(sandbox.id)

    def selected_resources(self, sandbox: Sandbox) -> list[Head]:
        """The resources that select a pod, or that it names."""
        return [head for head in self.known.of(sandbox.namespace).heads() if head.uid in sandbox.selected_by]

    # Hooks.

    async def run_pod(self, sandbox: Sandbox, reads: Sequence[Read]) -> None:
        """Applies policies, routes and mesh before a new pod can send a packet. Raises RpcError: it must not run."""
        edition, resources = self._edition, self.known.of(sandbox.namespace, reads)
        sandbox.untouched = True
        async with AsyncExitStack() as undo:
            undo.callback(lambda: self._statuses.concern(self.known.of(sandbox.namespace).heads()))
            undo.push_async_exit(partial(self._refuse_pod, sandbox))
            here, changes = tuple(self.sandboxes.values()), self._take_changes()
            await self._in_policy_thread(lambda: self._enforcer.protect(sandbox, here, changes))
            await asyncio.to_thread(pod_network.fit, sandbox, resources)
            self._tell(sandbox)
            if fatal := [problem for problem in sandbox.problems if problem.fatal]:
                raise FailedPrecondition("; ".join(map(str, fatal)))
        self.refused.pop(sandbox.uid, None)
        self.sandboxes[sandbox.id] = sandbox
        if edition != self._edition:  # resources changed meanwhile
            self._dirty.add(sandbox.id)
        self._work.set()

    async def _refuse_pod(self, sandbox: Sandbox, _kind: object, error: BaseException | None, _trace: object) -> None:
        """After a failure, or when the hook is cancelled: removes what was applied. Raises FailedPrecondition."""
        if error is None:
            return
        self.refused[sandbox.uid] = sandbox
        self._meter.failed("pod", type(error).__name__)
        await self._in_policy_thread(lambda: self._enforcer.release(sandbox))
        if isinstance(error, NotEnforceable):
            self._warn_policy(sandbox, PolicyWarning(NOT_ENFORCED, str(error)))
        if isinstance(error, LinuxError | NotEnforceable):
            raise FailedPrecondition(str(error)) from error

    def recheck(self, sandbox: Sandbox) -> None:
        """The labels of a pod changed while its hook ran."""
        self._dirty.add(sandbox.id)
        self._work.set()

    async def stop_pod(self, sandbox: Sandbox) -> None:
        """Removes everything of a pod that ends."""
        known = self.sandboxes.pop(sandbox.id, sandbox)
        self._dirty.discard(sandbox.id)
        async with self._locks.hold(sandbox.id):
            try:
                await self._in_policy_thread(lambda: self._enforcer.release(known))
            except LinuxError:
                self._work.set()  # the next pass removes addresses without a pod
                raise
            finally:
                await asyncio.to_thread(pod_network.remove, known)
        self._statuses.concern(self.known.of(sandbox.namespace).heads())

    async def synchronize_pods(self, sandboxes: Iterable[Sandbox], pod_of: Callable[[Sandbox], Object | None]) -> None:
        """Takes over the pods of a Synchronize: forgets those that ended, and marks the others for the next pass."""
        by_id = {sandbox.id: sandbox for sandbox in sandboxes}
        for gone in [sandbox for id_, sandbox in self.sandboxes.items() if id_ not in by_id]:
            await self.stop_pod(gone)
        for sandbox in by_id.values():
            sandbox.update_from(pod_of(sandbox))
            self.sandboxes.setdefault(sandbox.id, sandbox)
        self._dirty |= by_id.keys()
        self._synchronized.set()
        self._work.set()

    # Reconciling.

    async def run(self, complete: asyncio.Event) -> None:
        """Reconciles until cancelled, once everything is listed and the runtime has synchronized."""
        await complete.wait()
        await self._synchronized.wait()
        audit = False
        while True:
            await self.reconcile(audit=audit)
            try:
                pause = self._limits.retry if self._failed else self._limits.audit
                async with asyncio.timeout(pause), self._watching_bridges():
                    await self._work.wait()
                audit = False
            except TimeoutError:
                audit = True
                self._dirty |= self.sandboxes.keys()

    @asynccontextmanager
    async def _watching_bridges(self) -> AsyncIterator[None]:
        """A write to the sysctls of bridges triggers a pass."""
        loop, descriptor = asyncio.get_running_loop(), self._enforcer.bridges
        if descriptor is None:
            yield
            return
        loop.add_reader(descriptor, self._work.set)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    async def caught_up(self, within: float) -> bool:
        """Waits for a pass that begins from now on; returns False when it takes longer than `within` seconds."""
        passed = asyncio.get_running_loop().create_future()
        self._waiting.append(passed)
        self._work.set()
        try:
            async with asyncio.timeout(within):
                await passed
        except TimeoutError:
            return False
        return True

    async def reconcile(self, *, audit: bool = False) -> None:
        """Runs one pass: all changes so far are in the kernel afterwards."""
        waiting, self._waiting = self._waiting, []
        try:
            await self._reconcile(audit=audit)
        finally:
            for sandbox in waiting:
                if not sandbox.done():
                    sandbox.set_result(None)

    async def _reconcile(self, *, audit: bool = False) -> None:
        self._work.clear()
        begun = self._now()
        here, changes = tuple(self.sandboxes.values()), self._take_changes()
        self._failed = False
        try:
            warnings = await self._in_policy_thread(lambda: self._enforcer.reconcile(here, changes, audit=audit))
        except LinuxError as error:
            self._failed = True
            self._meter.failed("policies", type(error).__name__)
            _log.error("cannot apply network policies", extra={"error": str(error)})
        else:
            self._meter.updated("policies", self._now() - begun)
            for sandbox in here:
                self._warn_policy(sandbox, warnings.get(sandbox.uid))
        unfit, self._dirty = self._dirty, set()
        if unfit:
            await asyncio.gather(*(self._apply_resources(sandbox) for sandbox in unfit))
            self._meter.updated("routes and mesh", self._now() - begun)

    async def _apply_resources(self, id_: str) -> None:
        sandbox = self.sandboxes.get(id_)
        if sandbox is None:
            return
        async with self._slots, self._locks.hold(id_):
            if id_ not in self.sandboxes:
                return
            try:
                await asyncio.to_thread(pod_network.fit, sandbox, self.known.of(sandbox.namespace))
            except LinuxError as error:
                self._failed = True
                _log.warning("cannot apply routes and mesh to pod", extra={"pod": sandbox.ref, "error": str(error)})
                self._meter.failed("pod", type(error).__name__)
                return
        self._tell(sandbox)
        self._statuses.concern(self.known.of(sandbox.namespace).heads())

    async def facts(self) -> Facts:
        """Counts of policies, for metrics. Raises LinuxError."""
        return await self._in_policy_thread(self._enforcer.facts)

    # Events and metrics.

    def _tell(self, sandbox: Sandbox) -> None:
        """Records the problems of a pod's resources: each once as an event."""
        for problem in sandbox.problems:
            self._meter.failed(problem.resource.kind, problem.why)
        self._warn(
            sandbox,
            "resources",
            [(f"{problem.resource.kind}{problem.why}", str(problem)) for problem in sandbox.problems],
        )

    def _warn_policy(self, sandbox: Sandbox, warning: PolicyWarning | None) -> None:
        self._warn(sandbox, "policies", [] if warning is None else [warning])

    def _warn(self, sandbox: Sandbox, part: str, wrong: Iterable[tuple[str, str]]) -> None:
        now, before = frozenset(wrong), sandbox.warned.get(part, frozenset())
        sandbox.warned[part] = now
        for reason, message in sorted(now - before):
            _log.warning(
                "network of a pod is not as requested", extra={"pod": sandbox.ref, "reason": reason, "error": message}
            )
            self._events.tell(Reference("Pod", sandbox.name, sandbox.namespace, sandbox.uid), WARNING, reason, message)

    def _take_changes(self) -> list[tuple[Kind, Change]]:
        taken, self._changes = self._changes, []
        return taken

    def close(self) -> None:
        self._worker.shutdown(wait=True)

    async def _in_policy_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
