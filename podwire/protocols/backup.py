"""A backup: the state of a store at one revision, as a stream of bytes. Pure.

    "podwire backup 1\\n"              magic and format
    length, Header                    the revision of the state, when and by which store it was read
    length, Entry  …                  every key once: the value as it is at rest, its revision, and that of its creation
    0                                 no more entries
    number of entries, SHA-256        of all bytes before: a stream that was cut or changed is never restored

Lengths are 4 bytes, the number of entries 8, all with the most significant byte first. Header and Entry are arrays in
MessagePack. Values that are encrypted at rest are encrypted here, too, bound to the key as the entry has it.

    BadBackup    not a backup, of a newer format, cut short, or damaged
"""

import hashlib
import struct
from collections.abc import Iterator

import msgspec

FORMAT = 1
_NAME = b"podwire backup "
MAGIC = _NAME + b"%d\n" % FORMAT
_LENGTH, _COUNT = struct.Struct(">I"), struct.Struct(">Q")
_DIGEST = hashlib.sha256().digest_size

MAX_RECORD = 4 << 20
"""Bytes of one entry: more than twice the largest value of a store."""


class BadBackup(Exception):
    """These bytes cannot be restored; the message says why."""


class Header(msgspec.Struct, frozen=True, array_like=True):
    """`created` is in seconds since 1970, `store` the scheme of the store's URL."""

    revision: int
    created: float
    store: str


class Entry(msgspec.Struct, frozen=True, array_like=True):
    key: bytes
    value: bytes
    revision: int
    created: int


class Trailer(msgspec.Struct, frozen=True):
    entries: int


_encoder = msgspec.msgpack.Encoder()
_header_decoder, _entry_decoder = msgspec.msgpack.Decoder(Header), msgspec.msgpack.Decoder(Entry)


class BackupEncoder:
    """Encodes one backup: the header, entries in any order, the end."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._entries = 0

    def header(self, header: Header) -> bytes:
        return self._counted(MAGIC + _record(header))

    def entry(self, entry: Entry) -> bytes:
        self._entries += 1
        return self._counted(_record(entry))

    def end(self) -> bytes:
        last = self._counted(_LENGTH.pack(0) + _COUNT.pack(self._entries))
        return last + self._digest.digest()

    def _counted(self, data: bytes) -> bytes:
        self._digest.update(data)
        return data


class BackupDecoder:
    """Decodes one backup from pieces of any size. What it has yielded may be used only once `close` has returned."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._expects_header = self._expects_magic = True
        self._entries = 0
        self._trailer: Trailer | None = None

    def feed(self, data: bytes) -> Iterator[Header | Entry]:
        """Yields the records that are complete. Raises BadBackup."""
        self._buffer += data
        if self._expects_magic and not self._take_magic():
            return
        while self._trailer is None and (record := self._take_record()) is not None:
            yield record
        if self._trailer is not None and self._buffer:
            raise BadBackup(f"{len(self._buffer)} bytes follow after its end")

    def close(self) -> Trailer:
        """Returns the trailer of a backup that is complete. Raises BadBackup."""
        if self._trailer is None:
            raise BadBackup("it is cut short" if not self._expects_magic else "it has no beginning of a backup")
        return self._trailer

    def _take_magic(self) -> bool:
        if not self._buffer.startswith(MAGIC[: len(self._buffer)]):
            line = bytes(self._buffer[:40]).partition(b"\n")[0]
            if line.startswith(_NAME) and line[len(_NAME) :].isdigit() and line + b"\n" != MAGIC:
                raise BadBackup(f"it has format {line[len(_NAME) :].decode()}; this podwire reads format {FORMAT}")
            raise BadBackup("it is not a backup of podwire")
        if len(self._buffer) < len(MAGIC):
            return False
        self._digest.update(MAGIC)
        del self._buffer[: len(MAGIC)]
        self._expects_magic = False
        return True

    def _take_record(self) -> Header | Entry | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        [length] = _LENGTH.unpack_from(self._buffer)
        if length == 0:
            self._take_trailer()
            return None
        if length > MAX_RECORD:
            raise BadBackup(f"it is damaged: a record of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        self._digest.update(memoryview(self._buffer)[:end])
        data = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        try:
            if self._expects_header:
                self._expects_header = False
                return _header_decoder.decode(data)
            self._entries += 1
            return _entry_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise BadBackup(f"it is damaged: record {self._entries}: {error}") from error

    def _take_trailer(self) -> None:
        end = _LENGTH.size + _COUNT.size
        if len(self._buffer) < end + _DIGEST:
            return
        if self._expects_header:
            raise BadBackup("it is damaged: it has no header")
        self._digest.update(memoryview(self._buffer)[:end])
        [entries] = _COUNT.unpack_from(self._buffer, _LENGTH.size)
        if bytes(self._buffer[end : end + _DIGEST]) != self._digest.digest() or entries != self._entries:
            raise BadBackup("it is damaged: checksum mismatch")
        del self._buffer[: end + _DIGEST]
        self._trailer = Trailer(entries)


def _record(record: Header | Entry) -> bytes:
    data = _encoder.encode(record)
    return _LENGTH.pack(len(data)) + data
