"""Directories of this node that are PersistentVolumes of the built-in provisioner.

The control plane creates a PersistentVolume for this node; the directory is created here as soon as it is seen. When
the volume was deleted and nothing protects it any more, the directory is removed here, and then the finalizer that
keeps the object. Without that event nothing is ever removed: a directory that no volume names stays.

Only directories `ROOT/NAME` of volumes with that NAME are touched, whatever path a volume says; every step is relative
to the open ROOT and follows no symlink. ROOT is closed to everybody but root, a volume in it is open to all users of
the pods that have it, like an emptyDir.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.linux import errors
from podwire.linux.fs.paths import open_beneath
from podwire.linux.fs.trees import remove_tree
from podwire.linux.fs.trust import check_directory
from podwire.objects import persistent_volumes as storage
from podwire.objects.names import dns_subdomain
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Object, Updated
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry

_log = logging.getLogger("podwire.kubelet")

_PRIVATE, _OPEN = 0o700, 0o777
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPathLimits:
    """Intervals in seconds."""

    backoff: tuple[float, float] = (1.0, 60.0)
    """First and longest pause until a failed step is repeated."""


def _volumes() -> Kind:
    kind = BUILTIN.of_kind("v1", "PersistentVolume")
    if kind is None:
        raise LookupError("PersistentVolume")
    return kind


def is_here(volume: Mapping[str, Any], node: str) -> bool:
    """Returns whether a volume is a directory of this node, with the path that its name gives it."""
    name = volume["metadata"]["name"]
    return (
        storage.LOCAL_PATH in (volume["metadata"].get("finalizers") or ())
        and storage.annotations(volume).get(storage.PROVISIONED_BY) == storage.LOCAL_PATH
        and storage.hostname_of(volume) == node
        and (volume["spec"].get("local") or {}).get("path") == f"{storage.LOCAL_PATH_ROOT}/{name}"
        and not dns_subdomain(name)
    )


def is_over(volume: Mapping[str, Any]) -> bool:
    """Returns whether a volume was deleted and nothing protects it any more."""
    meta = volume["metadata"]
    return bool(meta.get("deletionTimestamp")) and storage.VOLUME_PROTECTION not in (meta.get("finalizers") or ())


def is_removed(volume: Mapping[str, Any]) -> bool:
    """Returns whether the data of a deleted volume go with it: not if its policy is to retain them."""
    policy: str = volume["spec"].get("persistentVolumeReclaimPolicy") or ""
    return policy == "Delete"


class VolumeDirectories:
    """The directories below one root. Synchronous: called in a worker thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, name: str) -> None:
        """Creates a directory, if it does not exist; a crash leaves nothing half done. Raises OSError, LinuxError."""
        parent = self._open_root()
        try:
            try:
                os.close(open_beneath(parent, name, _DIRECTORY, symlinks=False))
            except errors.NoSuchPath:
                unfinished = f".{name}.new"
                remove_tree(parent, os.fsencode(unfinished))
                os.mkdir(unfinished, _PRIVATE, dir_fd=parent)
                made = open_beneath(parent, unfinished, _DIRECTORY, symlinks=False)
                try:
                    os.fchmod(made, _OPEN)
                finally:
                    os.close(made)
                os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
        finally:
            os.close(parent)

    def remove(self, name: str) -> None:
        """Removes a directory with all that is in it. Raises OSError, also for a mount in it."""
        parent = self._open_root()
        try:
            remove_tree(parent, os.fsencode(name))
            os.fsync(parent)
        finally:
            os.close(parent)

    def _open_root(self) -> int:
        """The root is not created here: on a node without it, a directory might be lost with the node's namespaces."""
        return os.open(check_directory(self._root), _DIRECTORY)


class LocalPathVolumes:
    """Follows the volumes of this node."""

    def __init__(
        self,
        api: Client,
        recorder: Recorder,
        node: str,
        root: Path,
        limits: LocalPathLimits = LocalPathLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._node = node
        self._directories = VolumeDirectories(root)
        self._limits = limits
        self._kind = _volumes()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._created: set[str] = set()

    async def run(self) -> None:
        """Runs until cancelled. Raises ApiError if this node may not read volumes."""
        async with asyncio.TaskGroup() as tasks, self._api.informer(self._kind) as informer:
            tasks.create_task(self._recorder.run())
            async for change in informer:
                if isinstance(change, Added | Updated) and is_here(change.object, self._node):
                    self._follow(tasks, change.object)

    def _follow(self, tasks: asyncio.TaskGroup, volume: Object) -> None:
        """Starts what a volume needs, once; a removal replaces a creation that still fails."""
        name, over = volume["metadata"]["name"], is_over(volume)
        key = f"{'remove' if over else 'create'} {name}"
        if key in self._tasks or (not over and name in self._created):
            return
        if over and (creation := self._tasks.get(f"create {name}")) is not None:
            creation.cancel()
        task = tasks.create_task(self._until_done(volume, over=over), name=key)
        self._tasks[key] = task
        task.add_done_callback(lambda _task: self._tasks.pop(key, None))

    async def _until_done(self, volume: Object, *, over: bool) -> None:
        reason = "VolumeFailedDelete" if over else "ProvisioningFailed"

        def failed(error: BaseException, pause: float) -> None:
            name = volume["metadata"]["name"]
            _log.warning(
                "local volume is not ready", extra={"volume": name, "error": str(error), "retry_seconds": pause}
            )
            about = Reference("PersistentVolume", name, "", volume["metadata"]["uid"], "v1")
            self._recorder.tell(about, WARNING, reason, f"node {self._node}: {error}")

        action = self._remove if over else self._create
        pauses = Pauses(*self._limits.backoff)
        passing = (OSError, errors.LinuxError, ApiError, ClientError)
        await retry(lambda: action(volume), pauses, *passing, on_failure=failed)

    async def _create(self, volume: Object) -> None:
        name = volume["metadata"]["name"]
        if not volume["metadata"].get("deletionTimestamp"):
            await asyncio.to_thread(self._directories.create, name)
            self._created.add(name)
            _log.info("local volume was created", extra={"volume": name})

    async def _remove(self, volume: Object) -> None:
        meta = volume["metadata"]
        name, uid = meta["name"], meta["uid"]
        if is_removed(volume):
            await asyncio.to_thread(self._directories.remove, name)
        self._created.discard(name)
        try:
            current = await self._api.get(self._kind, name)
            if current["metadata"]["uid"] != uid or not is_here(current, self._node):
                return
            kept = [row for row in current["metadata"]["finalizers"] if row != storage.LOCAL_PATH]
            patch = {"uid": uid, "resourceVersion": current["metadata"]["resourceVersion"], "finalizers": kept}
            await self._api.patch(self._kind, name, {"metadata": patch})
        except ApiError as error:
            if error.code != 404:
                raise
            return
        _log.info("local volume was removed", extra={"volume": name, "kept": not is_removed(volume)})
