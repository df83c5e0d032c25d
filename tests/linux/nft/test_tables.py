"""Whole nft tables: what was put can be read, is replaced at once, and is shown by the nft program."""

import subprocess
from ipaddress import ip_network

import pytest

from podwire.linux import errors
from podwire.linux.nft import expressions as nft
from podwire.linux.nft.tables import FORWARD, INPUT, OUTPUT, Chain, KernelTables, Table, same

LET = nft.verdict("accept")
DROP = nft.verdict("drop")


def table(*rules, name="trial", kind="filter", hook=INPUT, priority=0):
    return Table(name, (Chain("first", rules, hook, priority, kind),))


@pytest.fixture
def tables(kernel, host):
    """Opened on demand: the test's thread must be the one that asks."""
    opened = []

    def open_():
        _, path = host("tables")
        opened.append(KernelTables(path))
        return opened[-1], path

    yield open_
    for item in opened:
        item.close()


RULES = {
    "tcp dport 80 accept": (
        nft.meta("l4proto"), nft.equals(b"\6"), nft.transport(2, 2), nft.equals(b"\0P"), LET,
    ),
    "meta skuid != 1000 drop": (nft.meta("skuid"), nft.differs((1000).to_bytes(4, "little")), DROP),
    "ip saddr 10.0.0.0/8 accept": (*nft.within("source", ip_network("10.0.0.0/8")), LET),
    "ip daddr 10.1.2.3 accept": (*nft.within("destination", ip_network("10.1.2.3")), LET),
    "ip6 saddr fd00::/13 accept": (*nft.within("source", ip_network("fd00::/13")), LET),
    "ip6 daddr fd00::1 drop": (*nft.within("destination", ip_network("fd00::1")), DROP),
    "meta nfproto ipv4 drop": (*nft.within("source", ip_network("0.0.0.0/0")), DROP),
    "fib daddr type local accept": (nft.destination_type(), nft.equals(nft.LOCAL.to_bytes(4, "little")), LET),
    "ct state new accept": (
        nft.conntrack("state"), nft.masked(nft.NEW.to_bytes(4, "little")), nft.differs(bytes(4)), LET,
    ),
    "meta l4proto tcp reject with tcp reset": (nft.meta("l4proto"), nft.equals(b"\6"), nft.reset()),
}  # fmt: skip


@pytest.mark.parametrize(("shown", "rule"), RULES.items(), ids=RULES)
def test_a_rule_is_read_as_it_was_written_and_means_what_nft_says(tables, shown, rule):
    opened, path = tables()
    put = table(nft.rule(*rule))
    opened.put(put)
    assert opened.get("trial") == put
    listed = subprocess.run(
        ["nsenter", f"--net={path}", "nft", "list", "table", "inet", "trial"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown in listed.stdout


@pytest.mark.parametrize(
    ("shown", "rule"),
    [
        ("redirect to :8080", (nft.meta("l4proto"), nft.equals(b"\6"), *nft.redirect(8080))),
        ("dnat ip to 10.0.0.1:80", (*nft.family(4), *nft.destined(4, bytes((10, 0, 0, 1)), 80))),
        ("dnat ip6 to [fd00::1]:80", (*nft.family(6), *nft.destined(6, ip_network("fd00::1")[0].packed, 80))),
    ],
    ids=["redirect", "IPv4", "IPv6"],
)
def test_destinations_are_changed_in_chains_of_nat(tables, shown, rule):
    opened, path = tables()
    put = table(nft.rule(*rule), kind="nat", hook=OUTPUT, priority=-100)
    opened.put(put)
    assert opened.get("trial") == put
    listed = subprocess.run(
        ["nsenter", f"--net={path}", "nft", "list", "table", "inet", "trial"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown in listed.stdout


def test_a_table_takes_the_place_of_another(tables):
    opened, _ = tables()
    opened.put(table(nft.rule(LET)))
    later = table(nft.rule(DROP), nft.rule(LET), hook=FORWARD)
    opened.put(later, instead=True)
    assert opened.get("trial") == later


def test_other_tables_are_left_alone(tables):
    opened, _ = tables()
    other = table(nft.rule(LET), name="other")
    opened.put(other)
    opened.put(table(nft.rule(DROP)))
    assert opened.delete("trial")
    assert not opened.delete("trial")
    assert (opened.get("trial"), opened.get("other")) == (None, other)


def test_all_or_nothing(tables):
    opened, _ = tables()
    first = table(nft.rule(LET))
    opened.put(first)
    with pytest.raises(errors.LinuxError, match="put nft table trial"):
        opened.put(Table("trial", (Chain("good", (), INPUT), Chain("bad", (), INPUT, 0, "nonsense"))), instead=True)
    assert opened.get("trial") == first


@pytest.mark.parametrize(
    "other",
    [
        table(nft.rule(DROP)),
        table(nft.rule(LET), nft.rule(LET)),
        table(nft.rule(LET), hook=OUTPUT),
        table(nft.rule(LET), priority=5),
        Table("trial"),
    ],
    ids=["a rule", "one more", "hook", "priority", "no chain"],
)
def test_tables_differ_by(other):
    assert same(table(nft.rule(LET)), table(nft.rule(LET)))
    assert not same(table(nft.rule(LET)), other)


def test_additional_attributes_of_an_expression_are_ignored():
    result = nft.rule(nft._expression("cmp", nft._u32(1, 1), nft._u32(2, 0)))
    more = nft.rule(nft._expression("cmp", nft._u32(1, 1), nft._u32(9, 9), nft._u32(2, 0)))
    assert nft.same(result, more)
    assert not nft.same(more, result)
