"""Sets up volumes on the file system. Synchronous: called in a worker thread, once for all volumes of a pod."""

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from podwire.kubelet.volumes import atomic_writer, host_paths, ownership
from podwire.kubelet.volumes.errors import MountFailed, VolumeError, set_up_failed
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.steps import BindMount, BlockDevice, Check, EmptyDirectory, Files, MemoryMount, Step
from podwire.linux import errors
from podwire.linux.fs.trees import remove_path
from podwire.linux.fs.values import Mount

_PRIVATE, _OPEN, _SETGID, _STICKY = 0o750, 0o777, 0o2000, 0o1000


class VolumeSetup:
    def __init__(self, paths: VolumePaths, mounts: Mounts) -> None:
        self._paths = paths
        self._mounts = mounts
        self._secrets_mounted = False
        self._mounting = threading.Lock()

    def apply(self, uid: str, steps: Iterable[Step]) -> list[str]:
        """Apply all steps of a pod; returns the failures, as messages for its event."""
        failures = []
        for step in steps:
            try:
                self._paths.pod(uid).mkdir(_PRIVATE, parents=True, exist_ok=True)
                self._apply(step)
            except MountFailed as error:
                failures.append(str(error))
            except (VolumeError, errors.LinuxError) as error:
                failures.append(set_up_failed(step.volume, error))
            except OSError as error:
                path = f"{error.filename}: " if error.filename else ""
                failures.append(set_up_failed(step.volume, f"{path}{error.strerror}"))
        return failures

    def _apply(self, step: Step) -> None:
        match step:
            case Files():
                self._write(step)
            case EmptyDirectory():
                _make_directory(step)
            case MemoryMount():
                self._mount_memory(step)
            case Check(source=source):
                host_paths.check(source)
            case BindMount():
                self._bind(step)
            case BlockDevice():
                host_paths.check_block_device(step.volume, step.path)

    def _write(self, step: Files) -> None:
        if step.in_memory:
            self._mount_secrets()
        step.directory.parent.mkdir(parents=True, exist_ok=True)
        atomic_writer.write(step.directory, step.contents, step.group)

    def _mount_secrets(self) -> None:
        """Mounted once for the node, with the first secret; a restarted kubelet finds it mounted."""
        with self._mounting:  # pods are set up concurrently; a second mount would hide the first one
            if self._secrets_mounted:
                return
            self._paths.secrets.mkdir(parents=True, exist_ok=True)
            if not self._mounts.is_mounted(self._paths.secrets):
                self._tmpfs(self._paths.secrets, ["mode=0700", "nosuid", "nodev"])  # not noexec: secrets may be scripts
            self._secrets_mounted = True

    def _mount_memory(self, step: MemoryMount) -> None:
        step.directory.mkdir(parents=True, exist_ok=True)
        if self._mounts.is_mounted(step.directory):
            return
        mode = _OPEN | _STICKY if step.group is None else _OPEN | _STICKY | _SETGID  # sticky as /tmp, unlike on disk
        options = [f"mode={mode:o}"]
        options += [f"size={step.size}"] if step.size else []
        options += [f"gid={step.group}"] if step.group is not None else []
        self._tmpfs(step.directory, options)

    def _bind(self, step: BindMount) -> None:
        """Files are given to the fsGroup only with the first mount of the volume: they are in use by then."""
        host_paths.check_local(step.volume, step.source)
        mounts = self._mounts.list()
        target = os.path.realpath(step.directory)
        if any(mount.target == target for mount in mounts):
            return
        used = _mounted_by_pods(step.source, self._paths.pods, mounts)
        step.directory.mkdir(_PRIVATE, parents=True, exist_ok=True)
        with ExitStack() as undo:
            undo.callback(step.directory.rmdir)
            self._mounts.bind(step.source, step.directory, read_only=step.read_only)
            undo.callback(self._mounts.unmount, step.directory, lazily=True)
            if step.group is not None and not step.read_only and not used:
                ownership.change(step.directory, step.group, on_root_mismatch=step.on_root_mismatch)
            undo.pop_all()

    def _tmpfs(self, target: Path, options: Sequence[str]) -> None:
        try:
            self._mounts.mount("tmpfs", target, "tmpfs", [*options, "noswap"])
        except errors.Refused:  # before Linux 6.4
            self._mounts.mount("tmpfs", target, "tmpfs", options)

    def remove(self, uid: str) -> None:
        """Remove everything of a pod; its directory last, so that a killed kubelet finds it again."""
        directories = (self._paths.pod_secrets(uid), self._paths.pod(uid))
        self._unmount_below(*directories)
        for directory in directories:
            remove_path(directory)

    def unmount_subpaths(self, uid: str) -> None:
        """Of a pod whose containers have ended: a volume cannot be unmounted before them."""
        self._unmount_below(self._paths.subpaths(uid))

    def unmount_local(self, uid: str) -> None:
        """Unmount the local volumes of a pod whose containers have ended; its other volumes stay."""
        directory = self._paths.persistent(uid, "local-volume", "x").parent
        if directory.is_dir():
            self._unmount_below(self._paths.subpaths(uid), directory)
            remove_path(directory)

    def _unmount_below(self, *directories: Path) -> None:
        """Unmount everything, including what containers mounted, so that nothing behind a mount is deleted."""
        prefixes = tuple(f"{directory.resolve()}/" for directory in directories)
        targets = [mount.target for mount in self._mounts.list() if mount.target.startswith(prefixes)]
        for target in reversed(targets):  # the last mounted is the uppermost
            with suppress(errors.NoSuchMount):  # it was unmounted with another one by propagation
                try:
                    self._mounts.unmount(target)
                except errors.Busy:
                    self._mounts.unmount(target, lazily=True)

    def close(self) -> None:
        """Unmount the tmpfs for secrets unless there are still some."""
        self._secrets_mounted = False
        with suppress(errors.Busy, errors.NoSuchMount):
            if self._mounts.is_mounted(self._paths.secrets) and not any(self._paths.secrets.iterdir()):
                self._mounts.unmount(self._paths.secrets)
                self._paths.secrets.rmdir()


def _mounted_by_pods(source: Path, pods: Path, mounts: Sequence[Mount]) -> bool:
    """Whether a pod has this directory mounted as a local volume: a mount below `pods` is the same directory."""
    prefix, status = f"{os.path.realpath(pods)}/", source.stat()
    for mount in mounts:
        if mount.target.startswith(prefix) and "/kubernetes.io~local-volume/" in mount.target:
            with suppress(OSError):
                if os.path.samestat(Path(mount.target).stat(), status):
                    return True
    return False


def _make_directory(step: EmptyDirectory) -> None:
    """Created atomically, and once: a container may change the permissions later."""
    if os.path.lexists(step.directory):
        return
    made = step.directory.with_name(f"..{step.directory.name}")
    made.mkdir(parents=True, exist_ok=True)
    if step.group is not None:
        os.chown(made, -1, step.group)
    made.chmod(_OPEN if step.group is None else _OPEN | _SETGID)
    made.rename(step.directory)
