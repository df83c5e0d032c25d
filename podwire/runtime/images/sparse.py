"""Sparse files in a tar: where in the file its stored bytes belong. GNU tar has four ways to say it."""

from collections.abc import Iterable, Mapping, Sequence

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.streams import Pieces

Piece = tuple[int, int]
"""Offset in the file, length."""
BLOCK = 512
_OLD_MAP, _OLD_COUNT, _MORE_COUNT = 386, 4, 21
_LONGEST_NUMBER = 20


def checked(pieces: Iterable[Piece], size: int, stored: int, limits: Limits, field: str) -> tuple[Piece, ...]:
    """The pieces, when they lie in order within the file and are as long as what is stored. Raises BadImage."""
    kept = tuple(pieces)
    if len(kept) > limits.pieces:
        raise OverLimit(field, f"a sparse file of more than {limits.pieces} pieces")
    end = total = 0
    for offset, length in kept:
        if offset < end or length < 0 or offset + length > size:
            raise BadImage(field, "the pieces of a sparse file overlap or do not lie in it")
        end, total = offset + length, total + length
    if total != stored:
        raise BadImage(field, "a sparse file stores other bytes than its pieces have")
    return kept


def from_old_header(block: bytes, stream: Pieces, limits: Limits, field: str) -> list[Piece]:
    """The map in a GNU header of type S, and in the blocks that follow it."""
    pieces = list(_structs(block[_OLD_MAP:], _OLD_COUNT, field))
    more = block[482]
    while more:
        block = stream.exactly(BLOCK)
        pieces += _structs(block, _MORE_COUNT, field)
        more = block[504]
        if len(pieces) > limits.pieces:
            raise OverLimit(field, f"a sparse file of more than {limits.pieces} pieces")
    return pieces


def _structs(block: bytes, count: int, field: str) -> Iterable[Piece]:
    for at in range(0, 24 * count, 24):
        offset, length = block[at : at + 12], block[at + 12 : at + 24]
        if not offset[0]:
            return
        yield number(offset, field), number(length, field)


def from_pax(records: Sequence[tuple[str, bytes]], field: str) -> list[Piece] | None:
    """The map in the records of a pax header, formats 0.0 and 0.1; None when they have none."""
    values = dict(records)
    if "GNU.sparse.map" in values:
        numbers = [_decimal(number, field) for number in values["GNU.sparse.map"].split(b",") if number]
    elif "GNU.sparse.numblocks" in values:
        numbers = [
            _decimal(value, field) for key, value in records if key in ("GNU.sparse.offset", "GNU.sparse.numbytes")
        ]
    else:
        return None
    return _pairs(numbers, field)


def from_data(stream: Pieces, stored: int, limits: Limits, field: str) -> tuple[list[Piece], int]:
    """Reads the map before the data (format 1.0). Returns it with the number of bytes that it took."""
    blocks = [stream.exactly(BLOCK)]
    lines = blocks[0].split(b"\n")
    count = _decimal(lines[0], field)
    if count > limits.pieces:
        raise OverLimit(field, f"a sparse file of more than {limits.pieces} pieces")
    while len(lines) - 1 < 1 + 2 * count:
        if len(blocks) * BLOCK >= stored:
            raise BadImage(field, "the map of a sparse file ends early")
        blocks.append(stream.exactly(BLOCK))
        lines[-1:] = (lines[-1] + blocks[-1]).split(b"\n")
    return _pairs([_decimal(line, field) for line in lines[1 : 1 + 2 * count]], field), len(blocks) * BLOCK


def real_size(values: Mapping[str, bytes], field: str) -> int:
    return _decimal(values.get("GNU.sparse.realsize", values.get("GNU.sparse.size", b"")), field)


def _pairs(numbers: Sequence[int], field: str) -> list[Piece]:
    if len(numbers) % 2:
        raise BadImage(field, "the map of a sparse file has an offset without a length")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _decimal(text: bytes, field: str) -> int:
    if not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise BadImage(field, f"{text[:40]!r} is not a number")
    return int(text)


def number(text: bytes, field: str) -> int:
    """A number of a tar header: octal digits, or binary when the first bit is set."""
    if text[:1] and text[0] & 0x80:
        value = int.from_bytes(text, "big", signed=False) & ((1 << (8 * len(text) - 1)) - 1)
        return value - (1 << (8 * len(text) - 1)) if text[0] & 0x40 else value
    digits = text.partition(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise BadImage(field, f"{digits[:40]!r} is not an octal number")
    return int(digits, 8) if digits else 0
