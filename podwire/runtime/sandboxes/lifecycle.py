"""Pod sandboxes: RunPodSandbox, StopPodSandbox, RemovePodSandbox, and recovery after a restart.

RunPodSandbox does one step after the other, and the record says how far it got. A crash can come after any of them:

| # | step | failpoint | what a restart finds, and does |
|---|---|---|---|
| 1 | put the record: `making`, attached, hooked | sandbox-recorded | record: undo, nothing else is there |
| 2 | namespaces, /dev/shm, files; fsync the record | sandbox-pinned | record and namespaces: undo |
| 3 | CNI ADD | sandbox-attached | record and cached attachment: DEL, then undo 2 |
| 4 | NRI RunPodSandbox | sandbox-hooked | the same, and NRI StopPodSandbox and RemovePodSandbox first |
| 5 | put the record: `ready` | sandbox-ready | a ready sandbox: it is adopted; the kubelet's retry gets its id |

Undo goes in reverse: NRI, CNI DEL, namespaces, record. Each step has its own deadline. What cannot be undone stays as a
record that is `stopped`, for StopPodSandbox, RemovePodSandbox or the next start. CNI keeps its namespace until DEL has
succeeded. Steps that the record claims and that were not reached are undone, too: DEL, NRI's stop and the removal of
namespaces are idempotent.

StopPodSandbox records `stopped` first, so that nothing is started in it any more; then come the containers, NRI
(sandbox-unhooked), CNI DEL (sandbox-detached; the record says attached=False) and the namespaces (sandbox-unpinned). A
restart continues where the record says.

A power loss may take a record that was not fsynced. Then only things that end with the machine were made: the fsync of
step 2 comes before the first call of CNI. After a reboot a `ready` sandbox is `stopped` (another boot id), and DEL is
called when it is stopped. Namespaces and cached attachments without a record are removed by `finish`; so is
what is left of a damaged one (records.py).
"""

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from podwire.durable.files import Durability
from podwire.durable.records import Records
from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import (
    AlreadyExists,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    RpcError,
)
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.validation import check_sandbox, new_id, sandbox_name
from podwire.runtime.hooks import Hooks
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.ports import Attachment, Network
from podwire.runtime.records import LostRecords, SandboxRecord, keep_damaged, record_directory
from podwire.runtime.sandboxes.kernel import SandboxKernel
from podwire.runtime.sandboxes.sandbox import Sandbox, attachment_of, pod_name
from podwire.runtime.spec.build import NODE, Pod
from podwire.runtime.spec.user_namespaces import requested_range
from podwire.tasks.uncancelled import Uncancelled, to_completion

_log = logging.getLogger("podwire.runtime.sandboxes")

RECORDED = declare("runtime.sandbox-recorded", "a sandbox has its record and nothing else")
PINNED = declare("runtime.sandbox-pinned", "a sandbox has its namespaces, CNI was not called yet")
ATTACHED = declare("runtime.sandbox-attached", "CNI ADD has succeeded, the record does not say so yet")
HOOKED = declare("runtime.sandbox-hooked", "NRI plugins know a sandbox, the record does not say ready yet")
READY = declare("runtime.sandbox-ready", "the record says ready, the caller has no answer yet")
UNHOOKED = declare("runtime.sandbox-unhooked", "NRI plugins know that a sandbox stops, CNI was not called yet")
DETACHED = declare("runtime.sandbox-detached", "CNI DEL has succeeded, the namespaces still exist")
UNPINNED = declare("runtime.sandbox-unpinned", "the namespaces are removed, the record does not say so yet")

HANDLERS = ("", "podwire")
"""Runtime handlers (RuntimeClass) that this runtime has."""


class Sandboxes:
    """All sandboxes of this runtime."""

    def __init__(
        self,
        records: Records[SandboxRecord],
        kernel: SandboxKernel,
        network: Network,
        hooks: Hooks,
        events: Events,
        clock: Clock,
        boot_id: str,
        limits: RuntimeLimits | None = None,
        *,
        user_namespaces: bool = False,
        lost: LostRecords | None = None,
    ) -> None:
        """`user_namespaces`: whether kernel and OCI runtime support those of pods."""
        self.lost = lost or LostRecords()
        self._user_namespaces = user_namespaces
        self._records = records
        self._kernel = kernel
        self._network = network
        self._hooks = hooks
        self._events = events
        self._clock = clock
        self._boot_id = boot_id
        self._limits = limits or RuntimeLimits()
        self._sandboxes: dict[str, Sandbox] = {}
        self._uncancelled = Uncancelled()
        self._running: dict[str, tuple[pb.RunPodSandboxRequest, asyncio.Task[str]]] = {}
        """RunPodSandbox calls in progress, by the sandbox's name."""
        self._unfinished: list[Sandbox] = []

    def __iter__(self) -> Iterator[Sandbox]:
        return iter(list(self._sandboxes.values()))

    def find(self, id_: str) -> Sandbox | None:
        """Finds a sandbox by its id, or by a unique prefix of it."""
        if sandbox := self._sandboxes.get(id_):
            return sandbox
        matching = [sandbox for key, sandbox in self._sandboxes.items() if id_ and key.startswith(id_)]
        return matching[0] if len(matching) == 1 else None

    def get(self, id_: str) -> Sandbox:
        sandbox = self.find(id_)
        if sandbox is None:
            raise NotFound(f"pod sandbox {id_!r} does not exist")
        return sandbox

    async def run(self, request: pb.RunPodSandboxRequest) -> str:
        """RunPodSandbox. Idempotent: a retry after a timeout gets the sandbox that the first call makes or made."""
        check_sandbox(request.config)
        if requested_range(request.config.linux.security_context.namespace_options) and not self._user_namespaces:
            raise InvalidArgument(
                "config.linux.security_context.namespace_options.userns_options: this node does not support user "
                "namespaces; they need Linux 6.3 and crun"
            )
        if request.runtime_handler not in HANDLERS:
            raise InvalidArgument(f"runtime_handler: {request.runtime_handler!r} must be one of {HANDLERS}")
        name = sandbox_name(request.config.metadata)
        for sandbox in self._sandboxes.values():
            if sandbox_name(sandbox.config.metadata) == name:
                if sandbox.ready and sandbox.config == request.config:
                    return sandbox.id
                raise AlreadyExists(f"config.metadata: {name} is the name of sandbox {sandbox.id}")
        if name not in self._running:
            task = self._uncancelled.start(self._run(request))
            self._running[name] = (request, task)
            task.add_done_callback(lambda _task: self._running.pop(name, None))
        first_request, task = self._running[name]
        if first_request != request:
            raise AlreadyExists(f"config.metadata: a sandbox {name} with another configuration is being made")
        return await self._uncancelled.result(task)

    async def _run(self, request: pb.RunPodSandboxRequest) -> str:
        """Does the steps of the table above."""
        config, id_ = request.config, new_id()
        options = config.linux.security_context.namespace_options
        record = SandboxRecord(
            id=id_,
            state="making",
            config=config.SerializeToString(),
            created_at=int(self._clock.wall() * 1e9),
            boot_id=self._boot_id,
            handler=request.runtime_handler,
            network="" if options.network == NODE else self._kernel.network(id_),
            ipc="" if options.ipc == NODE else self._kernel.ipc(id_),
            user=self._kernel.user(id_) if requested_range(options) else "",
            attached=options.network != NODE,
            hooked="run",
        )
        await asyncio.to_thread(self._records.put, id_, record, Durability.PROCESS_DEATH)
        failpoint(RECORDED)
        sandbox = Sandbox(record, config)
        async with AsyncExitStack() as undo:
            undo.push_async_exit(partial(self._undo_failed_run, sandbox))
            outcomes = await asyncio.gather(
                asyncio.to_thread(self._make, sandbox),
                asyncio.to_thread(self._records.fsync, id_),  # before CNI makes what survives a power loss
                return_exceptions=True,  # both threads have ended before anything is undone
            )
            for error in filter(None, outcomes):
                raise error
            failpoint(PINNED)
            addresses: tuple[str, ...] = ()
            if record.network:
                addresses = await self._network.attach(attachment_of(sandbox))
                failpoint(ATTACHED)
            sandbox.record = msgspec.structs.replace(record, addresses=addresses)
            await self._hooks.run_pod(sandbox)
            failpoint(HOOKED)
            await self._write(sandbox, state="ready")
            failpoint(READY)
            undo.pop_all()
        self._sandboxes[id_] = sandbox
        self._events.sandbox(sandbox, "CREATED")
        self._events.sandbox(sandbox, "STARTED")
        return id_

    def _make(self, sandbox: Sandbox) -> None:
        """Makes the namespaces and files of a sandbox. Blocking."""
        id_, network, ipc = sandbox.id, bool(sandbox.record.network), bool(sandbox.record.ipc)
        ids = requested_range(sandbox.config.linux.security_context.namespace_options)
        self._kernel.make(id_, sandbox.config, network=network, ipc=ipc, ids=ids)
        write_pod_files(record_directory(self._records, id_), sandbox.config)

    async def _undo_failed_run(
        self, sandbox: Sandbox, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        await to_completion(self._undo(sandbox, str(error)))

    async def _undo(self, sandbox: Sandbox, error: str) -> None:
        """Undoes RunPodSandbox; keeps the record when something could not be removed."""
        fields = {"sandbox": sandbox.id, "pod": pod_name(sandbox), "error": error}
        _log.warning("cannot run sandbox, undoing it", extra=fields)
        failures = await self._tear_down(sandbox)
        if not failures:
            await self._hooks.remove_pod(sandbox)
            await asyncio.to_thread(self._records.remove, sandbox.id, Durability.PROCESS_DEATH)
            return
        _log.error("cannot undo sandbox completely", extra={"sandbox": sandbox.id, "error": "; ".join(failures)})
        await self._try_write(sandbox, state="stopped")
        self._sandboxes[sandbox.id] = sandbox

    async def stop(self, sandbox: Sandbox, stop_containers: Callable[[], Awaitable[None]]) -> None:
        """StopPodSandbox. Idempotent.

        1. Record `stopped`: nothing can be started in it any more.  2. Containers.  3. NRI, network, namespaces.
        """
        sandbox.stopping.set()
        async with sandbox.lock:
            was_ready = sandbox.ready
            if was_ready:
                await self._try_write(sandbox, state="stopped")
            await stop_containers()
            if failures := await self._tear_down(sandbox):
                raise Internal(f"sandbox {sandbox.id} is not completely stopped: {'; '.join(failures)}")
            if was_ready:
                self._events.sandbox(sandbox, "STOPPED")

    def notify_check_changed(self, id_: str) -> None:
        """Sends an event because CHECK found something else than before, which only the verbose status shows.

        The event is CREATED, because that has the least effect on other kubelets: they read the same status again.
        """
        if (sandbox := self._sandboxes.get(id_)) is not None and sandbox.ready:
            self._events.sandbox(sandbox, "CREATED")

    async def lose_network(self, id_: str) -> None:
        """Marks a sandbox as not ready, because its network is lost: the kubelet stops it and makes another."""
        if (sandbox := self._sandboxes.get(id_)) is None:
            return
        async with sandbox.lock:
            if sandbox.ready:
                fields = {"sandbox": id_, "pod": pod_name(sandbox)}
                _log.warning("sandbox has lost its network, marked as not ready", extra=fields)
                await self._try_write(sandbox, state="stopped")
                self._events.sandbox(sandbox, "STOPPED")

    async def update_resources(self, sandbox: Sandbox, request: pb.UpdatePodSandboxResourcesRequest) -> None:
        """UpdatePodSandboxResources: the kubelet has changed the pod's cgroup; here it is recorded and reported."""
        async with sandbox.lock:
            sandbox.check_ready()
            await self._hooks.update_pod(sandbox, request.overhead, request.resources)
            sandbox.config.linux.overhead.MergeFrom(request.overhead)
            sandbox.config.linux.resources.MergeFrom(request.resources)
            await self._write(sandbox, config=sandbox.config.SerializeToString())
            await self._hooks.updated_pod(sandbox)

    async def remove(self, sandbox: Sandbox) -> None:
        """RemovePodSandbox, of a sandbox that is stopped."""
        if sandbox.ready:
            raise FailedPrecondition(f"sandbox {sandbox.id} is still ready")
        async with sandbox.lock:
            if sandbox.id not in self._sandboxes:
                return
            await self._hooks.remove_pod(sandbox)
            self._events.sandbox(sandbox, "DELETED")
            await asyncio.to_thread(self._forget, sandbox.id)
            self._sandboxes.pop(sandbox.id, None)

    async def _tear_down(self, sandbox: Sandbox) -> list[str]:
        """1. NRI.  2. CNI DEL.  3. Namespaces and shared memory, unless CNI still needs them. Returns failures."""
        if sandbox.record.hooked == "run":
            sandbox.record = msgspec.structs.replace(sandbox.record, hooked="stopped")
            if await self._hooks.stop_pod(sandbox):
                await self._try_write(sandbox)
            failpoint(UNHOOKED)
        if sandbox.record.attached:
            if failure := await self._detach(attachment_of(sandbox)):
                return [failure]
            failpoint(DETACHED)
            await self._try_write(sandbox, attached=False, addresses=())
        failures = await asyncio.to_thread(self._kernel.remove, sandbox.id)
        failpoint(UNPINNED)
        return failures

    async def _detach(self, attachment: Attachment) -> str:
        """Calls CNI DEL within the deadline of an undo step. Returns the error, empty when it succeeded."""
        try:
            async with asyncio.timeout(self._limits.undo):
                await self._network.detach(attachment)
        except TimeoutError:
            return f"network: not detached within {self._limits.undo:g} s"
        except (RpcError, OSError) as error:
            return f"network: {error}"
        return ""

    async def _write(self, sandbox: Sandbox, **changes: Any) -> None:
        record = msgspec.structs.replace(sandbox.record, **changes)
        await asyncio.to_thread(self._records.put, record.id, record, Durability.PROCESS_DEATH)
        sandbox.record = record

    async def _try_write(self, sandbox: Sandbox, **changes: Any) -> None:
        """Records that something was released. A full disk must not prevent that: the next start finds it out."""
        sandbox.record = msgspec.structs.replace(sandbox.record, **changes)
        try:
            await asyncio.to_thread(self._records.put, sandbox.id, sandbox.record, Durability.PROCESS_DEATH)
        except OSError as error:
            _log.error("cannot update sandbox record", extra={"sandbox": sandbox.id, "error": str(error)})

    async def recover(self) -> None:
        """After a start: adopts what is complete. The rest waits for `finish`, when NRI plugins are connected."""
        await asyncio.to_thread(self._records.sweep)
        for record in (await asyncio.to_thread(self._records.load)).values():
            sandbox = Sandbox(record, pb.PodSandboxConfig.FromString(record.config))
            if record.state == "making":
                self._unfinished.append(sandbox)
                continue
            self._sandboxes[record.id] = sandbox
            if record.state == "ready":
                survives = record.boot_id == self._boot_id and (
                    not record.network or self._kernel.is_pinned(record.network)
                )
                if not survives:
                    await self._try_write(sandbox, state="stopped")
        attached = [attachment_of(sandbox) for sandbox in self if sandbox.record.attached]
        for id_ in await self._network.adopt(attached):  # before GC, which releases what CNI does not know
            self.lost.add("CNI attachment", id_, "its file was damaged or missing, and is made anew")

    async def finish(self) -> None:
        """After a start: undoes interrupted RunPodSandbox calls, and removes what is left of lost records.

        All at the same time: one whose plugins hang must not delay the start of the runtime by more than one deadline.
        """
        unfinished, self._unfinished = self._unfinished, []
        interrupted = "the runtime was stopped during RunPodSandbox"
        await asyncio.gather(*(self._undo(sandbox, interrupted) for sandbox in unfinished))
        attached, pinned = await self._network.attached(), await asyncio.to_thread(self._kernel.pinned)
        damaged = set(await asyncio.to_thread(self._records.quarantined))
        orphans = (attached | pinned | damaged) - set(self._sandboxes)
        for id_ in orphans - damaged:
            self.lost.add("sandbox", id_, "it has no record")
        await asyncio.gather(*(self._remove_orphan(id_, attached=id_ in attached) for id_ in orphans))

    async def _remove_orphan(self, id_: str, *, attached: bool) -> None:
        """Removes what is left of a sandbox whose record is lost."""
        _log.warning("removing orphaned sandbox", extra={"sandbox": id_})
        failures = []
        if attached:  # the id is enough: CNI has cached the rest
            orphan = Attachment(id=id_, netns=self._kernel.network(id_), name="", namespace="", uid="")
            failures = [failure] if (failure := await self._detach(orphan)) else []
        if failures := failures or await asyncio.to_thread(self._kernel.remove, id_):
            _log.error("cannot remove orphaned sandbox", extra={"sandbox": id_, "error": "; ".join(failures)})
            return
        await asyncio.to_thread(self._forget, id_)

    def _forget(self, id_: str) -> None:
        """Removes the record and its directory; damaged files are kept elsewhere."""
        keep_damaged(self._records, id_)
        self._records.remove(id_, Durability.PROCESS_DEATH)

    def pod(self, sandbox: Sandbox) -> Pod:
        """Returns what the specifications of its containers are built from."""
        directory = record_directory(self._records, sandbox.id)
        return Pod(
            id=sandbox.id,
            config=sandbox.config,
            network=sandbox.record.network,
            ipc=sandbox.record.ipc,
            user=sandbox.record.user,
            pids=self._kernel.pid(sandbox.id),
            ids=requested_range(sandbox.config.linux.security_context.namespace_options),
            shm=str(self._kernel.shm(sandbox.id)),
            files={"/etc/hostname": str(directory / "hostname"), "/etc/resolv.conf": str(directory / "resolv.conf")},
        )


HOST_RESOLV = Path("/etc/resolv.conf")


def write_pod_files(home: Path, config: pb.PodSandboxConfig) -> None:
    """Writes both in place: containers have them mounted."""
    hostname = config.hostname or platform.node()  # a pod on the node's network has the node's name
    (home / "hostname").write_text(f"{hostname}\n", encoding="utf-8")
    (home / "resolv.conf").write_text(resolv_conf(config), encoding="utf-8")


def resolv_conf(config: pb.PodSandboxConfig) -> str:
    """Returns resolv.conf by the kubelet's dns_config; without one, that of the host."""
    if not config.HasField("dns_config"):
        try:
            return HOST_RESOLV.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    dns = config.dns_config
    for word in (*dns.servers, *dns.searches, *dns.options):
        if any(letter.isspace() for letter in word):
            raise InvalidArgument(f"config.dns_config: {word!r} must not contain white space")
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.append(f"search {' '.join(dns.searches)}")
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}")
    return "".join(f"{line}\n" for line in lines)
