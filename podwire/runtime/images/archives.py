"""An archive of images as named files: a directory or a tar, plain or compressed. Looking into it unpacks nothing."""

import contextlib
import io
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from podwire.linux.fs.paths import open_beneath
from podwire.runtime.images import tar
from podwire.runtime.images.documents import check_compression
from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Budget, Limits
from podwire.runtime.images.streams import CHUNK, Decompressed, Pieces, compression
from podwire.runtime.images.tar import Kind

_LINKS = 8
_READ = os.O_RDONLY | os.O_NONBLOCK  # a FIFO must not keep us waiting
_BEGINNING = 16


class Archive(Protocol):
    def has(self, name: str) -> bool: ...

    def size(self, name: str) -> int:
        """Raises BadImage when there is no such file."""
        ...

    def open(self, name: str) -> BinaryIO: ...


def read_document(archive: Archive, name: str, limits: Limits) -> bytes:
    """A small file, whole."""
    if archive.size(name) > limits.document:
        raise OverLimit(name, f"has more than {limits.document} bytes")
    with archive.open(name) as file:
        return file.read(limits.document)


@contextlib.contextmanager
def opened(path: Path, scratch: Path, limits: Limits) -> Iterator[Archive]:
    """Open an archive; a compressed one is first unpacked to the file `scratch`. Raises BadImage."""
    descriptor = os.open(path, _READ)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            yield _Directory(descriptor)
            return
        with (
            os.fdopen(os.dup(descriptor), "rb", buffering=0) as file,
            _plain(file, scratch, limits) as plain,
        ):
            yield _Tar(plain, limits, path.name)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _plain(file: BinaryIO, scratch: Path, limits: Limits) -> Iterator[BinaryIO]:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise BadImage("archive", "is neither a file nor a directory")
    packed = compression(os.pread(file.fileno(), _BEGINNING, 0))
    check_compression(packed, "archive")
    if not packed:
        yield file
        return
    budget = Budget(limits)
    unpacked = Decompressed(file, packed, limits, "archive")
    with scratch.open("x+b", buffering=0) as plain:
        while chunk := unpacked.read(CHUNK):
            budget.take_data("archive", len(chunk))
            plain.write(chunk)
        yield plain


class _Directory:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def has(self, name: str) -> bool:
        try:
            os.close(self._open(name))
        except BadImage:
            return False
        return True

    def size(self, name: str) -> int:
        opened = self._open(name)
        try:
            return os.fstat(opened).st_size
        finally:
            os.close(opened)

    def open(self, name: str) -> BinaryIO:
        return os.fdopen(self._open(name), "rb", buffering=0)

    def _open(self, name: str) -> int:
        try:
            opened = open_beneath(self._descriptor, name or ".", _READ)
        except (OSError, ValueError) as error:
            raise BadImage(name[:300], "is not in the archive, or not a file of it") from error
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise BadImage(name[:300], "is not a file")
        return opened


class _Tar:
    """Knows where in the tar each file's bytes lie; links are those within the archive, which `docker save` makes."""

    def __init__(self, file: BinaryIO, limits: Limits, field: str) -> None:
        self._file = file
        self._files: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        whole = os.fstat(file.fileno()).st_size
        file.seek(0)
        stream = Pieces(file, field, seek=file.seek)
        held = 0
        for entry in tar.read(stream, limits, field):
            held += len(entry.name) + len(entry.link)
            if held > limits.names:
                raise OverLimit(field, f"the paths of the archive have more than {limits.names} bytes")
            self._add(entry, stream.position, whole, field)

    def _add(self, entry: tar.Entry, start: int, whole: int, field: str) -> None:
        name = _clean(os.fsdecode(entry.name))
        self._files.pop(name, None)
        self._links.pop(name, None)
        if entry.kind is Kind.FILE and entry.pieces is None:
            if start + entry.stored > whole:
                raise BadImage(field, f"ends early, within {tar.printable(entry.name)}")
            self._files[name] = (start, entry.stored)
        elif entry.kind is Kind.HARDLINK:
            self._links[name] = _clean(os.fsdecode(entry.link))
        elif entry.kind is Kind.SYMLINK:
            self._links[name] = _clean(posixpath.join(posixpath.dirname(name), os.fsdecode(entry.link)))

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def size(self, name: str) -> int:
        return self._need(name)[1]

    def open(self, name: str) -> BinaryIO:
        return io.BufferedReader(_Part(self._file.fileno(), *self._need(name)), CHUNK)

    def _need(self, name: str) -> tuple[int, int]:
        region = self._find(name)
        if region is None:
            raise BadImage(name[:300], "is not in the archive")
        return region

    def _find(self, name: str) -> tuple[int, int] | None:
        name = _clean(name)
        for _ in range(_LINKS):
            if name in self._files or name not in self._links:
                return self._files.get(name)
            name = self._links[name]
        return None


def _clean(name: str) -> str:
    return posixpath.normpath(name).lstrip("/")


class _Part(io.RawIOBase):
    """A stretch of a file, with a position of its own."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._at, self._end = start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the base asks for any buffer at all
        read = os.preadv(self._descriptor, [buffer[: self._end - self._at]], self._at)
        self._at += read
        return read
