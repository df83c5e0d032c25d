"""Does on the file system what was decided. Synchronous: called in a worker thread, once for all volumes of a pod."""

import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from podwire.kubelet.volumes import atomic_writer, host_paths
from podwire.kubelet.volumes.errors import VolumeError, set_up_failed
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.steps import Check, EmptyDirectory, Files, MemoryMount, Step
from podwire.linux import errors

_PRIVATE, _OPEN, _SETGID = 0o750, 0o777, 0o2000


class VolumeSetup:
    def __init__(self, places: VolumePaths, mounts: Mounts) -> None:
        self._places = places
        self._mounts = mounts
        self._secrets_mounted = False
        self._mounting = threading.Lock()

    def do(self, uid: str, steps: Iterable[Step]) -> list[str]:
        """All of a pod's; what failed, in words for its event."""
        failures = []
        for step in steps:
            try:
                self._places.pod(uid).mkdir(_PRIVATE, parents=True, exist_ok=True)
                self._do(step)
            except (VolumeError, errors.LinuxError) as error:
                failures.append(set_up_failed(step.volume, error))
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                failures.append(set_up_failed(step.volume, f"{where}{error.strerror}"))
        return failures

    def _do(self, step: Step) -> None:
        match step:
            case Files():
                self._write(step)
            case EmptyDirectory():
                _make_scratch(step)
            case MemoryMount():
                self._mount_memory(step)
            case Check(source=source):
                host_paths.check(source)

    def _write(self, step: Files) -> None:
        if step.in_memory:
            self._mount_secrets()
        step.directory.parent.mkdir(parents=True, exist_ok=True)
        atomic_writer.write(step.directory, step.contents, step.group)

    def _mount_secrets(self) -> None:
        """Once for the node, when the first secret comes; a kubelet that starts again finds it."""
        with self._mounting:  # pods are worked for side by side; a second mount would hide what is in the first
            if self._secrets_mounted:
                return
            self._places.secrets.mkdir(parents=True, exist_ok=True)
            if not self._mounts.is_mounted(self._places.secrets):
                self._tmpfs(self._places.secrets, ["mode=0700", "nosuid", "nodev"])  # scripts in secrets may be run
            self._secrets_mounted = True

    def _mount_memory(self, step: MemoryMount) -> None:
        step.directory.mkdir(parents=True, exist_ok=True)
        if self._mounts.is_mounted(step.directory):
            return
        mode = _OPEN if step.group is None else _OPEN | _SETGID
        options = [f"mode={mode:o}"]
        options += [f"size={step.size}"] if step.size else []
        options += [f"gid={step.group}"] if step.group is not None else []
        self._tmpfs(step.directory, options)

    def _tmpfs(self, where: Path, options: Sequence[str]) -> None:
        try:
            self._mounts.mount("tmpfs", where, "tmpfs", [*options, "noswap"])
        except errors.Refused:  # before Linux 6.4
            self._mounts.mount("tmpfs", where, "tmpfs", options)

    def remove(self, uid: str) -> None:
        """Everything of a pod; its directory last, so that who is killed here finds it again."""
        places = (self._places.pod_secrets(uid), self._places.pod(uid))
        self._unmount_below(*places)
        for each in places:
            with suppress(FileNotFoundError):
                shutil.rmtree(each)

    def _unmount_below(self, *places: Path) -> None:
        """Also what containers mounted there; nothing is deleted while it shows something else."""
        below = tuple(f"{each.resolve()}/" for each in places)
        targets = [each.target for each in self._mounts.list() if each.target.startswith(below)]
        for target in reversed(targets):  # the last mounted is the uppermost
            with suppress(errors.NoSuchMount):  # it went with another that it was a reflection of
                try:
                    self._mounts.unmount(target)
                except errors.Busy:
                    self._mounts.unmount(target, lazily=True)

    def close(self) -> None:
        """Give the tmpfs for secrets back, unless there are still some."""
        self._secrets_mounted = False
        with suppress(errors.Busy, errors.NoSuchMount):
            if self._mounts.is_mounted(self._places.secrets) and not any(self._places.secrets.iterdir()):
                self._mounts.unmount(self._places.secrets)
                self._places.secrets.rmdir()


def _make_scratch(step: EmptyDirectory) -> None:
    """Whole or not at all, and once: what a container does to its permissions later stays."""
    if os.path.lexists(step.directory):
        return
    made = step.directory.with_name(f"..{step.directory.name}")
    made.mkdir(parents=True, exist_ok=True)
    if step.group is not None:
        os.chown(made, -1, step.group)
    made.chmod(_OPEN if step.group is None else _OPEN | _SETGID)
    made.rename(step.directory)
