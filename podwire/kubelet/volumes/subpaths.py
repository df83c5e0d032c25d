"""A part of a volume, shown at a place where nobody who can write to the volume can put something else.

A container can make any link in its volume, at any moment. So the path is walked by the kernel with the rule that it
must not leave the volume (openat2), and what was found is bound by its descriptor, not by its name: a link that is
swapped later changes nothing. The runtime is given the place where it is bound, to which no container can write.
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
    """Show VOLUME/SUBPATH at a target, making directories that are not there. Again: what the path names by then."""
    try:
        with _found(volume, subpath) as found:
            status = os.fstat(found)
            if _is_there(target, status):
                return
            _clear(target, mounts)
            _make_target(target, directory=stat.S_ISDIR(status.st_mode))
            mounts.bind(f"/proc/self/fd/{found}", target)
    except errors.PathEscapes as error:
        raise VolumeError(f'subpath "{subpath}" not within volume path "{volume}"') from error
    except OSError as error:
        raise VolumeError(f'failed to prepare subPath "{subpath}": {error}') from error


@contextmanager
def _found(volume: Path, subpath: str) -> Iterator[int]:
    """What is there, as a descriptor that names it for good."""
    with ExitStack() as opened:
        root = _open(volume, opened)
        try:
            found = paths.open_beneath(root, subpath, os.O_PATH)
        except errors.NoSuchPath:
            found = _make(root, subpath, opened)
        opened.callback(os.close, found)
        yield found


def _open(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor


def _make(root: int, subpath: str, opened: ExitStack) -> int:
    """Step by step, each from the descriptor of the one before; with the permissions of the volume."""
    mode = stat.S_IMODE(os.fstat(root).st_mode)
    steps = [each for each in subpath.split("/") if each not in ("", ".")]
    above = root
    for count, step in enumerate(steps, 1):
        try:
            below = paths.open_beneath(root, "/".join(steps[:count]), os.O_RDONLY | os.O_DIRECTORY)
        except errors.NoSuchPath:
            with suppress(FileExistsError):  # by the container, this very moment
                os.mkdir(step, mode, dir_fd=above)
            below = paths.open_beneath(above, step, os.O_RDONLY | os.O_DIRECTORY, symlinks=False)
            os.fchmod(below, mode)  # whatever the umask
        opened.callback(os.close, below)
        above = below
    return os.dup(above)


def _is_there(target: Path, wanted: os.stat_result) -> bool:
    """Whether the target shows it already; one that shows nothing is a file of its own."""
    try:
        return os.path.samestat(target.lstat(), wanted)
    except FileNotFoundError:
        return False


def _clear(target: Path, mounts: Mounts) -> None:
    """Take away what was shown there before, and what it was shown on if that is of the other kind."""
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
