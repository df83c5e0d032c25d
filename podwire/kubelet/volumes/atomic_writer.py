"""Writes the files of a volume atomically: a container sees all old or all new ones.

    NAME    -> ..data/NAME             one link for each first component of a path
    ..data  -> ..2026_01_31_10_20_30.N
    ..2026_01_31_10_20_30.N/PATH       the files

New files go into a new directory; the rename of the link `..data` switches to it. No fsync: after a machine crash no
container is left that could read them, and they are written again.
"""

import itertools
import os
import time
from contextlib import ExitStack
from pathlib import Path, PurePath

from podwire.kubelet.volumes.contents import Contents, File
from podwire.linux.fs.regular_files import read_head
from podwire.linux.fs.trees import directories_below, remove_path

DATA, NEW_DATA = "..data", "..data_tmp"
_READABLE, _SETGID = 0o440, 0o2000
_DIRECTORY, _VOLUME = 0o755, 0o777
_numbers = itertools.count()


def write(directory: Path, contents: Contents, group: int | None) -> bool:
    """Write these files into a volume; `group` may read them. Returns False if they are unchanged."""
    _make_directory(directory, _VOLUME, group)
    files = contents
    if group is not None:
        files = {path: File(file.data, file.mode | _READABLE, file.owner) for path, file in contents.items()}
    before = _current(directory)
    if before is not None and _holds(before, files):
        return False
    name = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()) + f"{time.time_ns() % 10**9:09d}{next(_numbers)}"
    with ExitStack() as undo:
        undo.callback(remove_path, directory / name)  # frees the disk for the next attempt
        _write_all(directory / name, files, group)
        undo.pop_all()
    _point(directory / DATA, name, by=directory / NEW_DATA)
    _update_links(directory, {path.partition("/")[0] for path in files})
    _sweep(directory, name)
    return True


def _current(directory: Path) -> Path | None:
    """The directory that `..data` points to."""
    try:
        return directory / (directory / DATA).readlink()
    except FileNotFoundError:
        return None


def _holds(directory: Path, files: Contents) -> bool:
    """Whether the directory has exactly these files."""
    existing = {
        Path(parent, entry.name)
        for parent in directories_below(directory)
        for entry in os.scandir(parent)
        if not entry.is_dir(follow_symlinks=False)
    }
    expected = {directory / path: file for path, file in files.items()}
    return existing == expected.keys() and all(_same(path, file) for path, file in expected.items())


def _same(path: Path, file: File) -> bool:
    try:
        return (path.lstat().st_mode & 0o7777) == file.mode and read_head(path, len(file.data) + 1) == file.data
    except OSError:
        return False


def _write_all(directory: Path, files: Contents, group: int | None) -> None:
    _make_directory(directory, _DIRECTORY, group)
    for parent in sorted({parent for path in files if "/" in path for parent in PurePath(path).parents}):
        _make_directory(directory / parent, _DIRECTORY, group)
    for path, file in files.items():
        _write(directory / path, file, group)


def _make_directory(path: Path, mode: int, group: int | None) -> None:
    path.mkdir(exist_ok=True)
    if group is not None:
        os.chown(path, -1, group)
        mode |= _READABLE | 0o110 | _SETGID
    path.chmod(mode)  # independent of the umask


def _write(path: Path, file: File, group: int | None) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(file.data)
        while left:
            left = left[os.write(opened, left) :]
        if file.owner is not None or group is not None:
            os.fchown(opened, -1 if file.owner is None else file.owner, -1 if group is None else group)
        os.fchmod(opened, file.mode)
    finally:
        os.close(opened)


def _point(link: Path, target: str, *, by: Path) -> None:
    """Create or change a link atomically."""
    by.unlink(missing_ok=True)  # left by a killed kubelet
    by.symlink_to(target)
    by.rename(link)


def _update_links(directory: Path, names: set[str]) -> None:
    """One link for each name; stale links are removed, files of others stay."""
    present = {path.name for path in directory.iterdir() if not path.name.startswith("..")}
    for name in names - present:
        (directory / name).symlink_to(f"{DATA}/{name}")
    for name in present - names:
        link = directory / name
        if link.is_symlink() and str(link.readlink()) == f"{DATA}/{name}":
            link.unlink()


def _sweep(directory: Path, current: str) -> None:
    """Remove earlier directories, including those of a killed kubelet."""
    for path in directory.iterdir():
        if path.name.startswith("..") and path.name not in (DATA, current):
            remove_path(path)
