"""Packs a layer's directory, as overlayfs keeps it, into a tar. The same content makes the same bytes.

    a character device 0:0                .wh.NAME                  a name that is gone
    the attribute trusted.overlay.opaque  DIRECTORY/.wh..wh..opq    a directory that hides that below

Names are in order, times are those of the build, owners are numbers. Left out: sockets, device nodes that importing
would leave out, and extended attributes but `user.*` and `security.capability`.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from podwire.runtime.images.directories import find_below, is_opaque, is_whiteout
from podwire.runtime.images.unpack import HARMLESS_DEVICES

_XATTR = "SCHILY.xattr."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Packed:
    """A layer that was packed."""

    diff_id: str
    size: int


def pack_layer(upper: Path, lowers: Sequence[Path], file: Path, time: int, *, root: bool = False) -> Packed:
    """Writes a layer, which lies over `lowers` (the highest first), to a new file. `root`: with an entry for `/`."""
    with ExitStack() as held, file.open("xb") as raw:
        hashing = _Hashing(raw)
        below = [_opened(held, lower) for lower in lowers]
        top = _opened(held, upper)
        with tarfile.open(fileobj=hashing, mode="w", format=tarfile.PAX_FORMAT) as tar:
            packer = _Packer(tar, below, time)
            if root:
                packer.add_directory(b"./", os.fstat(top), top)
            packer.pack(top, b"")
        return Packed(f"sha256:{hashing.digest}", hashing.size)


def _opened(held: ExitStack, path: Path) -> int:
    descriptor = os.open(path, _DIRECTORY)
    held.callback(os.close, descriptor)
    return descriptor


class _Hashing(io.RawIOBase):
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # the base asks for any buffer at all
        self._hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass(slots=True)
class _Packer:
    tar: tarfile.TarFile
    lowers: Sequence[int]
    time: int
    _links: dict[tuple[int, int], str] = field(default_factory=dict)

    def pack(self, directory: int, path: bytes) -> None:
        for name, status in _entries(directory):
            whole = path + b"/" + name if path else name
            if is_whiteout(status):
                self._add_empty((path + b"/" if path else b"") + b".wh." + name)
            elif stat.S_ISDIR(status.st_mode):
                child = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    self._pack_directory(child, whole, status)
                finally:
                    os.close(child)
            else:
                self._add(directory, name, whole, status)

    def _pack_directory(self, directory: int, path: bytes, status: os.stat_result) -> None:
        below = find_below(self.lowers, path)
        hides = below is not None and is_opaque(directory)
        if below is not None and not hides and _is_same(below, status) and not any(_entries(directory)):
            return  # something was made and removed in it: overlayfs has copied it, and nothing has changed
        self.add_directory(path, status, directory)
        if hides:
            self._add_empty(path + b"/.wh..wh..opq")
        self.pack(directory, path)

    def add_directory(self, path: bytes, status: os.stat_result, directory: int) -> None:
        info = self._info(path, status, tarfile.DIRTYPE)
        info.pax_headers = _attributes(directory)
        self.tar.addfile(info)

    def _add(self, directory: int, name: bytes, path: bytes, status: os.stat_result) -> None:
        first = self._links.setdefault((status.st_dev, status.st_ino), os.fsdecode(path))
        if status.st_nlink > 1 and first != os.fsdecode(path):
            info = self._info(path, status, tarfile.LNKTYPE)
            info.linkname = first
            self.tar.addfile(info)
        elif stat.S_ISLNK(status.st_mode):
            info = self._info(path, status, tarfile.SYMTYPE)
            info.linkname = os.fsdecode(os.readlink(name, dir_fd=directory))
            self.tar.addfile(info)
        elif stat.S_ISREG(status.st_mode):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            with os.fdopen(descriptor, "rb") as file:
                info = self._info(path, status, tarfile.REGTYPE)
                info.size = status.st_size
                info.pax_headers = _attributes(descriptor)
                self.tar.addfile(info, file)
        elif stat.S_ISFIFO(status.st_mode):
            self.tar.addfile(self._info(path, status, tarfile.FIFOTYPE))
        elif stat.S_ISCHR(status.st_mode):
            device = os.major(status.st_rdev), os.minor(status.st_rdev)
            if device in HARMLESS_DEVICES:
                info = self._info(path, status, tarfile.CHRTYPE)
                info.devmajor, info.devminor = device
                self.tar.addfile(info)

    def _add_empty(self, path: bytes) -> None:
        info = tarfile.TarInfo(os.fsdecode(path))
        info.mode, info.mtime = 0o600, self.time
        self.tar.addfile(info)

    def _info(self, path: bytes, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        info = tarfile.TarInfo(os.fsdecode(path))
        info.type, info.mode, info.mtime = kind, stat.S_IMODE(status.st_mode), self.time
        info.uid, info.gid = status.st_uid, status.st_gid
        return info


def _entries(directory: int) -> Iterator[tuple[bytes, os.stat_result]]:
    for name in sorted(os.fsencode(name) for name in os.listdir(directory)):
        yield name, os.lstat(name, dir_fd=directory)


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_mode, one.st_uid, one.st_gid) == (other.st_mode, other.st_uid, other.st_gid)


def _attributes(descriptor: int) -> dict[str, str]:
    """Returns extended attributes as headers of the tar, in order."""
    names = [name for name in os.listxattr(descriptor) if name.startswith("user.") or name == "security.capability"]
    return {_XATTR + name: os.getxattr(descriptor, name).decode("utf-8", "surrogateescape") for name in sorted(names)}
