"""Pod sandboxes: made in an order that a crash can interrupt anywhere, and removed by the same code that undoes.

    reserve the name → record → namespaces at paths that follow from the id → CNI ADD → plugins → ready → listed

Whatever fails is undone in reverse, each step with its own deadline. What cannot be undone stays as a record that is
not ready, for StopPodSandbox, RemovePodSandbox or the next start of the runtime to finish.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

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
from podwire.runtime.cri.validation import check_sandbox, name_of, new_id
from podwire.runtime.hooks import Hooks
from podwire.runtime.ports import Attachment, Network
from podwire.runtime.records import Records, SandboxRecord
from podwire.runtime.sandboxes.kernel import SandboxKernel
from podwire.runtime.sandboxes.pod_files import write_pod_files
from podwire.runtime.sandboxes.sandbox import Sandbox, attachment, pod_of
from podwire.runtime.spec.build import NODE, Pod

_log = logging.getLogger("podwire.runtime.sandboxes")

UNDO_SECONDS = 30.0
"""How long each step of an undo may take; the caller's own deadline may have passed already."""

RECORDED = declare("runtime.sandbox-recorded", "a sandbox has its record and nothing else")
PINNED = declare("runtime.sandbox-pinned", "a sandbox has its namespaces, CNI was not asked yet")
ATTACHED = declare("runtime.sandbox-attached", "CNI has answered, the record does not say so yet")
HOOKED = declare("runtime.sandbox-hooked", "plugins were told of a sandbox, the record does not say ready yet")
READY = declare("runtime.sandbox-ready", "the record says ready, the caller was not told yet")
UNHOOKED = declare("runtime.sandbox-unhooked", "plugins were told that a sandbox stops, CNI was not asked yet")
DETACHED = declare("runtime.sandbox-detached", "CNI has given back, the namespaces are still there")
UNPINNED = declare("runtime.sandbox-unpinned", "the namespaces are gone, the record does not say so yet")

HANDLERS = ("", "podwire")


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
    ) -> None:
        self._records = records
        self._kernel = kernel
        self._network = network
        self._hooks = hooks
        self._events = events
        self._clock = clock
        self._boot_id = boot_id
        self._all: dict[str, Sandbox] = {}
        self._making: dict[str, tuple[pb.RunPodSandboxRequest, asyncio.Task[str]]] = {}
        self._unfinished: list[Sandbox] = []

    def __iter__(self) -> Iterator[Sandbox]:
        return iter(list(self._all.values()))

    def find(self, id_: str) -> Sandbox | None:
        """By id, or by the beginning of one that no other has."""
        if found := self._all.get(id_):
            return found
        matching = [each for key, each in self._all.items() if id_ and key.startswith(id_)]
        return matching[0] if len(matching) == 1 else None

    def get(self, id_: str) -> Sandbox:
        found = self.find(id_)
        if found is None:
            raise NotFound(f"pod sandbox {id_!r} is not there")
        return found

    async def run(self, request: pb.RunPodSandboxRequest) -> str:
        """RunPodSandbox. A retry after a time-out gets what the first call is making, or has made."""
        check_sandbox(request.config)
        if request.runtime_handler not in HANDLERS:
            raise InvalidArgument(f"runtime_handler: {request.runtime_handler!r} is not one of this runtime's")
        name = name_of(request.config.metadata)
        if (earlier := self._made(name, request)) is not None:
            return earlier
        if name not in self._making:
            task = asyncio.create_task(self._run(request), name=f"run sandbox {name}")
            self._making[name] = (request, task)
            task.add_done_callback(lambda _task: self._making.pop(name, None))
        asked, task = self._making[name]
        if asked != request:
            raise AlreadyExists(f"config.metadata: a sandbox {name} with another configuration is being made")
        return await asyncio.shield(task)

    def _made(self, name: str, request: pb.RunPodSandboxRequest) -> str | None:
        for each in self._all.values():
            if name_of(each.config.metadata) == name:
                if each.ready and each.config == request.config:
                    return each.id
                raise AlreadyExists(f"config.metadata: {name} is the name of sandbox {each.id}")
        return None

    async def _run(self, request: pb.RunPodSandboxRequest) -> str:
        config = request.config
        options = config.linux.security_context.namespace_options
        id_ = new_id()
        record = SandboxRecord(
            id=id_,
            state="making",
            config=config.SerializeToString(),
            created_at=int(self._clock.wall() * 1e9),
            boot_id=self._boot_id,
            handler=request.runtime_handler,
            network="" if options.network == NODE else self._kernel.network(id_),
            ipc="" if options.ipc == NODE else self._kernel.ipc(id_),
            attached=options.network != NODE,
            hooked="run",
        )
        await asyncio.to_thread(self._records.write, record)
        failpoint(RECORDED)
        sandbox = Sandbox(record, config)
        try:
            await self._make(sandbox)
        except BaseException as error:
            await asyncio.shield(self._give_up(sandbox, error))
            raise
        self._all[id_] = sandbox
        self._events.sandbox(sandbox, "CREATED")
        self._events.sandbox(sandbox, "STARTED")
        return id_

    async def _make(self, sandbox: Sandbox) -> None:
        record = sandbox.record
        durable = asyncio.ensure_future(asyncio.to_thread(self._records.settle, record.id))
        try:
            await asyncio.to_thread(
                self._kernel.make, record.id, sandbox.config, network=bool(record.network), ipc=bool(record.ipc)
            )
            await asyncio.to_thread(write_pod_files, self._records.home(record.id), sandbox.config)
        finally:
            await durable  # before others are asked for anything that does not end with the machine
        failpoint(PINNED)
        addresses: tuple[str, ...] = ()
        if record.network:
            addresses = await self._network.attach(attachment(sandbox))
            failpoint(ATTACHED)
        sandbox.record = msgspec.structs.replace(record, addresses=addresses)
        await self._hooks.run_pod(sandbox)
        failpoint(HOOKED)
        await self._write(sandbox, state="ready")
        failpoint(READY)

    async def _give_up(self, sandbox: Sandbox, why: BaseException) -> None:
        """Undo a sandbox that did not come to be; keep its record when something of it could not be removed."""
        _log.warning("sandbox not made", extra={"sandbox": sandbox.id, "pod": pod_of(sandbox), "reason": str(why)})
        left = await self._take_down(sandbox)
        if not left:
            await self._hooks.remove_pod(sandbox)
            await asyncio.to_thread(self._records.remove, sandbox.id)
            return
        _log.error("sandbox not undone", extra={"sandbox": sandbox.id, "left": "; ".join(left)})
        await self._note(sandbox, state="stopped")
        self._all[sandbox.id] = sandbox

    async def stop(self, sandbox: Sandbox, stop_containers: Callable[[], Awaitable[None]]) -> None:
        """1. Let nothing be started in it any more.  2. Its containers.  3. Network and namespaces.  Again is fine."""
        sandbox.stopping.set()
        async with sandbox.turn:
            was_ready = sandbox.ready
            if was_ready:
                await self._note(sandbox, state="stopped")
            await stop_containers()
            if left := await self._take_down(sandbox):
                raise Internal(f"sandbox {sandbox.id} is not wholly stopped: {'; '.join(left)}")
            if was_ready:
                self._events.sandbox(sandbox, "STOPPED")

    def notify_check_changed(self, id_: str) -> None:
        """CHECK finds something else than before. Only the verbose status shows that, so an event is the hint to ask.

        CREATED, because a kubelet that knows nothing of it does least then: it takes the same status once more.
        """
        if (sandbox := self._all.get(id_)) is not None and sandbox.ready:
            self._events.sandbox(sandbox, "CREATED")

    async def lose_network(self, id_: str) -> None:
        """Its network is lost: not ready any more, so that whoever made it stops it and makes another."""
        if (sandbox := self._all.get(id_)) is None:
            return
        async with sandbox.turn:
            if sandbox.ready:
                _log.warning("sandbox given up, its network is lost", extra={"sandbox": id_, "pod": pod_of(sandbox)})
                await self._note(sandbox, state="stopped")
                self._events.sandbox(sandbox, "STOPPED")

    async def update_resources(self, sandbox: Sandbox, request: pb.UpdatePodSandboxResourcesRequest) -> None:
        """UpdatePodSandboxResources: the kubelet has changed the pod's cgroup; here it is known and told."""
        async with sandbox.turn:
            sandbox.check_ready()
            await self._hooks.update_pod(sandbox, request.overhead, request.resources)
            sandbox.config.linux.overhead.MergeFrom(request.overhead)
            sandbox.config.linux.resources.MergeFrom(request.resources)
            await self._write(sandbox, config=sandbox.config.SerializeToString())
            await self._hooks.updated_pod(sandbox)

    async def remove(self, sandbox: Sandbox) -> None:
        """Forget a sandbox that is stopped."""
        if sandbox.ready:
            raise FailedPrecondition(f"sandbox {sandbox.id} is still ready")
        async with sandbox.turn:
            if sandbox.id not in self._all:
                return
            await self._hooks.remove_pod(sandbox)
            self._events.sandbox(sandbox, "DELETED")
            await asyncio.to_thread(self._records.remove, sandbox.id)
            self._all.pop(sandbox.id, None)

    async def _take_down(self, sandbox: Sandbox) -> list[str]:
        """1. Plugins.  2. CNI DEL.  3. Namespaces and shared memory, unless CNI still needs them."""
        left = []
        if sandbox.record.hooked == "run":
            sandbox.record = msgspec.structs.replace(sandbox.record, hooked="stopped")
            if await self._hooks.stop_pod(sandbox):
                await self._note(sandbox)
            failpoint(UNHOOKED)
        if sandbox.record.attached:
            left += await _within("network", lambda: self._network.detach(attachment(sandbox)))
            if left:
                return left
            failpoint(DETACHED)
            await self._note(sandbox, attached=False, addresses=())
        left += await asyncio.to_thread(self._kernel.remove, sandbox.id)
        failpoint(UNPINNED)
        return left

    async def _write(self, sandbox: Sandbox, **changes: Any) -> None:
        record = msgspec.structs.replace(sandbox.record, **changes)
        await asyncio.to_thread(self._records.write, record)
        sandbox.record = record

    async def _note(self, sandbox: Sandbox, **changes: Any) -> None:
        """Write down what was given up. A full disk keeps nobody from that: the next start finds out by itself."""
        sandbox.record = msgspec.structs.replace(sandbox.record, **changes)
        try:
            await asyncio.to_thread(self._records.write, sandbox.record)
        except OSError as error:
            _log.error("a record is behind", extra={"sandbox": sandbox.id, "reason": str(error)})

    async def recover(self) -> None:
        """After a start: adopt what is whole. What was begun waits for `finish`, when plugins can be told."""
        for record in await asyncio.to_thread(lambda: list(self._records.load())):
            sandbox = Sandbox(record, pb.PodSandboxConfig.FromString(record.config))
            if record.state == "making":
                self._unfinished.append(sandbox)
                continue
            self._all[record.id] = sandbox
            if record.state == "ready" and not self._stands(record):
                await self._note(sandbox, state="stopped")

    async def finish(self) -> None:
        """Undo what was being made when the runtime was stopped, and give back what belongs to nobody."""
        unfinished, self._unfinished = self._unfinished, []
        for sandbox in unfinished:
            await self._give_up(sandbox, RuntimeError("the runtime was stopped while it was made"))
        await self._sweep()

    def _stands(self, record: SandboxRecord) -> bool:
        """Whether a sandbox that was ready still is: same boot, namespaces where they were."""
        if record.boot_id != self._boot_id:
            return False
        return not record.network or self._kernel.stands(record.network)

    async def _sweep(self) -> None:
        """Give back and remove what has our name on it and no record; what cannot be is told, and stays."""
        attached, pinned = await self._network.attached(), await asyncio.to_thread(self._kernel.pinned)
        for id_ in (attached | pinned) - set(self._all):
            _log.warning("removing what no sandbox has", extra={"sandbox": id_})
            left = await self._detach_lost(id_) if id_ in attached else []
            if left := left or await asyncio.to_thread(self._kernel.remove, id_):
                _log.error("what no sandbox has is not removed", extra={"sandbox": id_, "left": "; ".join(left)})

    async def _detach_lost(self, id_: str) -> list[str]:
        """Give back by the id alone; CNI remembers the rest."""
        lost = Attachment(id=id_, netns=self._kernel.network(id_), name="", namespace="", uid="")
        return await _within("network", lambda: self._network.detach(lost))

    def pod(self, sandbox: Sandbox) -> Pod:
        """What the containers of a sandbox are built from."""
        home = self._records.home(sandbox.id)
        return Pod(
            id=sandbox.id,
            config=sandbox.config,
            network=sandbox.record.network,
            ipc=sandbox.record.ipc,
            shm=str(self._kernel.shm(sandbox.id)),
            files={"/etc/hostname": str(home / "hostname"), "/etc/resolv.conf": str(home / "resolv.conf")},
        )


async def _within(name: str, work: Callable[[], Awaitable[None]]) -> list[str]:
    """Do one step of an undo within its own deadline; what went wrong, in words."""
    try:
        async with asyncio.timeout(UNDO_SECONDS):
            await work()
    except TimeoutError:
        return [f"{name}: not done within {UNDO_SECONDS:g} s"]
    except (RpcError, OSError) as error:
        return [f"{name}: {error}"]
    return []
