"""Other servers: their order, their failures, forged answers, loops, stub domains."""

import asyncio

import dnslib
import pytest

from podwire.dns.config import Upstream, read_config, resolv_conf_servers, upstream_of
from podwire.dns.forward import Forwarder, Unreachable
from podwire.dns.limits import Limits
from podwire.dns.metrics import LOOPS, REJECTED
from podwire.protocols.dns.queries import name_of
from tests.eventually import eventually_async

NAME = name_of("www.example.com")
KEY = (NAME, 1, False)
FIRST, SECOND = Upstream("192.0.2.1"), Upstream("192.0.2.2")


def good(message, *, change=lambda reply: None):
    reply = dnslib.DNSRecord.parse(message).reply(aa=0)
    reply.add_answer(*dnslib.RR.fromZone("www.example.com 20 A 203.0.113.9"))
    change(reply)
    return bytes(reply.pack())


def failing(message):
    reply = dnslib.DNSRecord.parse(message).reply()
    reply.header.rcode = 2
    return [bytes(reply.pack())]


def hosts(upstreams):
    return [host for _, host, _, _ in upstreams.asked]


async def test_the_second_server_is_asked_when_the_first_fails(forwarder, upstreams):
    forwarder.configure([FIRST, SECOND], {})
    upstreams.answers[SECOND.host] = lambda message: [good(message)]
    assert (await forwarder.ask(KEY)).answer.rcode == 0
    assert hosts(upstreams) == [FIRST.host, SECOND.host]


async def test_a_failure_of_the_first_server_is_not_the_answer_of_all(forwarder, upstreams):
    forwarder.configure([FIRST, SECOND], {})
    upstreams.answers |= {FIRST.host: failing, SECOND.host: lambda message: [good(message)]}
    assert (await forwarder.ask(KEY)).answer.counts == (1, 0, 0)
    upstreams.answers[SECOND.host] = failing
    assert (await forwarder.ask((name_of("a.example"), 1, False))).answer.rcode == 2


async def test_a_server_that_failed_twice_is_asked_last_for_a_while(forwarder, upstreams, clock):
    forwarder.configure([FIRST, SECOND], {})
    upstreams.answers[SECOND.host] = lambda message: [good(message)]
    for number in range(3):
        await forwarder.ask((name_of(f"a{number}.example"), 1, False))
    assert hosts(upstreams) == [FIRST.host, SECOND.host, FIRST.host, SECOND.host, SECOND.host]
    clock.now += 6
    upstreams.answers[FIRST.host] = lambda message: [good(message)]
    await forwarder.ask((name_of("b.example"), 1, False))
    assert hosts(upstreams)[-1] == FIRST.host
    assert forwarder.servers_for(NAME) == [FIRST, SECOND]


async def test_forged_answers_are_ignored(forwarder, upstreams):
    forwarder.configure([FIRST], {})

    def forged(message):
        other_id = bytes(((message[0] + 1) % 256,)) + message[1:]
        other_name = message.replace(b"example", b"exbmple")
        return [b"", b"\0", message, good(other_id), good(other_name), good(message)]

    upstreams.answers[FIRST.host] = forged
    assert (await forwarder.ask(KEY)).answer.counts == (1, 0, 0)


async def test_ids_are_random(forwarder, upstreams):
    forwarder.configure([FIRST], {})
    upstreams.answers[FIRST.host] = lambda message: [good(message)]
    for number in range(20):
        await forwarder.ask((name_of(f"a{number}.example"), 1, False))
    assert len({message[:2] for *_, message in upstreams.asked}) > 15


async def test_a_cut_answer_is_asked_for_again_over_tcp(forwarder, upstreams):
    forwarder.configure([FIRST], {})
    upstreams.answers[FIRST.host] = lambda message: [good(message, change=lambda reply: setattr(reply.header, "tc", 1))]
    upstreams.answers[f"tcp {FIRST.host}"] = good
    assert (await forwarder.ask(KEY)).answer.counts == (1, 0, 0)
    assert [protocol for protocol, *_ in upstreams.asked] == ["udp", "tcp"]


async def test_unusable_answers_are_failures(forwarder, upstreams):
    forwarder.configure([FIRST], {})
    upstreams.answers[FIRST.host] = lambda message: [good(message)[:-3]]
    with pytest.raises(Unreachable, match=r"192\.0\.2\.1:53: a record is cut off"):
        await forwarder.ask(KEY)


async def test_the_longest_stub_domain_decides(forwarder):
    stubs = {name_of("example.com"): (FIRST,), name_of("eu.example.com"): (SECOND,)}
    forwarder.configure([], stubs)
    assert forwarder.servers_for(name_of("a.eu.example.com")) == [SECOND]
    assert forwarder.servers_for(name_of("example.com")) == [FIRST]
    assert forwarder.servers_for(name_of("notexample.com")) == []
    with pytest.raises(Unreachable, match="no server is configured"):
        await forwarder.ask((name_of("example.org"), 1, False))


async def test_a_server_that_sends_queries_back_is_not_asked_any_more(forwarder, upstreams, metrics):
    forwarder.configure([FIRST, SECOND], {})
    running = asyncio.create_task(forwarder.run())
    await eventually_async(lambda: len(upstreams.asked) == 2)
    running.cancel()
    probe = dnslib.DNSRecord.parse(upstreams.asked[0][3])
    name = tuple(probe.q.qname.label)
    assert forwarder.note_probe(name)
    assert forwarder.servers_for(NAME) == [SECOND]
    assert metrics.counts[LOOPS] == 1
    assert not forwarder.note_probe(NAME)
    forwarder.configure([FIRST], {})
    assert forwarder.servers_for(NAME) == [FIRST]


async def test_queries_that_wait_are_bounded(upstreams, clock, metrics):
    forwarder = Forwarder(upstreams, clock, metrics, Limits(forwarded_queries=2))
    forwarder.configure([FIRST], {})
    names = [(name_of(f"a{number}.example"), 1, False) for number in range(3)]
    results = await asyncio.gather(*map(forwarder.ask, names), return_exceptions=True)
    assert "too many" in str(results[2])
    assert metrics.counts[REJECTED] == 1


async def test_the_cache_is_bounded(upstreams, clock, metrics):
    forwarder = Forwarder(upstreams, clock, metrics, Limits(cache_entries=3))
    forwarder.configure([FIRST], {})
    upstreams.answers[FIRST.host] = lambda message: [good(message)]
    keys = [(name_of(f"a{number}.example"), 1, False) for number in range(5)]
    for key in keys:
        await forwarder.ask(key)
    assert [forwarder.cached(key, clock.now) is not None for key in keys] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1:53"),
        ("192.0.2.1:5353", "192.0.2.1:5353"),
        ("2001:db8::1", "[2001:db8::1]:53"),
        ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
        ("ns.example", "'ns.example' is not the address of a DNS server"),
        ("192.0.2.1:99999", "'192.0.2.1:99999' does not end with a port"),
        ("192.0.2.1:x", "'192.0.2.1:x' does not end with a port"),
        ("", "'' is not the address of a DNS server"),
    ],
)
def test_an_upstream_is_an_address_and_a_port(text, expected):
    try:
        assert str(upstream_of(text)) == expected
    except ValueError as error:
        assert str(error) == expected  # noqa: PT017 - the same table has both


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"stubDomains": "{"}, "stubDomains: Input data was truncated"),
        ({"stubDomains": '{"a..b": ["192.0.2.1"]}'}, "stubDomains: 'a..b' is not a domain name"),
        ({"stubDomains": '{"a.b": []}'}, "stubDomains: 'a.b' has no server"),
        ({"stubDomains": '{"a.b": ["x"]}'}, "stubDomains: 'x' is not the address of a DNS server"),
        ({"upstreamNameservers": '"192.0.2.1"'}, "upstreamNameservers: Expected `array`, got `str`"),
        ({"hosts": "# a\n192.0.2.1"}, "hosts: line 2: no name"),
        ({"hosts": "x y"}, "hosts: line 1: 'x' does not appear to be an IPv4 or IPv6 address"),
        ({"Corefile": ".:53 {}"}, "Corefile: unknown key; known are stubDomains, upstreamNameservers and hosts"),
    ],
)
def test_a_bad_setting_is_named_and_the_others_count(data, error):
    config, errors = read_config({"upstreamNameservers": '["192.0.2.7"]', **data}, Limits())
    assert errors == [error]
    assert config.upstreams == (() if "upstreamNameservers" in data else (Upstream("192.0.2.7"),))


def test_settings_are_bounded():
    many = "{" + ",".join(f'"a{number}.b": ["192.0.2.1"]' for number in range(101)) + "}"
    servers = "[" + ",".join(f'"192.0.2.{number}"' for number in range(16)) + "]"
    hosts = "\n".join(f"192.0.2.1 a{number}.b" for number in range(10_001))
    _, errors = read_config({"stubDomains": many, "upstreamNameservers": servers, "hosts": hosts}, Limits())
    assert errors == [
        "stubDomains: more than 100 domains",
        "upstreamNameservers: more than 15 servers",
        "hosts: more than 10000 names",
    ]


def test_servers_of_a_resolv_conf():
    text = "# x\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver x\nsearch a\nnameserver 192.0.2.1\n"
    assert [str(server) for server in resolv_conf_servers(text)] == ["192.0.2.1:53", "[fe80::1%eth0]:53"]
