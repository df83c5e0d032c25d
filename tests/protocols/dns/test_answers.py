"""Answers to bytes, and answers of other servers that are relayed."""

import struct

import dnslib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.dns.answers import Record, build, empty, question, records_of, refusal
from podwire.protocols.dns.codes import AAAA, BADVERS, CNAME, HINFO, NOERROR, NXDOMAIN, SOA, SRV, TXT, A
from podwire.protocols.dns.queries import read_query
from podwire.protocols.dns.relay import Unusable, matches, read_relayed, relay, ttl_offsets

WEB = (b"web", b"shop")


def asked(name="WeB.shop", type_="A", edns=None, do=False):
    query = dnslib.DNSRecord(
        dnslib.DNSHeader(id=0x1234, rd=1), q=dnslib.DNSQuestion(name, getattr(dnslib.QTYPE, type_))
    )
    if edns is not None:
        query.add_ar(dnslib.EDNS0(udp_len=edns, flags="do" if do else ""))
    data = bytes(query.pack())
    return read_query(data), data


def test_an_answer_has_the_bytes_that_the_standard_prescribes():
    query, data = asked()
    assert build(query, data, NOERROR, [Record(WEB, A, 30, "10.0.0.1")]).hex(" ") == (
        "12 34 85 80 00 01 00 01 00 00 00 00 "  # id, QR AA RD RA, counts
        "03 57 65 42 04 73 68 6f 70 00 00 01 00 01 "  # WeB.shop, as it was asked
        "c0 0c 00 01 00 01 00 00 00 1e 00 04 0a 00 00 01"  # a pointer to it, A, IN, 30 s, the address
    )


def test_a_negative_answer_has_the_start_of_authority_and_edns():
    query, data = asked(edns=4096, do=True)
    soa = Record((b"shop",), SOA, 5, ((b"ns", b"shop"), (b"mail", b"shop"), 7, 1, 2, 3, 5))
    parsed = dnslib.DNSRecord.parse(build(query, data, NXDOMAIN, (), [soa]))
    assert (parsed.header.rcode, parsed.auth[0].rtype, parsed.auth[0].rdata.times) == (3, SOA, (7, 1, 2, 3, 5))
    (opt,) = parsed.ar
    assert (opt.edns_len, opt.edns_do, opt.edns_ver) == (1232, 1, 0)


def test_all_kinds_of_records_are_read_back():
    query, data = asked(type_="ANY", edns=1232)
    records = [
        Record(WEB, AAAA, 1, "fd00::1"),
        Record(WEB, CNAME, 2, (b"a", b"example")),
        Record(WEB, SRV, 3, (0, 50, 80, (b"b", b"example"))),
        Record(WEB, TXT, 4, "1.1.0"),
        Record(WEB, HINFO, 5, (b"RFC8482", b"")),
    ]
    rows = dnslib.DNSRecord.parse(build(query, data, NOERROR, records, limit=1232)).rr
    assert [str(row.rdata) for row in rows][:4] == ["fd00::1", "a.example.", "0 50 80 b.example.", '"1.1.0"']
    assert [row.ttl for row in rows] == [1, 2, 3, 4, 5]


def test_what_does_not_fit_loses_additional_records_and_then_all():
    query, data = asked()
    answers = [Record(WEB, A, 30, f"10.0.0.{n}") for n in range(20)]
    more = [Record((b"x%d" % n,), A, 30, "10.0.0.1") for n in range(20)]
    without = dnslib.DNSRecord.parse(build(query, data, NOERROR, answers, (), more))
    assert (len(without.rr), len(without.ar), without.header.tc) == (20, 0, 0)
    cut = build(query, data, NOERROR, answers * 2)
    assert (len(cut), dnslib.DNSRecord.parse(cut).header.tc) == (len(data), 1)


def test_an_unknown_version_of_edns_is_answered_by_the_extended_code():
    query, data = asked(edns=1232)
    parsed = dnslib.DNSRecord.parse(empty(query, data, BADVERS))
    assert (parsed.header.rcode, parsed.ar[0].edns_rcode) == (0, 1)


def test_a_refusal_is_a_bare_header():
    assert refusal(b"\x12\x34\x29\0" + b"x" * 500, 4).hex() == "1234a904" + "00" * 8


def upstream(*zone, rcode=0, question="web.shop A", auth=(), opt=True, ttl=100):
    name, type_ = question.split()
    message = dnslib.DNSRecord(
        dnslib.DNSHeader(id=7, qr=1, ra=1, rcode=rcode), q=dnslib.DNSQuestion(name, getattr(dnslib.QTYPE, type_))
    )
    for line in zone:
        message.add_answer(*dnslib.RR.fromZone(line, ttl=ttl))
    for line in auth:
        message.add_auth(*dnslib.RR.fromZone(line))
    if opt:
        message.add_ar(dnslib.EDNS0(udp_len=4096))
    return bytes(message.pack())


LONGEST = {"longest": 30, "longest_negative": 20}
END = 26


def test_a_relayed_answer_counts_down_and_has_no_foreign_opt():
    relayed = read_relayed(upstream("web.shop 100 A 192.0.2.1", "web.shop 10 A 192.0.2.2"), END, **LONGEST)
    assert (relayed.lifetime, relayed.negative, relayed.counts) == (10, False, (2, 0, 0))
    query, data = asked()
    parsed = dnslib.DNSRecord.parse(relay(query, data, relayed, 4, 512))
    assert [(str(row.rname), row.ttl, str(row.rdata)) for row in parsed.rr] == [
        ("WeB.shop.", 96, "192.0.2.1"),
        ("WeB.shop.", 6, "192.0.2.2"),
    ]
    assert (parsed.header.id, parsed.header.aa, parsed.ar) == (0x1234, 0, [])
    query, data = asked(edns=1232)
    assert dnslib.DNSRecord.parse(relay(query, data, relayed, 0, 512)).ar[0].edns_len == 1232
    assert dnslib.DNSRecord.parse(relay(query, data, relayed, 0, 40)).header.tc == 1


@pytest.mark.parametrize(
    ("message", "lifetime", "negative"),
    [
        (upstream("web.shop 1 A 192.0.2.1"), 5, False),
        (upstream("web.shop 9000 A 192.0.2.1"), 30, False),
        (upstream(rcode=3, auth=["shop 12 SOA a b 1 2 3 4 9000"]), 12, True),
        (upstream(auth=["shop 9000 SOA a b 1 2 3 4 13"]), 13, True),
        (upstream(auth=["shop 9000 SOA a b 1 2 3 4 9000"]), 20, True),
        (upstream(rcode=3), 0, True),
        (upstream(rcode=2), 0, False),
    ],
)
def test_an_answer_is_cached_for_its_shortest_ttl_within_bounds(message, lifetime, negative):
    relayed = read_relayed(message, END, **LONGEST)
    assert (relayed.lifetime, relayed.negative) == (lifetime, negative)


def test_a_packet_answers_a_query_only_with_its_id_and_its_question():
    sent = question(7, WEB, A)
    assert matches(sent, upstream("web.shop A 192.0.2.1"))
    assert not matches(question(8, WEB, A), upstream())
    assert not matches(question(7, (b"wEb", b"shop"), A), upstream())
    assert not matches(question(7, WEB, AAAA), upstream())
    assert not matches(sent, sent)
    assert not matches(sent, b"\0\7")


@given(st.binary(max_size=300))
def test_any_bytes_after_the_question_are_an_answer_or_unusable(tail):
    head = struct.pack("!6H", 7, 0x8180, 1, *(struct.unpack("!3H", (tail + b"\0" * 6)[:6])))
    for data in (head + b"\3web\4shop\0\0\1\0\1" + tail, upstream("web.shop A 192.0.2.1")[: 26 + len(tail)]):
        try:
            relayed = read_relayed(data, END, **LONGEST)
        except Unusable:
            continue
        assert len(relayed.aged(5)) == len(relayed.records)


@given(st.binary(max_size=300))
def test_the_library_reads_any_answer_or_refuses_it(tail):
    try:
        records_of(struct.pack("!6H", 7, 0x8180, 1, 3, 0, 0) + b"\3web\4shop\0\0\1\0\1" + tail)
    except ValueError:
        return


def test_a_chain_of_pointers_does_not_exhaust_the_stack():
    chain = b"".join(struct.pack("!H", 0xC000 | max(12, 26 + 2 * n - 2)) for n in range(8000))
    with pytest.raises(ValueError):
        records_of(struct.pack("!6H", 7, 0x8180, 1, 3, 0, 0) + b"\3web\4shop\0\0\1\0\1" + chain)


def test_ttl_offsets_point_at_ttls():
    query, data = asked(edns=1232)
    message = build(query, data, NOERROR, [Record(WEB, A, 30, "10.0.0.1"), Record(WEB, A, 31, "10.0.0.2")])
    assert [struct.unpack_from("!I", message, offset)[0] for offset, _ in ttl_offsets(message, query.end)] == [30, 31]
