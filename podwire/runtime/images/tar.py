"""Reads a tar: ustar, V7, GNU (long names, sparse) and pax, as layers are made by docker, buildah, bazel and GNU tar.

Our own, because Python's reads extended headers of any size into memory, follows sizes that lead backwards, and leaves
to its caller what must be refused. Where readers of tars differ, this one does as Go's, since images are made for it.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from decimal import Decimal, InvalidOperation

from podwire.runtime.images import sparse
from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.sparse import BLOCK, number
from podwire.runtime.images.streams import Pieces

_ZEROS = bytes(BLOCK)
_XATTR = "SCHILY.xattr."
_FIRST_TIME, _LAST_TIME = -(1 << 31), (1 << 34) - 1
"""The range of ext4; other times are clamped to it."""
_LAST_ID = (1 << 32) - 2


class Kind(enum.Enum):
    FILE = b"0"
    HARDLINK = b"1"
    SYMLINK = b"2"
    CHARACTER_DEVICE = b"3"
    BLOCK_DEVICE = b"4"
    DIRECTORY = b"5"
    FIFO = b"6"


_KINDS = {kind.value: kind for kind in Kind} | {b"\0": Kind.FILE, b"7": Kind.FILE, b"S": Kind.FILE}


@dataclass(slots=True)
class Entry:
    """One file of a tar; its `stored` bytes are what the stream gives next."""

    name: bytes
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int = 0
    stored: int = 0
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: Mapping[str, bytes] = default(default_factory=dict)
    pieces: tuple[sparse.Piece, ...] | None = None


@dataclass(slots=True)
class _Extended:
    """Extended headers that precede an entry."""

    records: Sequence[tuple[str, bytes]] = ()
    name: bytes | None = None
    link: bytes | None = None


def read(stream: Pieces, limits: Limits, field: str) -> Iterator[Entry]:
    """The entries of a tar, in order. What the caller leaves of an entry's bytes is skipped. Raises BadImage."""
    extended = _Extended()
    for block in _headers(stream, limits, field):
        kind = block[156:157]
        if kind in b"xgLK":
            payload = _payload(stream, number(block[124:136], field), limits, field)
            if kind == b"x":
                extended.records = pax_records(payload, field)
            elif kind != b"g":  # what holds for all is a comment; runtimes read no more out of it
                setattr(extended, "name" if kind == b"L" else "link", payload.partition(b"\0")[0])
            continue
        entry = _entry(block, extended, stream, limits, field)
        extended = _Extended()
        end = stream.position + entry.stored
        yield entry
        stream.skip(end - stream.position)
        _skip_padding(stream)


def _headers(stream: Pieces, limits: Limits, field: str) -> Iterator[bytes]:
    """The header blocks up to the end of the archive; after it only zeros may follow."""
    count = 0
    while block := bytes(stream.upto(BLOCK)):
        block += stream.exactly(BLOCK - len(block))
        if block == _ZEROS:
            _expect_zeros(stream, field)
            return
        count += 1
        if count > 4 * limits.entries:  # an entry may have a pax header, a long name and a long link
            raise OverLimit(field, f"has more than {4 * limits.entries} headers")
        _verify(block, field)
        yield block


def _expect_zeros(stream: Pieces, field: str) -> None:
    while rest := stream.upto(1 << 16):
        if rest != bytes(len(rest)):
            raise BadImage(field, "something follows the end of the tar")


def _verify(block: bytes, field: str) -> None:
    checksum = number(block[148:156], field)
    summed = sum(block) - sum(block[148:156]) + 8 * 0x20
    if checksum != summed and checksum != summed - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
        raise BadImage(field, "is not a tar, or is damaged (checksum mismatch of a header)")


def _payload(stream: Pieces, size: int, limits: Limits, field: str) -> bytes:
    if not 0 <= size <= limits.header:
        raise OverLimit(field, f"an extended header of more than {limits.header} bytes")
    payload = stream.exactly(size)
    _skip_padding(stream)
    return payload


def _skip_padding(stream: Pieces) -> None:
    stream.skip(-stream.position % BLOCK)


def pax_records(payload: bytes, field: str) -> list[tuple[str, bytes]]:
    """`LENGTH KEY=VALUE\\n`, again and again; a key may come twice."""
    records = []
    at = 0
    while at < len(payload):
        digits = payload[at : at + 8].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        record = payload[at + len(digits) + 1 : at + length]
        key, equals, value = record[:-1].partition(b"=")
        if not (key and equals and record.endswith(b"\n") and at + length <= len(payload)):
            raise BadImage(field, "a pax header is malformed")
        records.append((key.decode("utf-8", "surrogateescape"), value))
        at += length
    return records


def _entry(block: bytes, extended: _Extended, stream: Pieces, limits: Limits, field: str) -> Entry:
    values = {key: value for key, value in extended.records if value}
    name = extended.name or values.get("GNU.sparse.name") or values.get("path") or _name(block)
    where = f"{field}: {printable(name)}"
    flag = block[156:157]
    if b"\0" in name:
        raise BadImage(where, "a name with a NUL")
    if flag not in _KINDS:
        raise BadImage(where, f"an entry of the unknown type {flag!r}")
    kind = Kind.DIRECTORY if flag == b"\0" and name.endswith(b"/") else _KINDS[flag]
    entry = Entry(
        name=name,
        kind=kind,
        mode=number(block[100:108], where) & 0o7777,
        uid=_identity(values.get("uid"), block[108:116], where),
        gid=_identity(values.get("gid"), block[116:124], where),
        mtime_ns=_time(values.get("mtime"), block[136:148], where),
        link=extended.link or values.get("linkpath") or block[157:257].partition(b"\0")[0],
        xattrs=_xattrs(values, limits, where),
    )
    if kind is Kind.FILE:
        _size(entry, block, extended, stream, limits, where)
    elif kind in (Kind.CHARACTER_DEVICE, Kind.BLOCK_DEVICE):
        entry.device = number(block[329:337], where), number(block[337:345], where)
    return entry


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    if block[257:263] != b"ustar\0":  # GNU keeps other things where the prefix would be
        return name
    prefix = block[345 : 476 if block[508:512] == b"tar\0" else 500].partition(b"\0")[0]
    return prefix + b"/" + name if prefix else name


def _size(entry: Entry, block: bytes, extended: _Extended, stream: Pieces, limits: Limits, where: str) -> None:
    """Set the sizes of a file, and where its pieces belong when it is sparse."""
    values = dict(extended.records)
    entry.stored = entry.size = _decimal(values["size"], where) if values.get("size") else number(block[124:136], where)
    if entry.stored < 0:
        raise BadImage(where, "a negative size")
    pieces: Sequence[sparse.Piece] | None
    if block[156:157] == b"S":
        entry.size = number(block[483:495], where)
        pieces = sparse.from_old_header(block, stream, limits, where)
    elif values.get("GNU.sparse.major") == b"1" and values.get("GNU.sparse.minor") == b"0":
        entry.size = sparse.real_size(values, where)
        pieces, taken = sparse.from_data(stream, entry.stored, limits, where)
        entry.stored -= taken
    elif (pieces := sparse.from_pax(extended.records, where)) is not None:
        entry.size = sparse.real_size(values, where)
    if pieces is not None:
        entry.pieces = sparse.checked(pieces, entry.size, entry.stored, limits, where)


def _decimal(text: bytes, where: str) -> int:
    if not text.isdigit() or len(text) > 20:
        raise BadImage(where, f"{text[:40]!r} is not a number")
    return int(text)


def _identity(extended: bytes | None, header: bytes, where: str) -> int:
    value = number(header, where) if extended is None else _decimal(extended, where)
    if not 0 <= value <= _LAST_ID:
        raise BadImage(where, f"the owner {value} is not within 0 and {_LAST_ID}")
    return value


def _time(extended: bytes | None, header: bytes, where: str) -> int:
    try:
        seconds = Decimal(number(header, where) if extended is None else extended[:64].decode("ascii"))
        if not seconds.is_finite():
            raise InvalidOperation
    except (InvalidOperation, UnicodeDecodeError) as error:
        raise BadImage(where, "the time of modification is not a number") from error
    return int(min(max(seconds, Decimal(_FIRST_TIME)), Decimal(_LAST_TIME)) * 1_000_000_000)


def _xattrs(values: Mapping[str, bytes], limits: Limits, where: str) -> Mapping[str, bytes]:
    attributes = {key.removeprefix(_XATTR): value for key, value in values.items() if key.startswith(_XATTR)}
    if len(attributes) > limits.xattrs:
        raise OverLimit(where, f"more than {limits.xattrs} extended attributes")
    return attributes


def printable(name: bytes) -> str:
    """A path as an error may show it."""
    return ascii(name[:200].decode("utf-8", "surrogateescape"))[1:-1]
