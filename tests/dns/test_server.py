"""Queries and their answers: the three paths, sizes, refusals, and limits."""

import asyncio
import struct
from ipaddress import ip_network

import dnslib
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podwire.dns import Limits, Server, Settings
from podwire.dns.config import Upstream, read_config
from podwire.dns.metrics import LIMITED
from podwire.dns.server import settled
from tests.dns.conftest import put, service, slice_

WEB = "web.shop.svc.cluster.local"
OTHER = "192.0.2.53"


def relay_of(*lines, rcode=0, tc=0, auth=()):
    """Another server, which answers each query with these records."""

    def answer(message):
        query = dnslib.DNSRecord.parse(message)
        reply = query.reply(aa=0)
        reply.header.rcode, reply.header.tc = rcode, tc
        for line in lines:
            reply.add_answer(*dnslib.RR.fromZone(line))
        for line in auth:
            reply.add_auth(*dnslib.RR.fromZone(line))
        return [bytes(reply.pack())]

    return answer


@pytest.fixture
def other(upstreams, forwarder):
    """The server that other names are forwarded to."""
    forwarder.configure([Upstream(OTHER)], {})
    return upstreams


def shown(reply):
    return [(str(row.rname), row.ttl, str(row.rdata)) for row in reply.rr]


async def test_an_answer_keeps_the_spelling_of_the_question_on_every_path(ask):
    for name in ("wEb.shop.svc.cluster.local", "WEB.SHOP.svc.cluster.local", "web.shop.svc.CLUSTER.local"):
        reply = await ask(name)
        assert str(reply.q.qname) == f"{name}."
        assert shown(reply) == [(f"{name}.", 30, "10.96.0.7")]


async def test_encoded_answers_are_forgotten_when_the_cluster_changes(ask, index, server):
    assert shown(await ask(WEB)) == shown(await ask(WEB)) == [(f"{WEB}.", 30, "10.96.0.7")]
    put(index, service(ips=("10.96.0.70",)))
    server.changed()
    assert shown(await ask(WEB)) == [(f"{WEB}.", 30, "10.96.0.70")]


def test_a_type_is_not_confused_with_its_lower_case(server):
    """Type 65 is the letter A: the key of encoded answers lowers the case of names only."""
    for number in (65, 97):
        data = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\3web\4shop\3svc\7cluster\5local\0" + struct.pack("!HH", number, 1)
        for _ in range(2):
            assert dnslib.DNSRecord.parse(server.udp(data, "10.1.0.50")).q.qtype == number


async def test_several_addresses_are_answered_in_several_orders(ask):
    orders = {tuple(str(row.rdata) for row in (await ask("db.shop.svc.cluster.local")).rr) for _ in range(60)}
    assert {frozenset(order) for order in orders} == {frozenset(("10.1.0.1", "10.1.0.2", "10.1.0.9"))}
    assert len(orders) > 1


async def test_a_missing_name_and_a_missing_type_have_the_start_of_authority(ask):
    for name, type_, rcode in (("no.shop.svc.cluster.local", "A", 3), (WEB, "AAAA", 0)):
        reply = await ask(name, type_)
        assert (reply.header.rcode, reply.rr, reply.header.aa) == (rcode, [], 1)
        assert (str(reply.auth[0].rname), reply.auth[0].rtype) == ("cluster.local.", dnslib.QTYPE.SOA)


async def test_a_large_answer_is_cut_for_udp_and_whole_over_tcp_or_with_edns(ask, index):
    put(index, slice_("db-9", [(f"10.2.0.{n}", f"pod-{n}", True) for n in range(60)]))
    name = "db.shop.svc.cluster.local"
    small = await ask(name)
    assert (small.header.tc, small.rr) == (1, [])
    assert len((await ask(name, edns=1232)).rr) == 63
    assert len((await ask(name, tcp=True)).rr) == 63
    put(index, slice_("db-10", [(f"10.3.0.{n}", "", True) for n in range(60)]))
    assert (await ask(name, edns=65535, client="10.1.0.51")).header.tc == 1


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"", None),
        (b"\x12\x34\x81\0" + b"\0" * 8, None),
        (b"\x12\x34\x01\0\0\2\0\0\0\0\0\0", "123481010000000000000000"),
        (b"\x12\x34\x21\0\0\1\0\0\0\0\0\0\0\0\1\0\1", "1234a1040000000000000000"),
        (b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", "123481010000000000000000"),
    ],
)
def test_malformed_packets_get_a_header_or_nothing(server, data, reply):
    found = server.udp(data, "10.1.0.50")
    assert (found if found is None else found.hex()) == reply


@pytest.mark.parametrize(
    ("type_", "class_", "rcode"), [(252, 1, 5), (251, 1, 5), (1, 3, 5), (1, 255, 5), (250, 1, 4), (0, 1, 4)]
)
def test_transfers_other_classes_and_meta_types_are_not_answered(server, type_, class_, rcode):
    data = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\7cluster\5local\0" + struct.pack("!HH", type_, class_)
    reply = server.udp(data, "10.1.0.50")
    assert (reply[3] & 0xF, len(reply)) == (rcode, len(data))


async def test_any_is_answered_with_one_small_record(ask):
    reply = await ask(WEB, "ANY")
    assert [row.rtype for row in reply.rr] == [dnslib.QTYPE.HINFO]


def test_an_unknown_version_of_edns_is_refused(server):
    data = b"\x12\x34\x01\0\0\1\0\0\0\0\0\1\5local\0\0\1\0\1" + b"\0\0\x29\x04\xd0\0\1\0\0\0\0"
    parsed = dnslib.DNSRecord.parse(server.udp(data, "10.1.0.50"))
    assert (parsed.header.rcode, parsed.ar[0].edns_rcode, parsed.ar[0].edns_ver) == (0, 1, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.binary(max_size=300))
def test_no_packet_makes_the_server_fail_or_answer_with_more_bytes(server, data):
    reply = server.udp(data, "10.1.0.50")
    if isinstance(reply, bytes):
        assert len(reply) <= max(len(data), 12) + 120
    elif reply is not None:
        reply.close()


async def test_other_names_are_forwarded_and_cached_until_they_expire(ask, other, clock):
    other.answers[OTHER] = relay_of("www.example.com 20 A 203.0.113.9")
    assert shown(await ask("www.Example.com")) == [("www.Example.com.", 20, "203.0.113.9")]
    clock.now += 7
    for _ in range(3):
        assert shown(await ask("WWW.example.com")) == [("WWW.example.com.", 13, "203.0.113.9")]
    assert len(other.asked) == 1
    clock.now += 5
    assert shown(await ask("WWW.example.com"))[0][1] == 8
    clock.now += 8
    await ask("www.example.com")
    assert len(other.asked) == 2


async def test_a_name_that_does_not_exist_is_cached_too(ask, other, clock):
    other.answers[OTHER] = relay_of(rcode=3, auth=["example.com 9 SOA a b 1 2 3 4 9"])
    for _ in range(3):
        assert (await ask("no.example.com")).header.rcode == 3
    assert len(other.asked) == 1
    clock.now += 10
    await ask("no.example.com")
    assert len(other.asked) == 2


async def test_equal_queries_wait_for_one_answer(ask, other):
    other.answers[OTHER] = relay_of("www.example.com 20 A 203.0.113.9")
    replies = await asyncio.gather(*(ask("www.example.com") for _ in range(10)))
    assert {str(reply.rr[0].rdata) for reply in replies} == {"203.0.113.9"}
    assert len(other.asked) == 1


async def test_a_query_without_recursion_is_not_forwarded(ask, other):
    assert (await ask("www.example.com", rd=0)).header.rcode == 5
    assert other.asked == []


async def test_without_a_server_that_answers_the_answer_is_a_failure(ask, other):
    assert (await ask("www.example.com")).header.rcode == 2
    assert [host for _, host, _, _ in other.asked] == [OTHER, OTHER]


async def test_an_alias_is_followed_inside_and_outside(ask, other):
    other.answers[OTHER] = relay_of("www.example.com 20 CNAME cdn.example.net", "cdn.example.net 20 A 203.0.113.9")
    reply = await ask("out.shop.svc.cluster.local")
    assert [str(row.rdata) for row in reply.rr] == ["www.example.com.", "cdn.example.net.", "203.0.113.9"]
    near = await ask("near.shop.svc.cluster.local")
    assert [str(row.rdata) for row in near.rr] == ["web.shop.svc.cluster.local.", "10.96.0.7"]
    alias = await ask("out.shop.svc.cluster.local", "CNAME")
    assert [str(row.rdata) for row in alias.rr] == ["www.example.com."]
    assert (await ask("ring.shop.svc.cluster.local")).header.rcode == 2


async def test_an_alias_is_answered_although_its_target_cannot_be_resolved(ask, other):
    reply = await ask("out.shop.svc.cluster.local")
    assert (reply.header.rcode, [str(row.rdata) for row in reply.rr]) == (2, ["www.example.com."])


async def test_hosts_are_answered_before_all_others(ask, server, other):
    config, errors = read_config({"hosts": "192.0.2.9 printer.lan # ours\nfd00::9 printer.lan\n"}, Limits())
    server.configure(config)
    assert errors == []
    assert shown(await ask("Printer.lan")) == [("Printer.lan.", 3600, "192.0.2.9")]
    assert shown(await ask("printer.lan", "AAAA"))[0][2] == "fd00::9"
    assert ((await ask("printer.lan", "TXT")).rr, other.asked) == ([], [])
    assert shown(await ask("9.2.0.192.in-addr.arpa", "PTR"))[0][2] == "printer.lan."


def test_only_clients_of_the_cluster_are_answered(zone, forwarder, metrics, clock):
    server = Server(zone, forwarder, metrics, clock, Settings(clients=(ip_network("10.1.0.0/16"),)))
    data = bytes(dnslib.DNSRecord.question(WEB).pack())
    assert server.udp(data, "10.1.0.3")[3] & 0xF == 0
    for answer in (server.udp, server.tcp):
        for client in ("192.0.2.1", "fd00::1"):
            assert (answer(data, client)[3] & 0xF, len(answer(data, client))) == (5, len(data))


def test_a_client_that_received_many_bytes_gets_truncated_answers(zone, forwarder, metrics, clock):
    server = Server(zone, forwarder, metrics, clock, limits=Limits(bytes_per_second=500))
    data = bytes(dnslib.DNSRecord.question(WEB).pack())
    sizes = [len(server.udp(data, "10.1.0.3")) for _ in range(40)]
    assert sizes[0] > len(data)
    assert (sizes[-1], server.udp(data, "10.1.0.3")[2] & 2, metrics.counts[LIMITED] > 0) == (len(data), 2, True)
    assert len(server.udp(data, "10.1.0.4")) > len(data)
    clock.now += 1.1
    assert len(server.udp(data, "10.1.0.3")) > len(data)


async def test_bytes_of_answers_from_other_servers_count_too(zone, forwarder, other, metrics, clock):
    server = Server(zone, forwarder, metrics, clock, limits=Limits(bytes_per_second=200))
    for number in range(6):
        other.answers[OTHER] = relay_of(f"www{number}.example.com 20 A 203.0.113.9")
        data = bytes(dnslib.DNSRecord.question(f"www{number}.example.com").pack())
        reply = await settled(server.udp(data, "10.1.0.3"))
    assert (len(reply), reply[2] & 2, metrics.counts[LIMITED] > 0) == (len(data), 2, True)
    clock.now += 1.1
    assert not (await settled(server.udp(data, "10.1.0.3")))[2] & 2


async def test_metrics_have_the_names_of_coredns(ask, other, metrics):
    other.answers[OTHER] = relay_of("www.example.com 20 A 203.0.113.9")
    for _ in range(3):
        await ask(WEB)
        await ask("www.example.com")
    await ask("no.shop.svc.cluster.local", tcp=True)
    text = metrics.text()
    for line in (
        'coredns_dns_requests_total{server="dns://:53",zone="cluster",proto="udp",type="A"} 3',
        'coredns_dns_responses_total{server="dns://:53",zone="cluster",proto="tcp",rcode="NXDOMAIN"} 1',
        'coredns_dns_responses_total{server="dns://:53",zone=".",proto="udp",rcode="NOERROR"} 3',
        'coredns_dns_request_duration_seconds_count{zone="cluster"} 4',
        'coredns_cache_hits_total{server="dns://:53",type="success"} 1',
        "coredns_cache_misses_total 1",
        "coredns_cache_entries 1",
        'coredns_proxy_request_duration_seconds_count{to="192.0.2.53:53"} 1',
    ):
        assert line in text.splitlines()


async def test_settled_gives_an_answer_that_is_ready():
    assert await settled(b"x") == b"x"
