"""Removes directory trees of any depth, following no symlink."""

import contextlib
import os
import stat


def remove_tree(parent: int, name: bytes) -> None:
    """Remove the file or tree `name` in the open directory `parent`; does nothing when it does not exist. OSError.

    A container can nest directories deeper than a recursion goes or a path is long. So each directory in the tree is
    first moved up into `parent`, which must be a directory for temporary files: the tree becomes flat before it goes.
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
                for entry in map(os.fsencode, os.listdir(directory)):
                    if _unlink(directory, entry):
                        moved += 1
                        waiting.append(b"removed-%s-%d" % (token, moved))
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(entry, waiting[-1], src_dir_fd=directory, dst_dir_fd=parent)
            finally:
                os.close(directory)
            os.rmdir(emptied, dir_fd=parent)


def _unlink(directory: int, name: bytes) -> bool:
    """Remove a file. Returns whether it is a directory, and so still exists."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            return True
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    return False
