"""Files that are whole or not there after any crash, and trees that go away whatever is in them."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from podwire.runtime.images.errors import StoreFull


@contextlib.contextmanager
def no_room_is_told() -> Iterator[None]:
    """A disk without room is StoreFull."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"no room for images: {error}") from error
        raise


def write(path: Path, data: bytes, draft: Path) -> None:
    """Put a file in place at once, by way of a draft on the same file system; durable on return."""
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(parent: int, name: bytes) -> None:
    """Remove whatever is called `name` in the directory `parent`, following no link; what is gone already is fine.

    A container can nest directories deeper than a recursion goes or a path is long, so each directory that is found
    is first moved up into `parent`, which must be a place for rubbish: the tree gets flat before it goes.
    """
    if not _unlink(parent, name):
        return
    token = os.urandom(8).hex().encode()
    moved = 0
    waiting = [name]
    while waiting:
        emptied = waiting.pop()
        with contextlib.suppress(FileNotFoundError):
            directory = os.open(emptied, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                for each in map(os.fsencode, os.listdir(directory)):  # noqa: PTH208 - by descriptor, not by path
                    if _unlink(directory, each):
                        moved += 1
                        waiting.append(b"rubbish-%s-%d" % (token, moved))
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(each, waiting[-1], src_dir_fd=directory, dst_dir_fd=parent)
            finally:
                os.close(directory)
            os.rmdir(emptied, dir_fd=parent)


def _unlink(directory: int, name: bytes) -> bool:
    """Whether it is a directory, and so still there."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            return True
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    return False
