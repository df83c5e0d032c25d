"""nft tables with sets, maps and rules whose lookups feed lookups, on the kernel."""

import shutil
import socket
import subprocess
from contextlib import contextmanager

import pytest

from podwire.linux import errors
from podwire.linux.nft import expressions as do
from podwire.linux.nft.tables import ADDRESS4, INPUT, NUMBER, PORT, PROTOCOL, TWO_NUMBERS, Chain, Set, Table
from podwire.linux.nft.values import Change, Counter, Element
from podwire.linux.proc.namespaces import visit

TABLE = "verdicts"
R, ASIDE = 0, 12
SETS = [
    Set("who", (ADDRESS4,), TWO_NUMBERS),
    Set("may", (NUMBER, NUMBER, NUMBER, NUMBER, PORT)),
    Set("places", (ADDRESS4, PROTOCOL, PORT), ranges=True),
    Set("counts", (ADDRESS4, NUMBER), counted=True),
]
UDP = bytes((17, 0, 0, 0))


def number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def ip(last: int) -> bytes:
    return bytes((127, 0, 0, last))


def port(value: int) -> bytes:
    return value.to_bytes(2, "big") + b"\0\0"


def chain(name, rules, **hook) -> Chain:
    return Chain(name, tuple(do.rule(*rule) for rule in rules), **hook)


def table(last="drop") -> Table:
    """Datagrams to 127.0.0.9 come through by who sends them, or from where."""
    mine = [do.network(16, 4), do.equals(ip(9))]
    known = [
        do.value(bytes(16), R),
        do.network(12, 4, ASIDE),
        do.mapped("who", ASIDE, R + 1),
        do.transport(2, 2, R + 4),
    ]
    place = [do.network(12, 4, R), do.meta("l4proto", R + 1), do.transport(2, 2, R + 2)]
    count = [do.network(16, 4, R), do.value(number(7), R + 1), do.found("counts", R)]
    state = do.conntrack("state"), do.masked(number(do.ESTABLISHED)), do.differs(bytes(4))
    verdicts = [
        [*known, do.found("may", R), do.verdict("accept")],
        [*place, do.found("places", R), do.verdict("goto fine")],
        count,
        [do.counter(), do.verdict(last)],
    ]
    entry = [
        [*state, do.verdict("accept")],
        [*do.family(4), *mine, do.verdict("jump verdicts")],
    ]
    chains = [chain("verdicts", verdicts), chain("fine", []), chain("entry", entry, hook=INPUT, priority=5)]
    return Table(TABLE, chains, SETS)


@pytest.fixture
def opened(kernel, tmp_path):
    """On demand, because the test's thread must be the one that asks."""
    made = []

    def make():
        path = kernel.namespaces(tmp_path).create("one").path
        network = kernel.network(path)
        network.links.change("lo", up=True)
        network.close()
        made.append(kernel.elements(path, TABLE))
        return made[-1], path

    yield make
    for item in made:
        item.close()


@contextmanager
def listening(path, to):
    with visit(path):
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with end:
        end.bind(("127.0.0.9", to))
        end.setblocking(False)
        yield end


def comes(path, source, to) -> bool:
    """On the loopback a datagram is there, or not, when `sendto` returns."""
    with listening(path, to) as listener, visit(path), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((f"127.0.0.{source}", 0))
        sender.sendto(b"x", ("127.0.0.9", to))
        try:
            return listener.recv(8) == b"x"
        except BlockingIOError:
            return False


def test_result_of_one_map_is_part_of_the_next_key(kernel, opened):
    elements, path = opened()
    elements.tables().put(table())
    assert not comes(path, 2, 53)
    elements.change(
        Change("who", [Element(ip(2), number(70) + number(71)), Element(ip(3), number(70) + number(72))]),
        Change("may", [Element(bytes(4) + number(70) + number(71) + bytes(4) + port(53))]),
    )
    assert [comes(path, 2, 53), comes(path, 2, 54), comes(path, 3, 53), comes(path, 4, 53)] == [
        True,
        False,
        False,
        False,
    ]


def test_elements_of_ranges_cover_every_field(kernel, opened):
    elements, path = opened()
    elements.tables().put(table())
    box = Element(ip(20) + UDP + port(100), end=ip(29) + UDP + port(199))
    elements.add("places", box)
    assert elements.list("places") == [box]
    assert [comes(path, *item) for item in ((20, 100), (29, 199), (25, 150))] == [True] * 3
    assert [comes(path, *item) for item in ((19, 150), (30, 150), (25, 99), (25, 200))] == [False] * 4
    elements.delete("places", box)
    assert not comes(path, 25, 150)


def test_counters_of_elements_are_read(kernel, opened):
    elements, path = opened()
    elements.tables().put(table())
    assert elements.counted("counts") == {}
    elements.add("counts", Element(ip(9) + number(7)), Element(ip(9) + number(8)))
    for _ in range(3):
        assert not comes(path, 2, 53)
    assert elements.counted("counts") == {ip(9) + number(7): Counter(3, 3 * 29), ip(9) + number(8): Counter(0, 0)}


def test_new_rules_leave_the_elements(kernel, opened):
    elements, path = opened()
    tables = elements.tables()
    assert not tables.exists(TABLE)
    tables.put(table())
    elements.add("who", Element(ip(2), number(1) + number(2)))
    tables.put(table("accept"))
    assert comes(path, 2, 53)
    assert elements.list("who") == [Element(ip(2), number(1) + number(2))]


def test_sets_of_another_shape_are_refused_or_replaced(kernel, opened):
    elements, path = opened()
    tables = elements.tables()
    tables.put(table())
    elements.add("who", Element(ip(2), number(1) + number(2)))
    other = Table(TABLE, sets=[Set("who", (ADDRESS4,)), *SETS[1:]])
    with pytest.raises(errors.Refused, match="put nft table verdicts"):
        tables.put(other)
    assert len(elements.list("who")) == 1, "nothing has happened"
    tables.put(other, instead=True)
    assert elements.list("who") == []
    assert comes(path, 2, 53)


def test_delete_of_a_table_is_idempotent(kernel, opened):
    elements, _ = opened()
    tables = elements.tables()
    tables.put(table())
    assert tables.exists(TABLE)
    assert [tables.delete(TABLE), tables.delete(TABLE)] == [True, False]
    assert not tables.exists(TABLE)


@pytest.mark.skipif(shutil.which("nft") is None, reason="no nft program")
def test_the_nft_program_can_show_it(kernel, opened):
    """It knows no lookups that feed lookups; a constant that spans them keeps it from stumbling."""
    elements, path = opened()
    elements.tables().put(table())
    shown = subprocess.run(
        ["nsenter", f"--net={path}", "nft", "list", "ruleset"], capture_output=True, text=True, check=True
    )
    assert "@places goto fine" in shown.stdout


def test_a_transaction_of_many_thousands_goes_out_as_one(kernel, opened):
    elements, _ = opened()
    elements.tables().put(table())
    many = [Element(item.to_bytes(4, "big"), number(item) + number(item)) for item in range(1, 20_001)]
    elements.add("who", *many)
    assert len(elements.list("who")) == 20_000
    with pytest.raises(errors.ElementExists):
        elements.change(Change("who", [Element(bytes(4), bytes(8)), many[-1]]))
    elements.delete("who", *many)
    assert elements.list("who") == []
