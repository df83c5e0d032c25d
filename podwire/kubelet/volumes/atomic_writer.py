"""Writes a volume's files so that a container sees all old or all new ones, never a mixture.

    NAME    -> ..data/NAME             what people see: each first step of a path
    ..data  -> ..2026_01_31_10_20_30.N
    ..2026_01_31_10_20_30.N/PATH       the files

New files go into a new directory; renaming the link `..data` is the moment. No fsync: after a crash of the machine no
container is left that could read them, and they are written anew.
"""

import itertools
import os
import shutil
import time
from pathlib import Path, PurePath

from podwire.kubelet.volumes.contents import Contents, File

DATA, NEW_DATA = "..data", "..data_tmp"
_READABLE, _SETGID = 0o440, 0o2000
_DIRECTORY, _VOLUME = 0o755, 0o777
_numbers = itertools.count()


def write(directory: Path, contents: Contents, group: int | None) -> bool:
    """Put these files into a volume; `group` may read them. False when that is what was there already."""
    _make_directory(directory, _VOLUME, group)
    files = {path: _for_group(file, group) for path, file in contents.items()}
    before = _current(directory)
    if before is not None and _holds(before, files):
        return False
    name = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()) + f"{time.time_ns() % 10**9:09d}{next(_numbers)}"
    try:
        _write_all(directory / name, files, group)
    except OSError:
        shutil.rmtree(directory / name, ignore_errors=True)  # what is half written takes room from the next try
        raise
    _point(directory / DATA, name, by=directory / NEW_DATA)
    _show(directory, {path.partition("/")[0] for path in files})
    _sweep(directory, name)
    return True


def _for_group(file: File, group: int | None) -> File:
    return file if group is None else File(file.data, file.mode | _READABLE, file.owner)


def _current(directory: Path) -> Path | None:
    """The directory that is shown now."""
    try:
        return directory / (directory / DATA).readlink()
    except FileNotFoundError:
        return None


def _holds(directory: Path, files: Contents) -> bool:
    """Whether exactly these files are there."""
    found = {Path(where, each) for where, _, names in os.walk(directory) for each in names}
    wanted = {directory / path: file for path, file in files.items()}
    return found == wanted.keys() and all(_same(path, file) for path, file in wanted.items())


def _same(path: Path, file: File) -> bool:
    try:
        return (path.lstat().st_mode & 0o7777) == file.mode and path.read_bytes() == file.data
    except OSError:
        return False


def _write_all(directory: Path, files: Contents, group: int | None) -> None:
    _make_directory(directory, _DIRECTORY, group)
    for above in sorted({each for path in files if "/" in path for each in PurePath(path).parents}):
        _make_directory(directory / above, _DIRECTORY, group)
    for path, file in files.items():
        _write(directory / path, file, group)


def _make_directory(path: Path, mode: int, group: int | None) -> None:
    path.mkdir(exist_ok=True)
    if group is not None:
        os.chown(path, -1, group)
        mode |= _READABLE | 0o110 | _SETGID
    path.chmod(mode)  # whatever the umask


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
    """Make or change a link in one moment."""
    by.unlink(missing_ok=True)  # of one who was killed here
    by.symlink_to(target)
    by.rename(link)


def _show(directory: Path, names: set[str]) -> None:
    """A link for each name, and none for what is gone. What others put there stays."""
    present = {each.name for each in directory.iterdir() if not each.name.startswith("..")}
    for name in names - present:
        (directory / name).symlink_to(f"{DATA}/{name}")
    for name in present - names:
        where = directory / name
        if where.is_symlink() and str(where.readlink()) == f"{DATA}/{name}":
            where.unlink()


def _sweep(directory: Path, current: str) -> None:
    """Remove what was shown before, and what one left who was killed while writing."""
    for each in directory.iterdir():
        if each.name.startswith("..") and each.name not in (DATA, current):
            shutil.rmtree(each, ignore_errors=True)
