"""Bind mounts of subPaths that containers with write access to the volume cannot redirect.

A container can create any link in its volume at any moment. So the kernel resolves the path with the rule that it must
not leave the volume (openat2), and the result is bound by its descriptor, not by its name: a link that is swapped later
changes nothing. The runtime mounts the target of the bind mount, to which no container can write.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.ports import Mounts
from podwire.linux import errors
from podwire.linux.fs import paths


def bind(volume: Path, subpath: str, target: Path, mounts: Mounts) -> None:
    """Bind VOLUME/SUBPATH to a target, creating missing directories. Repeated calls follow a changed path."""
    try:
        with _resolved(volume, subpath) as descriptor:
            status = os.fstat(descriptor)
            if _is_bound(target, status):
                return
            _clear(target, mounts)
            _make_target(target, directory=stat.S_ISDIR(status.st_mode))
            mounts.bind(f"/proc/self/fd/{descriptor}", target)
    except errors.PathEscapes as error:
        raise VolumeError(f'subpath "{subpath}" not within volume path "{volume}"') from error
    except OSError as error:
        raise VolumeError(f'failed to prepare subPath "{subpath}": {error}') from error


@contextmanager
def _resolved(volume: Path, subpath: str) -> Iterator[int]:
    """A descriptor of the path, created if it does not exist."""
    with ExitStack() as opened:
        root = _open(volume, opened)
        try:
            descriptor = paths.open_beneath(root, subpath, os.O_PATH)
        except errors.NoSuchPath:
            descriptor = _make(root, subpath, opened)
        opened.callback(os.close, descriptor)
        yield descriptor


def _open(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor


def _make(root: int, subpath: str, opened: ExitStack) -> int:
    """Create directories one by one, each relative to the descriptor of its parent, with the volume's permissions."""
    mode = stat.S_IMODE(os.fstat(root).st_mode)
    steps = [step for step in subpath.split("/") if step not in ("", ".")]
    above = root
    for count, step in enumerate(steps, 1):
        try:
            below = paths.open_beneath(root, "/".join(steps[:count]), os.O_RDONLY | os.O_DIRECTORY)
        except errors.NoSuchPath:
            with suppress(FileExistsError):  # the container created it concurrently
                os.mkdir(step, mode, dir_fd=above)
            below = paths.open_beneath(above, step, os.O_RDONLY | os.O_DIRECTORY, symlinks=False)
            os.fchmod(below, mode)  # independent of the umask
        opened.callback(os.close, below)
        above = below
    return os.dup(above)


def _is_bound(target: Path, wanted: os.stat_result) -> bool:
    """Whether the target is bound to it already."""
    try:
        return os.path.samestat(target.lstat(), wanted)
    except FileNotFoundError:
        return False


def _clear(target: Path, mounts: Mounts) -> None:
    """Unmount and remove an earlier target."""
    while os.path.lexists(target):
        try:
            mounts.unmount(target, lazily=True)
        except errors.NoSuchMount:
            break
    if target.is_dir():
        target.rmdir()
    else:
        target.unlink(missing_ok=True)


def _make_target(target: Path, *, directory: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if directory:
        target.mkdir()
    else:
        target.touch(exist_ok=False)
