"""Makes a directory for overlayfs out of a layer's tar.

Every file is made by its name in an open directory, and only where nothing is yet; `directories.py` sees to it that
the directory is the layer's own. What a layer asks for and does not get:

    device nodes         only those that every container has anyway; others would give access to this machine's devices,
                         and are left out. 0:0 is a whiteout of overlayfs, and refused.
    extended attributes  only `user.*` and `security.capability`
    hard links           only to files of the same layer
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from podwire.linux.fs.trees import remove_tree
from podwire.runtime.images import entry_names, tar
from podwire.runtime.images.directories import OPAQUE, READABLE, Directories, is_whiteout, open_beneath
from podwire.runtime.images.entry_names import Place, Role
from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.file_attributes import dress, dress_by_name, set_time
from podwire.runtime.images.limits import Budget, Limits
from podwire.runtime.images.streams import Pieces
from podwire.runtime.images.tar import Entry, Kind

HARMLESS_DEVICES = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)}
"""null, zero, full, random, urandom, tty."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PAGE = 4096
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The disk usage of a layer."""

    bytes: int = 0
    inodes: int = 0


def unpack(
    stream: Pieces, root: int, lowers: Sequence[int], trash: int, *, limits: Limits, budget: Budget, field: str
) -> DiskUsage:
    """Read a whole tar into the empty directory `root`, which lies over `lowers`, the highest first.

    `trash` is a directory on the same file system for what later entries replace. Raises BadImage.
    """
    layer = _Layer(root, lowers, trash, limits, budget, stream)
    try:
        for entry in tar.read(stream, limits, field):
            layer.add(entry, f"{field}: {tar.printable(entry.name)}")
        layer.finish()
    finally:
        layer.directories.close()
    return DiskUsage(layer.bytes, layer.inodes)


class _Layer:
    def __init__(
        self, root: int, lowers: Sequence[int], trash: int, limits: Limits, budget: Budget, stream: Pieces
    ) -> None:
        self._root = root
        self._trash = trash
        self._limits = limits
        self._budget = budget
        self._stream = stream
        self._names = 0
        self._replaced = False
        self._times: dict[bytes, int] = {}
        self.bytes, self.inodes = _PAGE, 1  # the root
        self.directories = Directories(root, lowers, limits, self._count_implied)
        self._makers: dict[Kind, Callable[[Entry, int, bytes, bytes, str], None]] = {
            Kind.FILE: self._file,
            Kind.HARDLINK: self._hardlink,
            Kind.SYMLINK: self._symlink,
            Kind.CHARACTER_DEVICE: self._device,
            Kind.BLOCK_DEVICE: self._device,
            Kind.DIRECTORY: self._directory,
            Kind.FIFO: self._fifo,
        }

    def add(self, entry: Entry, field: str) -> None:
        self._pay(entry, field)
        place = entry_names.place(entry.name, self._limits, field)
        if place.role is Role.IGNORED:
            return
        if self._replaced:  # a path may lead elsewhere now
            self.directories.close()
            self._replaced = False
        parent, path = self.directories.open(place.directory, field)
        if place.role is Role.WHITEOUT:
            self._whiteout(place, parent)
        elif place.role is Role.OPAQUE:
            self._hide_below(self._root, path)
        elif place.base:
            self._makers[entry.kind](entry, parent, path, place.base, field)
        else:
            self._root_itself(entry, field)

    def finish(self) -> None:
        """Directories get their times last: each file that was made in one has changed it."""
        for path, time in self._times.items():
            try:
                with _opened(self._root, path) as directory:
                    set_time(directory, time)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise  # those it gets when another entry has taken the directory's place since

    def _pay(self, entry: Entry, field: str) -> None:
        self._names += len(entry.name) + len(entry.link)
        if self._names > self._limits.names:
            raise OverLimit(field, f"the paths of the layer have more than {self._limits.names} bytes")
        self._budget.take_entry(field)
        self._budget.take_data(field, entry.size)

    def _count_implied(self, field: str) -> None:
        self._budget.take_entry(field)
        self._count(_PAGE)

    def _count(self, size: int) -> None:
        self.inodes += 1
        self.bytes += -(-size // _PAGE) * _PAGE

    def _root_itself(self, entry: Entry, field: str) -> None:
        if entry.kind is not Kind.DIRECTORY:
            raise BadImage(field, "the root is not a directory")
        dress(self._root, entry, field)
        self._times[b""] = entry.mtime_ns

    def _whiteout(self, place: Place, parent: int) -> None:
        """It speaks of the layers below; what this layer has under the same name stays, and hides them."""
        state = _state(parent, place.base)
        if state is None:
            os.mknod(place.base, stat.S_IFCHR, 0, dir_fd=parent)
            self._count(0)
        elif stat.S_ISDIR(state.st_mode):
            self._hide_below(parent, place.base)

    def _hide_below(self, parent: int, path: bytes) -> None:
        with _opened(parent, path) as directory:
            os.setxattr(directory, OPAQUE, b"y")

    def _make(self, parent: int, base: bytes, make: Callable[[], _Made]) -> _Made:
        """Make something new; where an earlier entry has the name, that one goes first."""
        try:
            return make()
        except FileExistsError:
            os.rename(base, b"replaced", src_dir_fd=parent, dst_dir_fd=self._trash)
            remove_tree(self._trash, b"replaced")
            self._replaced = True
            return make()

    def _file(self, entry: Entry, parent: int, _path: bytes, base: bytes, field: str) -> None:
        file = self._make(parent, base, lambda: os.open(base, _CREATE, 0o600, dir_fd=parent))
        try:
            for offset, length in entry.pieces if entry.pieces is not None else ((0, entry.stored),):
                _write(file, offset, self._stream.each(length))
            if entry.pieces is not None:
                os.ftruncate(file, entry.size)
            dress(file, entry, field)
            set_time(file, entry.mtime_ns)
        finally:
            os.close(file)
        self._count(entry.stored)

    def _directory(self, entry: Entry, parent: int, path: bytes, base: bytes, field: str) -> None:
        """One that is there stays, with all that is in it. One that was said to be gone is new: it hides the old."""
        state = _state(parent, base)
        if state is None or not stat.S_ISDIR(state.st_mode):
            self._make(parent, base, lambda: os.mkdir(base, 0o700, dir_fd=parent))
            self._count(_PAGE)
        if state is not None and is_whiteout(state):
            self._hide_below(parent, base)
        with _opened(parent, base) as directory:
            dress(directory, entry, field)
        self._times[path + b"/" + base if path else base] = entry.mtime_ns

    def _symlink(self, entry: Entry, parent: int, _path: bytes, base: bytes, field: str) -> None:
        """Its target is the container's business: nothing here follows it out of the layer."""
        if not 0 < len(entry.link) <= self._limits.path or b"\0" in entry.link:
            raise BadImage(field, "a symbolic link to nothing, or with a target that is too long")
        self._make(parent, base, lambda: os.symlink(entry.link, base, dir_fd=parent))
        dress_by_name(parent, base, entry, mode=False)
        self._count(0)

    def _hardlink(self, entry: Entry, parent: int, _path: bytes, base: bytes, field: str) -> None:
        """A second name. Owner, mode and time are the file's, and were set where its first name is."""
        parts = entry_names.components(entry.link, self._limits, field)
        if not parts:
            raise BadImage(field, "a hard link to nothing")
        other, _ = self.directories.open(parts[:-1], field, make=False)
        state = _state(other, parts[-1])
        if state is None or stat.S_ISDIR(state.st_mode) or is_whiteout(state):
            raise BadImage(field, f"a hard link to {tar.printable(entry.link)}, which is not a file of this layer")
        existing = _state(parent, base)
        if existing is None or not os.path.samestat(existing, state):  # a link onto itself must not remove itself first
            self._make(parent, base, lambda: _link(other, parts[-1], parent, base))

    def _fifo(self, entry: Entry, parent: int, _path: bytes, base: bytes, _field: str) -> None:
        self._make(parent, base, lambda: os.mkfifo(base, 0o600, dir_fd=parent))
        dress_by_name(parent, base, entry)
        self._count(0)

    def _device(self, entry: Entry, parent: int, _path: bytes, base: bytes, field: str) -> None:
        if entry.device == (0, 0):
            raise BadImage(field, "is a whiteout of overlayfs")
        if entry.kind is Kind.BLOCK_DEVICE or entry.device not in HARMLESS_DEVICES:
            return
        device = os.makedev(*entry.device)
        self._make(parent, base, lambda: os.mknod(base, stat.S_IFCHR | 0o600, device, dir_fd=parent))
        dress_by_name(parent, base, entry)
        self._count(0)


def _state(parent: int, base: bytes) -> os.stat_result | None:
    try:
        return os.lstat(base, dir_fd=parent)
    except FileNotFoundError:
        return None


def _link(source: int, name: bytes, parent: int, base: bytes) -> None:
    os.link(name, base, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)


@contextlib.contextmanager
def _opened(parent: int, path: bytes) -> Iterator[int]:
    directory = open_beneath(parent, path, READABLE)
    try:
        yield directory
    finally:
        os.close(directory)


def _write(file: int, offset: int, pieces: Iterable[memoryview]) -> None:
    for piece in pieces:
        left = piece
        while left:
            written = os.pwrite(file, left, offset)
            offset += written
            left = left[written:]
