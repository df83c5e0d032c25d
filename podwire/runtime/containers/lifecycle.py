"""Containers: CreateContainer, StartContainer, StopContainer, RemoveContainer, and recovery after a restart.

CreateContainer writes the record, asks NRI plugins, and writes the bundle (writable layer, config.json). StartContainer
mounts the root file system, makes the cgroup, moves net devices, and has `podwire-shim run` start the OCI runtime. From
then on the shim is the parent of the container's processes: it writes the log, and its files say how the container
began (`started`) and ended (`exit`). It survives the runtime. The record follows the shim:

| record | bundle and shim's files | meaning | a restarted runtime |
|---|---|---|---|
| created | no config.json | CreateContainer was interrupted | undoes it (`finish`) |
| created | config.json, nothing of the shim | waits for StartContainer | keeps it |
| created | mounts or cgroup, no `started` | StartContainer was interrupted, or its start failed | unmounts, keeps it |
| created | `started` | StartContainer was interrupted after the start | adopts it as running, watches its process |
| running | `started`, no `exit` | the process runs | watches its process by a pidfd |
| running | `started`, `exit` | it ended while the runtime was away | records the exit code |
| running | no `exit`, no process | the shim was killed, or the machine was rebooted | exit code 255, reason Unknown |
| exited | | only the log and the record are of interest | sends NRI's StopContainer, if it was not sent |

A start is held (`crun create`, NRI StartContainer with the pid, `crun start`) only when a plugin wants that event.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import msgspec

from podwire.durable.files import Durability
from podwire.durable.records import Records
from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.linux.cgroups.groups import warm_up
from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import AlreadyExists, FailedPrecondition, Internal, NotFound, RpcError
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.container import Container, exit_reason, fingerprint, stop_signal, without_secrets
from podwire.runtime.containers.net_devices import move_net_devices
from podwire.runtime.containers.shim import ShimClient, Started
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.resources import limits_of, merge_limits
from podwire.runtime.cri.validation import check_container, new_id
from podwire.runtime.hooks import ContainerDraft, Hooks
from podwire.runtime.images import ImageError
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.records import ContainerRecord, keep_damaged
from podwire.runtime.sandboxes.lifecycle import Sandboxes
from podwire.runtime.sandboxes.sandbox import Sandbox

_log = logging.getLogger("podwire.runtime.containers")

START_FAILED = 128
"""The exit code of a container that could not be started."""

RECORDED = declare("runtime.container-recorded", "a container has its record, its bundle is not made yet")
HOOKED = declare("runtime.container-hooked", "NRI plugins have answered CreateContainer, the bundle is not made yet")
BUNDLED = declare("runtime.container-bundled", "a container is created, the caller has no answer yet")
MOUNTED = declare("runtime.container-mounted", "root file system and cgroups are made, the shim was not started yet")
STARTED = declare("runtime.container-started", "the process runs, the record does not say so yet")
UNMOUNTED = declare("runtime.container-unmounted", "mounts and cgroups are gone, the record still exists")


class Containers:
    """All containers of this runtime."""

    def __init__(
        self,
        records: Records[ContainerRecord],
        sandboxes: Sandboxes,
        bundles: Bundles,
        shim: ShimClient,
        hooks: Hooks,
        events: Events,
        clock: Clock,
        limits: RuntimeLimits | None = None,
    ) -> None:
        self._records = records
        self._sandboxes = sandboxes
        self._bundles = bundles
        self._shim = shim
        self._hooks = hooks
        self._events = events
        self._clock = clock
        self._limits = limits or RuntimeLimits()
        self._containers: dict[str, Container] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Container]:
        return iter(list(self._containers.values()))

    def of(self, sandbox_id: str) -> list[Container]:
        return [container for container in self._containers.values() if container.record.sandbox_id == sandbox_id]

    def find(self, id_: str) -> Container | None:
        """Finds a container by its id, or by a unique prefix of it."""
        if container := self._containers.get(id_):
            return container
        matching = [container for key, container in self._containers.items() if id_ and key.startswith(id_)]
        return matching[0] if len(matching) == 1 else None

    def get(self, id_: str) -> Container:
        container = self.find(id_)
        if container is None:
            raise NotFound(f"container {id_!r} does not exist")
        return container

    async def create(self, request: pb.CreateContainerRequest) -> str:
        """CreateContainer. Idempotent: a retry after a timeout gets the id of the first call."""
        check_container(request.config)
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        async with sandbox.lock:
            sandbox.check_ready()
            for container in self.of(sandbox.id):
                if container.config.metadata == request.config.metadata:
                    if container.was_created_by(request.config):
                        return container.id
                    name = request.config.metadata.name
                    raise AlreadyExists(f"config.metadata: {name!r} is the name of container {container.id}")
            return await self._create(sandbox, request.config)

    async def _create(self, sandbox: Sandbox, config: pb.ContainerConfig) -> str:
        asyncio.get_running_loop().run_in_executor(None, warm_up)  # StartContainer comes next, and will move a process
        plan = await asyncio.to_thread(
            self._bundles.plan, new_id(), self._sandboxes.pod(sandbox), config, self._target_pid(config)
        )
        kept = without_secrets(config)
        for volume in plan.images:  # a name may mean another image when the container is started
            kept.mounts[volume.number].image.image_ref = volume.image.id
        record = ContainerRecord(
            id=plan.id,
            sandbox_id=sandbox.id,
            state="created",
            config=kept.SerializeToString(),
            image_id=plan.image.id,
            image_ref=plan.image.digests[0] if plan.image.digests else plan.image.id,
            created_at=self._now(),
            log_path=plan.log_path,
            uid=plan.user.uid,
            gid=plan.user.gid,
            groups=plan.user.groups,
            hooked="created",
            fingerprint=fingerprint(config),
        )
        await asyncio.to_thread(self._records.put, record.id, record, Durability.PROCESS_DEATH)
        failpoint(RECORDED)
        container = Container(record, kept)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._undo_create, container, sandbox)
            draft = ContainerDraft(spec=plan.spec, limits=container.limits, links=plan.links)
            adjusted = await sandbox.unless_stopped(self._hooks.create(sandbox, container, draft))
            if adjusted.limits != draft.limits or adjusted.links:
                await self._write(container, limits=adjusted.limits, links=dict(adjusted.links))
            failpoint(HOOKED)
            await asyncio.to_thread(self._bundles.write, replace(plan, spec=adjusted.spec))
            undo.pop_all()
        failpoint(BUNDLED)
        self._containers[record.id] = container
        self._events.container(record.id, sandbox, "CREATED")
        await self._hooks.created(sandbox, container)
        return record.id

    async def _undo_create(self, container: Container, sandbox: Sandbox) -> None:
        """Undoes an interrupted CreateContainer."""
        await self._report_stopped(container, sandbox)
        await self._hooks.removed(sandbox, container)
        await asyncio.to_thread(self._clear, container.id)

    async def _report_stopped(self, container: Container, sandbox: Sandbox) -> None:
        """Sends NRI's StopContainer, once: the process is gone, or will never be."""
        if container.record.hooked == "created":
            container.record = msgspec.structs.replace(container.record, hooked="stopped")
            if await self._hooks.stopped(sandbox, container):
                await self._try_write(container)
        container.stop_reported.set()

    def _target_pid(self, config: pb.ContainerConfig) -> int:
        options = config.linux.security_context.namespace_options
        if options.pid != pb.NamespaceMode.Value("TARGET"):
            return 0
        target = self.get(options.target_id)
        if not target.running:
            raise FailedPrecondition(f"namespace_options.target_id: container {target.id} is not running")
        return target.record.pid

    def _clear(self, id_: str) -> None:
        """Removes everything of a container, its record last."""
        self._shim.delete(id_)
        self._bundles.remove(id_)
        if self._shim.has_state(id_):  # of a start that went on without its runtime, until its cgroup was ended
            self._shim.delete(id_)
        failpoint(UNMOUNTED)
        keep_damaged(self._records, id_)
        self._records.remove(id_, Durability.PROCESS_DEATH)

    async def start(self, container: Container) -> None:
        """StartContainer. A container that cannot be started is exited, with the reason."""
        async with container.lock:
            if container.record.state != "created":
                raise FailedPrecondition(f"container {container.id} is {container.record.state}")
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            sandbox.check_ready()
            try:
                started = await self._start(container, sandbox)
            except (RpcError, OSError) as error:
                await self._exited(
                    container, exit_code=START_FAILED, reason="StartError", message=str(error), started_at=0
                )
                raise
            failpoint(STARTED)
            await self._set_running(container, started, self._now())
            self._events.container(container.id, sandbox, "STARTED")
            await self._hooks.started(sandbox, container)

    async def _start(self, container: Container, sandbox: Sandbox) -> Started:
        record = container.record
        mounted = await asyncio.to_thread(
            self._bundles.mount,
            record.id,
            record.image_id,
            sandbox.id,
            sandbox.config,
            container.config,
            container.limits,
        )
        failpoint(MOUNTED)
        if record.links:
            await asyncio.to_thread(move_net_devices, record.links, sandbox.record.network)
        if not self._hooks.waits_for_start():
            await self._hooks.start(sandbox, container, 0)
            return await self._shim.start(mounted)
        created = await self._shim.start(mounted, held=True)
        await self._hooks.start(sandbox, container, created.pid)
        await self._shim.release(mounted)
        return created

    async def _set_running(self, container: Container, started: Started, started_at: int) -> None:
        await self._try_write(
            container, state="running", pid=started.pid, pid_started=started.pid_started, started_at=started_at
        )
        task = asyncio.create_task(self._wait_for_exit(container), name=f"exit of {container.id[:12]}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _wait_for_exit(self, container: Container) -> None:
        record = container.record
        exited = await self._shim.wait(self._bundles.state(record.id), record.pid, record.pid_started)
        oom = await asyncio.to_thread(self._bundles.was_oom_killed, record.id)
        reason = exit_reason(exited, oom=oom)
        await self._exited(container, exit_code=exited.code, reason=reason, finished_at=exited.finished_at)

    async def _exited(self, container: Container, *, finished_at: int = 0, **changes: Any) -> None:
        """Records an exit, releases mounts and cgroups, and reports it."""
        await self._try_write(container, state="exited", finished_at=finished_at or self._now(), **changes)
        container.exited.set()
        await self._unmount(container)
        sandbox = self._sandboxes.get(container.record.sandbox_id)
        self._events.container(container.id, sandbox, "STOPPED")
        await self._report_stopped(container, sandbox)

    async def _unmount(self, container: Container) -> None:
        """Removes mounts and cgroups as soon as they are not needed; a failure is retried by RemoveContainer."""
        try:
            await asyncio.to_thread(self._bundles.unmount, container.id)
        except OSError as error:
            _log.warning("cannot unmount container yet", extra={"container": container.id, "error": str(error)})

    async def stop(self, container: Container, timeout_seconds: float) -> None:
        """StopContainer: the stop signal, then SIGKILL. Idempotent."""
        async with container.lock:  # a start in progress comes first
            if container.record.state == "created":
                return
        if container.running and timeout_seconds > 0:
            number = stop_signal(container.config, self._bundles.stop_signal(container.record.image_id))
            await self._shim.signal(container.record.pid, container.record.pid_started, number)
            await _happens(container.exited, timeout_seconds)
        if container.running:
            await asyncio.to_thread(self._bundles.kill, container.id)
            if not await _happens(container.exited, self._limits.kill):
                raise Internal(f"container {container.id} still exists {self._limits.kill:g} s after SIGKILL")
        await container.stop_reported.wait()

    async def update_resources(self, container: Container, resources: pb.LinuxContainerResources) -> None:
        """UpdateContainerResources: sets new limits at once, and records them."""
        async with container.lock:
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            requested = merge_limits(container.limits, limits_of(resources))
            limits = await self._hooks.update(sandbox, container, requested)
            container.config.linux.resources.MergeFrom(resources)
            await self.set_limits(container, limits)
            await self._hooks.updated(sandbox, container)

    async def set_limits(self, container: Container, limits: Limits) -> None:
        """Sets the limits of a container: at once if it runs, and in any case for its start."""
        if container.running:
            await asyncio.to_thread(self._bundles.update, container.id, limits)
        await self._write(container, config=container.config.SerializeToString(), limits=limits)

    async def stop_all(self, sandbox: Sandbox) -> None:
        """Kills the containers of a sandbox, and removes the cgroup that they share."""
        stops = (self.stop(container, 0) for container in self.of(sandbox.id))
        errors = [error for error in await asyncio.gather(*stops, return_exceptions=True) if error is not None]
        if errors:
            raise errors[0]
        await asyncio.to_thread(self._bundles.remove_pod, sandbox.id, sandbox.config)

    async def limit_pod(self, sandbox: Sandbox) -> None:
        """Sets the limits that the containers of a sandbox share, after UpdatePodSandboxResources."""
        await asyncio.to_thread(self._bundles.limit_pod, sandbox.id, sandbox.config)

    async def reopen_log(self, container: Container) -> None:
        await self._shim.reopen_log(self._bundles.state(container.id))

    async def remove(self, container: Container) -> None:
        """RemoveContainer: kills it if it runs, then removes everything of it."""
        await self.stop(container, 0)
        async with container.lock:
            if container.id not in self._containers:
                return
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            await self._report_stopped(container, sandbox)
            await self._hooks.removed(sandbox, container)
            self._events.container(container.id, sandbox, "DELETED")
            await asyncio.to_thread(self._clear, container.id)
            self._containers.pop(container.id, None)

    async def _write(self, container: Container, **changes: Any) -> None:
        record = msgspec.structs.replace(container.record, **changes)
        await asyncio.to_thread(self._records.put, record.id, record, Durability.PROCESS_DEATH)
        container.record = record

    async def _try_write(self, container: Container, **changes: Any) -> None:
        """Records what the shim's files say, too. On a full disk the record is behind until the next start."""
        container.record = msgspec.structs.replace(container.record, **changes)
        try:
            await asyncio.to_thread(self._records.put, container.id, container.record, Durability.PROCESS_DEATH)
        except OSError as error:
            _log.error("cannot update container record", extra={"container": container.id, "error": str(error)})

    async def recover(self) -> None:
        """After a start: watches containers that run, and records the exit of those that ended meanwhile."""
        records = await asyncio.to_thread(self._records.load)
        lost = await asyncio.to_thread(self._bundles.ids) - set(records)  # their records are damaged or missing
        orphans = {id_ for id_, record in records.items() if self._sandboxes.find(record.sandbox_id) is None}
        damaged = await asyncio.to_thread(self._records.quarantined)
        for id_ in lost - set(damaged):
            if self._bundles.state(id_).exists():  # else it was being removed
                self._sandboxes.lost.add("container", id_, "it has no record")
        await asyncio.gather(*map(self._remove_orphan, lost | orphans))
        await asyncio.to_thread(self._records.sweep)
        for record in records.values():
            if record.id in orphans:
                continue
            container = Container(record, pb.ContainerConfig.FromString(record.config))
            self._containers[record.id] = container
            if record.state == "exited":
                container.exited.set()
                continue
            started = await asyncio.to_thread(self._shim.started, self._bundles.state(record.id))
            if started is None:
                await self._unmount(container)  # leftovers of an interrupted start
            else:
                await self._set_running(container, started, record.started_at or self._now())
        pods = {sandbox.id for sandbox in self._sandboxes}
        await asyncio.to_thread(self._bundles.sweep, set(self._containers), pods)

    async def finish(self) -> None:
        """After a start, when NRI plugins are connected: undoes interrupted creations, and reports exits."""
        for container in self:
            sandbox = self._sandboxes.get(container.record.sandbox_id)
            if container.record.state == "created" and not self._bundles.is_complete(container.id):
                del self._containers[container.id]
                await self._undo_create(container, sandbox)
            elif container.record.state == "exited":
                await self._report_stopped(container, sandbox)

    async def _remove_orphan(self, id_: str) -> None:
        """Removes a container whose record, or whose sandbox's record, is lost."""
        _log.warning("removing orphaned container", extra={"container": id_})
        try:
            await asyncio.to_thread(self._clear, id_)
        except (ImageError, OSError) as error:
            _log.error("cannot remove orphaned container", extra={"container": id_, "error": str(error)})

    async def close(self) -> None:
        """Stops watching; containers go on."""
        for task in list(self._watches):
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def _now(self) -> int:
        return int(self._clock.wall() * 1e9)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
