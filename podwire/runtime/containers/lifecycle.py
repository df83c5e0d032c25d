"""Containers: created as a record and a bundle, started through the shim, noticed the moment they exit.

Create makes the record, the writable layer and config.json; start mounts, makes the cgroups and lets the shim run the
OCI runtime. The shim outlives this daemon, keeps the exit code and writes the log; after a restart its state is picked
up where it is.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.linux.cgroups.groups import warm_up
from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition, Internal, NotFound, RpcError
from podwire.runtime.containers.bundles import Bundles, ContainerPlan
from podwire.runtime.containers.container import Container, happens, reason_of, same
from podwire.runtime.containers.net_devices import move_links
from podwire.runtime.containers.shim import ShimClient
from podwire.runtime.containers.stop_signal import stop_signal
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.resources import changed, limits_of
from podwire.runtime.cri.validation import check_container, new_id
from podwire.runtime.hooks import ContainerDraft, Hooks
from podwire.runtime.images import ImageError
from podwire.runtime.ports import Started
from podwire.runtime.records import ContainerRecord, Records
from podwire.runtime.sandboxes.lifecycle import Sandboxes
from podwire.runtime.sandboxes.sandbox import Sandbox

_log = logging.getLogger("podwire.runtime.containers")

KILLED_WITHIN = 10.0
"""How long a killed container may take to be gone."""
START_FAILED = 128

RECORDED = declare("runtime.container-recorded", "a container has its record, its bundle is not made yet")
HOOKED = declare("runtime.container-hooked", "plugins were asked about a container, its bundle is not made yet")
BUNDLED = declare("runtime.container-bundled", "a container is created, the caller was not told yet")
MOUNTED = declare("runtime.container-mounted", "root file system and cgroups stand, the shim was not started yet")
STARTED = declare("runtime.container-started", "the process runs, the record does not say so yet")
UNMOUNTED = declare("runtime.container-unmounted", "mounts and cgroups are gone, the record is still there")


class Containers:
    """All containers of this runtime."""

    def __init__(
        self,
        records: Records[ContainerRecord],
        sandboxes: Sandboxes,
        bundles: Bundles,
        shims: ShimClient,
        hooks: Hooks,
        events: Events,
        clock: Clock,
    ) -> None:
        self._records = records
        self._sandboxes = sandboxes
        self._bundles = bundles
        self._shims = shims
        self._hooks = hooks
        self._events = events
        self._clock = clock
        self._all: dict[str, Container] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Container]:
        return iter(list(self._all.values()))

    def of(self, sandbox_id: str) -> list[Container]:
        return [each for each in self._all.values() if each.record.sandbox_id == sandbox_id]

    def find(self, id_: str) -> Container | None:
        """By id, or by the beginning of one that no other has."""
        if found := self._all.get(id_):
            return found
        matching = [each for key, each in self._all.items() if id_ and key.startswith(id_)]
        return matching[0] if len(matching) == 1 else None

    def get(self, id_: str) -> Container:
        found = self.find(id_)
        if found is None:
            raise NotFound(f"container {id_!r} is not there")
        return found

    async def create(self, request: pb.CreateContainerRequest) -> str:
        """CreateContainer; a second call for the same container, after a time-out, gets the first one's id."""
        check_container(request.config)
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        async with sandbox.turn:
            sandbox.check_ready()
            for each in self.of(sandbox.id):
                if each.config.metadata == request.config.metadata:
                    return same(each, request.config)
            return await self._create(sandbox, request.config)

    async def _create(self, sandbox: Sandbox, config: pb.ContainerConfig) -> str:
        asyncio.get_running_loop().run_in_executor(None, warm_up)  # StartContainer comes next, and will move a process
        planned = await asyncio.to_thread(
            self._bundles.plan, new_id(), self._sandboxes.pod(sandbox), config, self._target_pid(config)
        )
        record = ContainerRecord(
            id=planned.id,
            sandbox_id=sandbox.id,
            state="created",
            config=config.SerializeToString(),
            image_id=planned.image.id,
            image_ref=planned.image.digests[0] if planned.image.digests else planned.image.id,
            created_at=int(self._clock.wall() * 1e9),
            log_path=planned.log_path,
            uid=planned.user.uid,
            gid=planned.user.gid,
            groups=planned.user.groups,
            hooked="created",
        )
        await asyncio.to_thread(self._records.write, record)
        failpoint(RECORDED)
        container = Container(record, config)
        try:
            planned = await self._asked_others(sandbox, container, planned)
            failpoint(HOOKED)
            await asyncio.to_thread(self._bundles.write, planned)
        except BaseException:
            await asyncio.shield(self._unmake(container, sandbox))
            raise
        failpoint(BUNDLED)
        self._all[record.id] = container
        self._events.container(record.id, sandbox, "CREATED")
        await self._hooks.created(sandbox, container)
        return record.id

    async def _asked_others(self, sandbox: Sandbox, container: Container, planned: ContainerPlan) -> ContainerPlan:
        """What plugins make of a container, in its plan and in its record."""
        draft = ContainerDraft(spec=planned.spec, limits=container.limits, links=planned.links)
        wanted = await sandbox.unless_stopped(self._hooks.create(sandbox, container, draft))
        if wanted.limits != draft.limits or wanted.links:
            await self._write(container, limits=wanted.limits, links=dict(wanted.links))
        return replace(planned, spec=wanted.spec)

    async def _unmake(self, container: Container, sandbox: Sandbox) -> None:
        """Undo a container that did not come to be."""
        await self._tell_stopped(container, sandbox)
        await self._hooks.removed(sandbox, container)
        await asyncio.to_thread(self._clear, container.record)

    async def _tell_stopped(self, container: Container, sandbox: Sandbox) -> None:
        """Let plugins know, once, that a container's process is gone, or will never be."""
        if container.record.hooked == "created":
            container.record = msgspec.structs.replace(container.record, hooked="stopped")
            if await self._hooks.stopped(sandbox, container):
                await self._note(container)
        container.told.set()

    def _target_pid(self, config: pb.ContainerConfig) -> int:
        options = config.linux.security_context.namespace_options
        if options.pid != pb.NamespaceMode.Value("TARGET"):
            return 0
        target = self.get(options.target_id)
        if not target.running:
            raise FailedPrecondition(f"namespace_options.target_id: container {target.id} is not running")
        return target.record.pid

    def _clear(self, record: ContainerRecord) -> None:
        """Remove everything of a container, its record last."""
        self._shims.forget(record.id)
        self._bundles.remove(record.id)
        failpoint(UNMOUNTED)
        self._records.remove(record.id)

    async def start(self, container: Container) -> None:
        """StartContainer."""
        async with container.turn:
            if container.record.state != "created":
                raise FailedPrecondition(f"container {container.id} is {container.record.state}")
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            sandbox.check_ready()
            try:
                started = await self._run(container, sandbox)
            except (RpcError, OSError) as error:
                await self._failed(container, sandbox, str(error))
                raise
            failpoint(STARTED)
            now = int(self._clock.wall() * 1e9)
            await self._note(
                container, state="running", pid=started.pid, pid_started=started.pid_started, started_at=now
            )
            self._watch(container)
            self._events.container(container.id, sandbox, "STARTED")
            await self._hooks.started(sandbox, container)

    async def _run(self, container: Container, sandbox: Sandbox) -> Started:
        record = container.record
        mounted = await asyncio.to_thread(
            self._bundles.mount, record.id, record.image_id, sandbox.config, container.config, container.limits
        )
        failpoint(MOUNTED)
        if record.links:
            await asyncio.to_thread(move_links, record.links, sandbox.record.network)
        if not self._hooks.waits_for_start():
            await self._hooks.start(sandbox, container, 0)
            return await self._shims.start(mounted)
        created = await self._shims.start(mounted, held=True)
        await self._hooks.start(sandbox, container, created.pid)
        await self._shims.release(mounted)
        return created

    async def _failed(self, container: Container, sandbox: Sandbox, why: str) -> None:
        """A container that could not be started is exited, with the reason."""
        now = int(self._clock.wall() * 1e9)
        await self._note(
            container, state="exited", exit_code=START_FAILED, reason="StartError", message=why, finished_at=now,
            started_at=0,
        )  # fmt: skip
        container.exited.set()
        await self._unmount(container)
        self._events.container(container.id, sandbox, "STOPPED")
        await self._tell_stopped(container, sandbox)

    async def _unmount(self, container: Container) -> None:
        """Take mounts and cgroups away as soon as nobody needs them; what stays is tried again when it is removed."""
        try:
            await asyncio.to_thread(self._bundles.unmount, container.id)
        except OSError as error:
            _log.warning("not unmounted yet", extra={"container": container.id, "reason": str(error)})

    def _watch(self, container: Container) -> None:
        task = asyncio.create_task(self._until_exit(container), name=f"exit of {container.id[:12]}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _until_exit(self, container: Container) -> None:
        record = container.record
        exited = await self._shims.wait(self._bundles.state(record.id), record.pid, record.pid_started)
        oom = await asyncio.to_thread(self._bundles.was_oom_killed, record.id)
        await self._note(
            container,
            state="exited",
            exit_code=exited.code,
            finished_at=exited.finished_at or int(self._clock.wall() * 1e9),
            reason=reason_of(exited, oom=oom),
        )
        container.exited.set()
        await self._unmount(container)
        sandbox = self._sandboxes.get(record.sandbox_id)
        self._events.container(record.id, sandbox, "STOPPED")
        await self._tell_stopped(container, sandbox)

    async def stop(self, container: Container, timeout_seconds: float) -> None:
        """StopContainer: ask, wait, insist. Again is fine."""
        async with container.turn:  # one that is being started runs afterwards
            if container.record.state == "created":
                return
        if container.running and timeout_seconds > 0:
            number = stop_signal(container.config, self._bundles.stop_signal(container.record.image_id))
            await self._shims.signal(container.record.pid, container.record.pid_started, number)
            await happens(container.exited, timeout_seconds)
        if container.running:
            await asyncio.to_thread(self._bundles.kill, container.id)
            if not await happens(container.exited, KILLED_WITHIN):
                raise Internal(f"container {container.id} is still there {KILLED_WITHIN:g} s after it was killed")
        await container.told.wait()

    async def update_resources(self, container: Container, resources: pb.LinuxContainerResources) -> None:
        """UpdateContainerResources: new limits at once, and in the record."""
        async with container.turn:
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            limits = await self._hooks.update(sandbox, container, changed(container.limits, limits_of(resources)))
            container.config.linux.resources.MergeFrom(resources)
            await self.limit(container, limits)
            await self._hooks.updated(sandbox, container)

    async def limit(self, container: Container, limits: Limits) -> None:
        """Set what a container may use, now if it runs, and in any case from its start on."""
        if container.running:
            await asyncio.to_thread(self._bundles.update, container.id, limits)
        await self._write(container, config=container.config.SerializeToString(), limits=limits)

    async def reopen_log(self, container: Container) -> None:
        await self._shims.reopen(self._bundles.state(container.id))

    async def remove(self, container: Container) -> None:
        """RemoveContainer: kill it if it runs, then forget it."""
        await self.stop(container, 0)
        async with container.turn:
            if container.id not in self._all:
                return
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            await self._tell_stopped(container, sandbox)
            await self._hooks.removed(sandbox, container)
            self._events.container(container.id, sandbox, "DELETED")
            await asyncio.to_thread(self._clear, container.record)
            self._all.pop(container.id, None)

    async def _write(self, container: Container, **changes: Any) -> None:
        record = msgspec.structs.replace(container.record, **changes)
        await asyncio.to_thread(self._records.write, record)
        container.record = record

    async def _note(self, container: Container, **changes: Any) -> None:
        """Write down what the shim knows too. On a full disk the record stays behind until the next start."""
        container.record = msgspec.structs.replace(container.record, **changes)
        try:
            await asyncio.to_thread(self._records.write, container.record)
        except OSError as error:
            _log.error("a record is behind", extra={"container": container.id, "reason": str(error)})

    async def recover(self) -> None:
        """After a start: containers that run are watched again, those that ended meanwhile have ended."""
        for record in await asyncio.to_thread(lambda: list(self._records.load())):
            if self._sandboxes.find(record.sandbox_id) is None:
                await self._drop(record)
                continue
            container = self._all[record.id] = Container(record, pb.ContainerConfig.FromString(record.config))
            await self._pick_up(container)
        await asyncio.to_thread(self._bundles.sweep, set(self._all))

    async def finish(self) -> None:
        """When plugins can be told: undo what was being made, and let them know what has exited meanwhile."""
        for container in self:
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            if container.record.state == "created" and not self._bundles.whole(container.id):
                del self._all[container.id]
                await self._unmake(container, sandbox)
            elif container.record.state == "exited":
                await self._tell_stopped(container, sandbox)

    async def _drop(self, record: ContainerRecord) -> None:
        _log.warning("removing a container without a sandbox", extra={"container": record.id})
        try:
            await asyncio.to_thread(self._clear, record)
        except (ImageError, OSError) as error:
            _log.error("it is not removed", extra={"container": record.id, "reason": str(error)})

    async def _pick_up(self, container: Container) -> None:
        """A container that was started, as far as the shim knows, is running or has exited by now."""
        if container.record.state == "exited":
            container.exited.set()
            return
        started = await asyncio.to_thread(self._shims.started, self._bundles.state(container.id))
        if started is None:
            await self._unmount(container)  # whoever was starting it is gone
            return
        now = container.record.started_at or int(self._clock.wall() * 1e9)
        await self._note(container, state="running", pid=started.pid, pid_started=started.pid_started, started_at=now)
        self._watch(container)

    async def close(self) -> None:
        """Stop watching; containers go on."""
        for task in list(self._watches):
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
