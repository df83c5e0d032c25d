"""Byte streams from an archive to a layer: hashing, decompression, reads of exact sizes."""

import hashlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits

CHUNK = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_WINDOW_LOG = 26
"""The largest window of a zstd frame, 64 MiB: an image must not choose how much memory unpacking takes."""
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


class _Broken(Exception):
    """The compressed data is invalid."""


class Decompressed:
    """A gzip or zstd stream of one or more members. Truncation, trailing data and decompression bombs are errors."""

    def __init__(self, source: Readable, packed: str, limits: Limits, field: str) -> None:
        self._source = source
        self._new_member = _MEMBERS[packed]
        self._limits = limits
        self._field = field
        self._packed = packed
        self._member = self._new_member()
        self._between = False
        self._read = self._made = 0

    def read(self, limit: int) -> bytes:
        while True:
            if self._member.starved:
                pending = self._source.read(CHUNK)
                self._read += len(pending)
                if not pending and not self._between:
                    raise BadImage(self._field, f"the {self._packed} stream ends early")
                if not pending:
                    return b""
                self._between = False
                self._member.feed(pending)
            made = self._inflate(limit)
            if made:
                return made

    def _inflate(self, limit: int) -> bytes:
        try:
            made = self._member.inflate(limit)
        except _Broken as error:
            raise BadImage(self._field, f"the {self._packed} stream is broken ({error})") from error
        self._made += len(made)
        if self._made > max(self._limits.ratio_from, self._limits.ratio * self._read):
            raise OverLimit(self._field, f"grows to more than {self._limits.ratio} times its size")
        if self._member.ended:
            rest, self._member = self._member.rest, self._new_member()
            self._member.feed(rest)
            self._between = not rest
        return made


class _Gzip:
    """One member of a gzip stream. zlib returns input that it did not use yet; it is kept here."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=31)
        self._pending = b""

    @property
    def starved(self) -> bool:
        return not self._pending

    @property
    def ended(self) -> bool:
        return self._inflater.eof

    @property
    def rest(self) -> bytes:
        return self._inflater.unused_data

    def feed(self, data: bytes) -> None:
        self._pending += data

    def inflate(self, limit: int) -> bytes:
        try:
            made = self._inflater.decompress(self._pending, limit)
        except zlib.error as error:
            raise _Broken(str(error)) from error
        self._pending = self._inflater.unconsumed_tail
        return made


class _Zstd:
    """One frame of a zstd stream. The library keeps input that it did not use yet."""

    def __init__(self) -> None:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415 - only for the few images that need it
        else:
            from backports import zstd  # noqa: PLC0415 - the same

        self._error = zstd.ZstdError
        self._inflater = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
        self._pending = b""

    @property
    def starved(self) -> bool:
        return not self._pending and (self._inflater.eof or self._inflater.needs_input)

    @property
    def ended(self) -> bool:
        return self._inflater.eof

    @property
    def rest(self) -> bytes:
        return self._inflater.unused_data

    def feed(self, data: bytes) -> None:
        self._pending += data

    def inflate(self, limit: int) -> bytes:
        pending, self._pending = self._pending, b""
        try:
            return self._inflater.decompress(pending, limit)
        except self._error as error:
            raise _Broken(str(error)) from error


_MEMBERS: dict[str, type[_Gzip] | type[_Zstd]] = {"gzip": _Gzip, "zstd": _Zstd}


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
