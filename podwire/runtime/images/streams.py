"""Byte streams from an archive to a layer: hashing, decompression, reads of exact sizes."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits

CHUNK = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
_OTHER_COMPRESSIONS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}


class Readable(Protocol):
    def read(self, limit: int, /) -> bytes:
        """Up to `limit` bytes; empty at the end."""
        ...


def compression(beginning: bytes) -> str:
    """Returns the compression of a file by its first bytes; empty for none."""
    if beginning.startswith(GZIP_MAGIC):
        return "gzip"
    return next((name for magic, name in _OTHER_COMPRESSIONS.items() if beginning.startswith(magic)), "")


class Hashing:
    """Passes bytes through, and computes their number and digest."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self.size = 0

    def read(self, limit: int) -> bytes:
        chunk = self._source.read(limit)
        self._hash.update(chunk)
        self.size += len(chunk)
        return chunk

    def read_all(self) -> None:
        while self.read(CHUNK):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


class Gunzip:
    """A gzip stream of one or more members. Truncation, trailing data and decompression bombs are errors."""

    def __init__(self, source: Readable, limits: Limits, field: str) -> None:
        self._source = source
        self._limits = limits
        self._field = field
        self._member = zlib.decompressobj(wbits=31)
        self._pending = b""
        self._between = False
        self._read = self._made = 0

    def read(self, limit: int) -> bytes:
        while True:
            if not self._pending:
                self._pending = self._source.read(CHUNK)
                self._read += len(self._pending)
                if not self._pending and not self._between:
                    raise BadImage(self._field, "the gzip stream ends early")
                if not self._pending:
                    return b""
            made = self._inflate(limit)
            if made:
                return made

    def _inflate(self, limit: int) -> bytes:
        if self._between:
            self._member, self._between = zlib.decompressobj(wbits=31), False
        try:
            made = self._member.decompress(self._pending, limit)
        except zlib.error as error:
            raise BadImage(self._field, f"the gzip stream is broken ({error})") from error
        self._between = self._member.eof
        self._pending = self._member.unused_data if self._between else self._member.unconsumed_tail
        self._made += len(made)
        if self._made > max(self._limits.ratio_from, self._limits.ratio * self._read):
            raise OverLimit(self._field, f"grows to more than {self._limits.ratio} times its size")
        return made


class Pieces:
    """Reads exact sizes from a stream, and knows its position."""

    def __init__(self, source: Readable, field: str, seek: Callable[[int], object] | None = None) -> None:
        """`seek` moves on to a position without reading, where the source can."""
        self._source = source
        self._field = field
        self._seek = seek
        self._held = memoryview(b"")
        self.position = 0

    def upto(self, limit: int) -> memoryview:
        """Returns up to `limit` of the next bytes; empty at the end."""
        if not self._held:
            self._held = memoryview(self._source.read(CHUNK))
        taken, self._held = self._held[:limit], self._held[limit:]
        self.position += len(taken)
        return taken

    def each(self, size: int) -> Iterator[memoryview]:
        """Yields the next `size` bytes in chunks."""
        while size:
            taken = self.upto(size)
            if not taken:
                raise BadImage(self._field, "ends early")
            size -= len(taken)
            yield taken

    def exactly(self, size: int) -> bytes:
        taken = self.upto(size)
        return bytes(taken) if len(taken) == size else b"".join([taken, *self.each(size - len(taken))])

    def skip(self, size: int) -> None:
        held = min(size, len(self._held))
        self._held = self._held[held:]
        self.position += held
        if self._seek and size > held:
            self.position += size - held
            self._seek(self.position)
        else:
            for _ in self.each(size - held):
                pass
