"""The directories of a layer that is being unpacked: found, made and opened without ever leaving its root.

Paths in an archive may lead through symbolic links of the same layer (`lib -> usr/lib`, then `lib/libc.so`). Links are
followed here, by hand and with the layer's root as `/`; the path that is found is then opened with openat2, which
refuses any link and any way out. Nobody else changes the layer meanwhile.
"""

import collections
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from podwire.linux.fs import paths
from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
READABLE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
OPAQUE = "trusted.overlay.opaque"
_LINKS = 40
_HELD = 64
_IMPLIED_MODE = 0o755


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Opens a path below the directory `root`, which the empty path is. A symlink in the path is an OSError."""
    return paths.open_beneath(root, os.fsdecode(path) or ".", flags, symlinks=False)


def is_whiteout(state: os.stat_result) -> bool:
    """The form in which overlayfs keeps a name that is gone: a character device 0:0."""
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0


class Directories:
    """Opens directories of a layer, and makes those that a path implies as the layers below have them."""

    def __init__(self, root: int, lowers: Sequence[int], limits: Limits, count: Callable[[str], None]) -> None:
        """`lowers` are the layers below, the highest first; `count` is called for each directory that is created."""
        self._root = root
        self._lowers = lowers
        self._limits = limits
        self._count = count
        self._held: collections.OrderedDict[bytes, tuple[int, bytes]] = collections.OrderedDict()
        copy_attributes(root, find_below(lowers, b""))

    def close(self) -> None:
        """Also needed after anything that lay on a path was replaced."""
        for descriptor, _path in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def open(self, names: Sequence[bytes], field: str, *, make: bool = True) -> tuple[int, bytes]:
        """A descriptor, and the path that it has when no link is left. Raises BadImage.

        The descriptors asked for last stay open, so that neighbours in an archive share theirs.
        """
        asked = b"/".join(names)
        opened = self._held.get(asked)
        if opened is not None:
            self._held.move_to_end(asked)
            return opened
        opened = self._held[asked] = self._open(asked, names, field, make)
        if len(self._held) > _HELD:
            os.close(self._held.popitem(last=False)[1][0])
        return opened

    def _open(self, asked: bytes, names: Sequence[bytes], field: str, make: bool) -> tuple[int, bytes]:
        try:
            return open_beneath(self._root, asked, DIRECTORY), asked
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
        path = self._walk(names, field, make)
        return open_beneath(self._root, path, DIRECTORY), path

    def _walk(self, names: Sequence[bytes], field: str, make: bool) -> bytes:
        done: list[bytes] = []
        waiting = collections.deque(names)
        links = 0
        while waiting:
            name = waiting.popleft()
            if name == b"..":  # only a link's target has it, and no link is left in `done`
                del done[-1:]
                continue
            target = self._step(done, name, field, make)
            if target is None:
                done.append(name)
                continue
            links += 1
            if links > _LINKS:
                raise BadImage(field, "the path leads through too many symbolic links")
            if target.startswith(b"/"):
                done.clear()
            waiting.extendleft(part for part in reversed(target.split(b"/")) if part not in (b"", b"."))
            if len(done) + len(waiting) > self._limits.depth:
                raise OverLimit(field, f"the path leads more than {self._limits.depth} directories deep")
        return b"/".join(done)

    def _step(self, done: Sequence[bytes], name: bytes, field: str, make: bool) -> bytes | None:
        """See that `name` is a directory; the target, when it is a link."""
        path = b"/".join(done)
        parent = open_beneath(self._root, path, DIRECTORY)
        try:
            state = os.lstat(name, dir_fd=parent)
            if stat.S_ISLNK(state.st_mode):
                return os.readlink(name, dir_fd=parent)
            if is_whiteout(state) and make:
                os.unlink(name, dir_fd=parent)
                self._make(parent, path, name, field, opaque=True)
            elif not stat.S_ISDIR(state.st_mode):
                raise BadImage(field, "the path leads through something that is not a directory")
        except FileNotFoundError:
            if not make:
                raise BadImage(field, "the path leads to nothing in this layer") from None
            self._make(parent, path, name, field, opaque=False)
        finally:
            os.close(parent)
        return None

    def _make(self, parent: int, path: bytes, name: bytes, field: str, *, opaque: bool) -> None:
        self._count(field)
        os.mkdir(name, _IMPLIED_MODE, dir_fd=parent)
        made = open_beneath(parent, name, READABLE)
        try:
            copy_attributes(made, None if opaque else find_below(self._lowers, path + b"/" + name if path else name))
            if opaque:
                os.setxattr(made, OPAQUE, b"y")
        finally:
            os.close(made)


def copy_attributes(directory: int, model: os.stat_result | None) -> None:
    """Give a directory the owner, mode and time of its like below, or the usual ones."""
    os.fchown(directory, *((model.st_uid, model.st_gid) if model else (0, 0)))
    os.fchmod(directory, stat.S_IMODE(model.st_mode) if model else _IMPLIED_MODE)
    if model:
        os.utime(directory, ns=(model.st_mtime_ns, model.st_mtime_ns))


def find_below(lowers: Sequence[int], path: bytes) -> os.stat_result | None:
    """The directory that overlayfs shows at a path of these layers, if there is one."""
    for lower in lowers:
        found, hidden = _find_in(lower, path)
        if found or hidden:
            return found
    return None


def _find_in(layer: int, path: bytes) -> tuple[os.stat_result | None, bool]:
    """The directory in one layer, or whether this layer hides what those below have."""
    here, hidden = os.dup(layer), False
    try:
        for name in filter(None, path.split(b"/")):
            hidden = hidden or is_opaque(here)
            deeper = os.open(name, READABLE, dir_fd=here)
            os.close(here)
            here = deeper
        return os.fstat(here), False
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return None, hidden or error.errno != errno.ENOENT
    finally:
        os.close(here)


def is_opaque(directory: int | Path) -> bool:
    """Whether a directory is opaque: it hides that of the layers below."""
    try:
        return os.getxattr(directory, OPAQUE) == b"y"
    except OSError:
        return False
