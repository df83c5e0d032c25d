"""Copies files of a context into the mounted root of an image. Its symbolic links are the image's: none leads out."""

import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from podwire.linux.errors import LinuxError
from podwire.linux.fs.paths import open_in_root
from podwire.runtime.builder.context import Context, Entry, Source
from podwire.runtime.builder.errors import StepFailed

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Attributes:
    """Owner of all that is copied, and its mode if it is not that of the source."""

    uid: int = 0
    gid: int = 0
    mode: int | None = None


def make_directory(root: int, path: str, attributes: Attributes) -> int:
    """Opens a directory of an image, and makes what is missing on the way. Raises StepFailed."""
    done = ""
    parent = os.dup(root)
    try:
        for name in filter(None, path.split("/")):
            done = f"{done}/{name}"
            child = _open_directory(root, parent, done, name, attributes)
            os.close(parent)
            parent = child
        return os.dup(parent)
    except FileExistsError as error:
        raise StepFailed(f"{done}: is a symbolic link to nothing") from error
    except OSError as error:
        raise StepFailed(f"{done}: {os.strerror(error.errno or 0)}") from error
    finally:
        os.close(parent)


def _open_directory(root: int, parent: int, path: str, name: str, attributes: Attributes) -> int:
    try:
        return open_in_root(root, path, _DIRECTORY)
    except LinuxError as error:
        if error.errno != errno.ENOENT:
            raise
    os.mkdir(name, 0o755, dir_fd=parent)
    made = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    os.fchmod(made, 0o755)
    os.fchown(made, attributes.uid, attributes.gid)
    return made


def copy_sources(
    context: Context, sources: Sequence[Source], root: int, destination: str, into: bool, attributes: Attributes
) -> None:
    """Copies sources to a path of an image. `into`: the destination is a directory, whether it exists or not."""
    into = into or len(sources) > 1 or _is_directory(root, destination)
    for source in sources:
        if source.is_directory:
            with _made(root, destination, attributes):
                for entry in source.entries:
                    _copy(context, entry, root, posixpath.join(destination, entry.below), attributes)
            continue
        (entry,) = source.entries
        target = posixpath.join(destination, entry.below) if into else destination
        _copy(context, entry, root, target, attributes)


def _is_directory(root: int, path: str) -> bool:
    try:
        os.close(open_in_root(root, path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except LinuxError:
        return False
    return True


@contextmanager
def _made(root: int, path: str, attributes: Attributes) -> Iterator[int]:
    directory = make_directory(root, path, attributes)
    try:
        yield directory
    finally:
        os.close(directory)


def _copy(context: Context, entry: Entry, root: int, target: str, attributes: Attributes) -> None:
    above, name = posixpath.split(target)
    mode = stat.S_IMODE(entry.status.st_mode) if attributes.mode is None else attributes.mode
    with _made(root, above, attributes) as parent:
        try:
            if entry.is_directory:
                with _made(root, target, attributes) as directory:
                    os.fchmod(directory, mode)
                    os.fchown(directory, attributes.uid, attributes.gid)
                return
            _remove_old(parent, name)
            if stat.S_ISLNK(entry.status.st_mode):
                os.symlink(context.read_link(entry.path), name, dir_fd=parent)
                os.chown(name, attributes.uid, attributes.gid, dir_fd=parent, follow_symlinks=False)
            else:
                _copy_file(context.open(entry.path), parent, name, mode, attributes)
        except OSError as error:
            raise StepFailed(f"{target}: {os.strerror(error.errno or 0)}") from error


def _remove_old(parent: int, name: str) -> None:
    """A file that was there is replaced; a directory is not, and fails here."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _copy_file(source: int, parent: int, name: str, mode: int, attributes: Attributes) -> None:
    try:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise StepFailed(f"{name}: is not a file any more")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            while data := os.read(source, _CHUNK):
                left = memoryview(data)
                while left:
                    left = left[os.write(file, left) :]
            os.fchown(file, attributes.uid, attributes.gid)
            os.fchmod(file, mode)
        finally:
            os.close(file)
    finally:
        os.close(source)
