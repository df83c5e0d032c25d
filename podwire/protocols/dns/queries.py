"""A query, read from untrusted bytes: exactly one question, at most one OPT, nothing else."""

from dataclasses import dataclass
from struct import Struct

from podwire.protocols.dns.codes import DO, FORMERR, NOTIMP, OPCODE, OPT, QR

Name = tuple[bytes, ...]
"""Labels in lower case; the root is empty."""

HEADER = Struct("!6H")
_TWO = Struct("!HH")
_OPT = Struct("!BHHIH")
LONGEST_NAME, LONGEST_LABEL = 255, 63
SMALLEST_UDP = 512


class Malformed(Exception):
    """The packet is not a query that can be answered; `rcode` is the answer, None for no answer at all."""

    def __init__(self, reason: str, rcode: int | None = FORMERR) -> None:
        super().__init__(reason)
        self.rcode = rcode


@dataclass(frozen=True, slots=True)
class Edns:
    size: int
    """Bytes of the largest UDP answer that the client can take."""
    version: int
    dnssec_ok: bool
    bare: bool
    """Whether it has no options, so that equal queries have equal bytes."""


@dataclass(frozen=True, slots=True)
class Query:
    id: int
    flags: int
    name: Name
    type: int
    class_: int
    end: int
    """Offset of the first byte after the question."""
    edns: Edns | None


def read_query(data: bytes) -> Query:
    """Raises Malformed. Responses are never answered: two servers would answer each other for ever."""
    if len(data) < HEADER.size:
        raise Malformed("shorter than a header", None)
    id_, flags, questions, answers, authorities, additionals = HEADER.unpack_from(data)
    if flags & QR:
        raise Malformed("a response", None)
    if flags & OPCODE:
        raise Malformed("not a standard query", NOTIMP)
    if questions != 1 or answers or authorities or additionals > 2:
        raise Malformed("not exactly one question")
    name, offset = read_plain_name(data, HEADER.size)
    if len(data) < offset + 4:
        raise Malformed("the question is cut off")
    type_, class_ = _TWO.unpack_from(data, offset)
    end = offset + 4
    return Query(id_, flags, name, type_, class_, end, _read_edns(data, end, additionals))


def read_plain_name(data: bytes, offset: int) -> tuple[Name, int]:
    """Reads a name without compression pointers, and the offset after it. Raises Malformed."""
    labels: list[bytes] = []
    start = offset
    while True:
        if offset >= len(data):
            raise Malformed("a name is cut off")
        length = data[offset]
        offset += 1
        if length == 0:
            return tuple(labels), offset
        if length > LONGEST_LABEL:
            raise Malformed("a label is longer than 63 bytes, or a pointer")
        if offset + length > len(data):
            raise Malformed("a name is cut off")
        labels.append(data[offset : offset + length].lower())
        offset += length
        if offset - start >= LONGEST_NAME:
            raise Malformed("a name is longer than 255 bytes")


def _read_edns(data: bytes, offset: int, additionals: int) -> Edns | None:
    """Reads the OPT record; other records in the additional section (TSIG) are refused."""
    edns = None
    for _ in range(additionals):
        if len(data) < offset + _OPT.size:
            raise Malformed("the additional section is cut off")
        root, type_, size, ttl, length = _OPT.unpack_from(data, offset)
        offset += _OPT.size
        if root or type_ != OPT or edns is not None:
            raise Malformed("not one OPT record of the root")
        if len(data) < offset + length:
            raise Malformed("EDNS options are cut off")
        edns = Edns(max(size, SMALLEST_UDP), ttl >> 16 & 0xFF, bool(ttl & DO), length == 0)
        offset += length
    if offset != len(data):
        raise Malformed("bytes after the message")
    return edns


def name_of(text: str) -> Name:
    """Returns the labels of a name such as `web.shop.svc.cluster.local`; a final dot is optional. Raises ValueError."""
    labels = tuple(text.rstrip(".").lower().encode("ascii", "strict").split(b".")) if text.strip(".") else ()
    if any(not 0 < len(label) <= LONGEST_LABEL for label in labels) or sum(map(len, labels)) + len(labels) > 254:
        raise ValueError(f"{text!r} is not a domain name")
    return labels


def text_of(name: Name) -> str:
    """Returns a name for logs and metrics, with a final dot; bytes that are not printable are escaped."""
    text = ".".join(label.decode("ascii", "backslashreplace") for label in name)
    return "".join(char if char.isprintable() else f"\\{ord(char):03d}" for char in text) + "."
