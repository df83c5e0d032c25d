"""Messages of other servers, as they are relayed and cached: checked, without their OPT, with TTLs that count down."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from podwire.protocols.dns.answers import opt_record, truncated
from podwire.protocols.dns.codes import AD, CD, NOERROR, NXDOMAIN, OPT, QR, RA, RD, SOA
from podwire.protocols.dns.queries import HEADER, Query

_ROW = struct.Struct("!HHIH")
_AUTHORITY, _ADDITIONAL = 1, 2
_LONGEST_TTL = 0x7FFFFFFF
_SHORTEST_SOA = 22


class Unusable(Exception):
    """The message of another server cannot be relayed."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """Another server's answer: the records after its question, and where their TTLs are."""

    flags: int
    rcode: int
    counts: tuple[int, int, int]
    records: bytes
    ttls: tuple[tuple[int, int], ...]
    """Offsets in `records`, and the TTLs found there."""
    lifetime: int
    """Seconds for which it may be cached."""
    negative: bool

    def aged(self, seconds: int) -> bytes:
        """Returns the records after so many seconds."""
        if not seconds:
            return self.records
        records = bytearray(self.records)
        for offset, ttl in self.ttls:
            struct.pack_into("!I", records, offset, max(ttl - seconds, 0))
        return bytes(records)


def matches(sent: bytes, data: bytes) -> bool:
    """Whether a packet answers a query of ours: its id and its question, byte for byte (so also in case, RFC 5452)."""
    if len(data) < HEADER.size or data[:2] != sent[:2] or not data[2] & 0x80 or data[4:6] != b"\0\1":
        return False
    end = sent.index(0, HEADER.size) + 5
    return data[HEADER.size : end] == sent[HEADER.size : end]


def is_truncated(data: bytes) -> bool:
    return bool(data[2] & 0x02)


def rcode_of(data: bytes) -> int:
    return data[3] & 0x0F


def read_relayed(data: bytes, end: int, *, longest: int, longest_negative: int, shortest: int = 5) -> Relayed:
    """Reads an answer whose question ends at `end`. Raises Unusable."""
    _, flags, _, answers, authority, additional = HEADER.unpack_from(data)
    ttls, minimum, extended, last, opt = [], 0, 0, end, -1
    for section, start, (type_, given_ttl, length), following in _rows(data, end, (answers, authority, additional)):
        last, ttl = following, given_ttl & _LONGEST_TTL
        if opt >= 0 or (type_ == OPT and section != _ADDITIONAL):
            raise Unusable("OPT is not the last record")
        if type_ == OPT:
            opt, extended = start, given_ttl >> 24
            continue
        ttls.append((last - length - 6 - end, ttl))
        if type_ == SOA and section == _AUTHORITY and length >= _SHORTEST_SOA:
            minimum = min(ttl, struct.unpack_from("!I", data, last - 4)[0])
    rcode = flags & 0xF | extended << 4
    negative = rcode == NXDOMAIN or (rcode == NOERROR and not answers)
    if negative:
        lifetime = max(min(minimum, longest_negative), shortest) if minimum else 0
    else:
        lifetime = 0 if rcode else min(max(min(ttl for _, ttl in ttls), shortest), longest)
    records = data[end : opt if opt >= 0 else last]
    counts = answers, authority, additional - (opt >= 0)
    return Relayed(flags, rcode, counts, records, tuple(ttls), lifetime, negative)


def _rows(
    data: bytes, offset: int, counts: tuple[int, int, int]
) -> Iterator[tuple[int, int, tuple[int, int, int], int]]:
    """Yields the section, the start, the type, TTL and length, and the end of each record. Raises Unusable."""
    for section, count in enumerate(counts):
        for _ in range(count):
            start, offset = offset, _skip_name(data, offset)
            if offset + _ROW.size > len(data):
                raise Unusable("a record is cut off")
            type_, _, ttl, length = _ROW.unpack_from(data, offset)
            offset += _ROW.size + length
            if offset > len(data):
                raise Unusable("a record is cut off")
            yield section, start, (type_, ttl, length), offset


def relay(query: Query, data: bytes, answer: Relayed, age: int, limit: int) -> bytes:
    """Returns the answer for one client, whose query is `data`."""
    rest = b"" if query.edns is None else opt_record(answer.rcode, dnssec_ok=query.edns.dnssec_ok)
    records = answer.aged(age)
    if query.end + len(records) + len(rest) > limit:
        return truncated(query, data, answer.rcode & 0xF)
    answers, authority, additional = answer.counts
    word = QR | RA | (answer.flags & AD) | query.flags & (RD | CD) | answer.rcode & 0xF
    head = HEADER.pack(query.id, word, 1, answers, authority, additional + (1 if rest else 0))
    return head + data[HEADER.size : query.end] + records + rest


def ttl_offsets(message: bytes, end: int) -> tuple[tuple[int, int], ...]:
    """Returns the offsets of all TTLs in a message that this program built, and the TTLs."""
    _, _, _, answers, authority, additional = HEADER.unpack_from(message)
    rows = _rows(message, end, (answers, authority, additional))
    return tuple((last - length - 6, ttl) for _, _, (type_, ttl, length), last in rows if type_ != OPT)


def _skip_name(data: bytes, offset: int) -> int:
    """Returns the offset after a name; pointers are not followed, so no name can make this loop."""
    while True:
        if offset >= len(data):
            raise Unusable("a name is cut off")
        length = data[offset]
        if length >= 0xC0:
            return offset + 2
        if length > 63:
            raise Unusable("a label of an unknown kind")
        offset += 1 + length
        if not length:
            return offset
