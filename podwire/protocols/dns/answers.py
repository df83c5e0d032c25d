"""Answers to bytes, within the size that the client can take."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import dnslib
from dnslib.label import DNSLabelError

from podwire.protocols.dns.codes import (
    AA,
    AAAA,
    CD,
    CNAME,
    DO,
    HINFO,
    IN,
    NS,
    OPT,
    PTR,
    QR,
    RA,
    RD,
    SOA,
    SRV,
    TC,
    TXT,
    A,
)
from podwire.protocols.dns.queries import HEADER, SMALLEST_UDP, Name, Query

OUR_UDP = 1232
"""Bytes of the largest UDP message that we send or take: it fits into every network's frame (DNS flag day 2020)."""
LARGEST_TCP = 65535
_OPT_RECORD = struct.Struct("!BHHIH")


@dataclass(frozen=True, slots=True)
class Record:
    """A resource record. `data` is an address, a name, a text, the four fields of SRV or the seven of SOA."""

    name: Name
    type: int
    ttl: int
    data: Any


def limit_of(query: Query, *, tcp: bool) -> int:
    if tcp:
        return LARGEST_TCP
    return min(query.edns.size, OUR_UDP) if query.edns else SMALLEST_UDP


def build(
    query: Query,
    data: bytes,
    rcode: int,
    answers: Sequence[Record] = (),
    authority: Sequence[Record] = (),
    additional: Sequence[Record] = (),
    *,
    authoritative: bool = True,
    limit: int = SMALLEST_UDP,
) -> bytes:
    """Returns the message; `data` is the query, whose question is echoed as it is, in its own case.

    An answer that does not fit loses the additional records first; then the client must use TCP (TC bit).
    """
    rest = b"" if query.edns is None else opt_record(rcode, dnssec_ok=query.edns.dnssec_ok)
    for extra in (additional, ()):
        message = _packed(query, answers, authority, extra)
        if len(message) + len(rest) <= limit:
            counts = len(answers), len(authority), len(extra) + (1 if rest else 0)
            head = _head(query, rcode, AA if authoritative else 0, *counts)
            return head + data[HEADER.size : query.end] + message[query.end :] + rest
        if not extra:
            break
    return truncated(query, data, rcode, AA if authoritative else 0)


def truncated(query: Query, data: bytes, rcode: int, flags: int = 0) -> bytes:
    """An answer without records whose client is to ask again over TCP."""
    return empty(query, data, rcode, flags | TC)


def empty(query: Query, data: bytes, rcode: int, flags: int = 0) -> bytes:
    """An answer without records."""
    rest = b"" if query.edns is None else opt_record(rcode, dnssec_ok=query.edns.dnssec_ok)
    return _head(query, rcode, flags, 0, 0, 1 if rest else 0) + data[HEADER.size : query.end] + rest


def refusal(data: bytes, rcode: int) -> bytes:
    """The answer to a packet whose question could not be read: a bare header, never larger than the packet."""
    id_, flags = struct.unpack_from("!HH", data)
    return HEADER.pack(id_, QR | (flags & 0x7900) | rcode, 0, 0, 0, 0)


def opt_record(rcode: int = 0, *, dnssec_ok: bool = False, size: int = OUR_UDP) -> bytes:
    return _OPT_RECORD.pack(0, OPT, size, (rcode >> 4) << 24 | (DO if dnssec_ok else 0), 0)


def question(id_: int, name: Sequence[bytes], type_: int, class_: int = IN, *, dnssec_ok: bool = False) -> bytes:
    """Returns a query for another server, which is to recurse; the case of the labels is kept."""
    head = HEADER.pack(id_, RD, 1, 0, 0, 1)
    body = b"".join(bytes((len(label),)) + label for label in name) + b"\0" + struct.pack("!HH", type_, class_)
    return head + body + opt_record(dnssec_ok=dnssec_ok)


def records_of(message: bytes) -> list[Record]:
    """Returns the answer section of another server's message as opaque records. Raises ValueError."""
    try:
        parsed = dnslib.DNSRecord.parse(message)
    except (dnslib.DNSError, DNSLabelError, RecursionError, ValueError, struct.error) as error:
        raise ValueError(f"cannot read the answer: {error}") from error
    return [
        Record(tuple(label.lower() for label in row.rname.label), row.rtype, row.ttl, row.rdata)
        for row in parsed.rr
        if row.rclass == IN
    ]


def _head(query: Query, rcode: int, flags: int, answers: int, authority: int, additional: int) -> bytes:
    # RD and CD are the client's; RA is ours.
    word = QR | RA | flags | query.flags & (RD | CD) | rcode & 0xF
    return HEADER.pack(query.id, word, 1, answers, authority, additional)


def _packed(
    query: Query, answers: Iterable[Record], authority: Iterable[Record], additional: Iterable[Record]
) -> bytes:
    """Encodes question and records; names are compressed against the question, so they take on its case."""
    message = dnslib.DNSRecord(q=dnslib.DNSQuestion(_label(query.name), query.type, query.class_))
    message.rr = [_rr(record) for record in answers]
    message.auth = [_rr(record) for record in authority]
    message.ar = [_rr(record) for record in additional]
    return bytes(message.pack())


def _rr(record: Record) -> dnslib.RR:
    data = record.data
    if not isinstance(data, dnslib.RD):
        data = _DATA[record.type](data)
    return dnslib.RR(_label(record.name), record.type, IN, record.ttl, data)


def _label(name: Name) -> dnslib.DNSLabel:
    return dnslib.DNSLabel(list(name))


def _address(text: str) -> tuple[int, ...]:
    return tuple(ip_address(text).packed)


def _hinfo(fields: Sequence[bytes]) -> dnslib.RD:
    return dnslib.RD(b"".join(bytes((len(field),)) + field for field in fields))


_DATA: dict[int, Any] = {
    A: lru_cache(1024)(lambda text: dnslib.A(_address(text))),
    AAAA: lru_cache(1024)(lambda text: dnslib.AAAA(_address(text))),
    CNAME: lambda name: dnslib.CNAME(_label(name)),
    PTR: lambda name: dnslib.PTR(_label(name)),
    NS: lambda name: dnslib.NS(_label(name)),
    TXT: lambda text: dnslib.TXT([text]),
    SRV: lambda row: dnslib.SRV(row[0], row[1], row[2], _label(row[3])),
    SOA: lambda row: dnslib.SOA(_label(row[0]), _label(row[1]), tuple(row[2:])),
    HINFO: _hinfo,
}
