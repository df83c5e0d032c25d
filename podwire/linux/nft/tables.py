"""Whole nft tables by netlink: sets, chains and rules, read, put and deleted, each in one transaction.

For tables that are made while a caller waits: the `nft` program takes longer to start than the kernel to work, and its
language does not have everything that the kernel can do.
"""

import errno
from collections.abc import Iterator, Sequence
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import NETFILTER, Netlink
from podwire.linux.net.wire import ACK, CREATE, REQUEST, Request, attribute, nested, text
from podwire.linux.nft import expressions
from podwire.linux.values import Path

PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING = range(5)
"""Hooks."""
_INET, _SUBSYSTEM = 1, 10
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE, _NEW_CHAIN, _GET_CHAIN, _DELETE_CHAIN = (
    _SUBSYSTEM << 8 | number for number in (0, 1, 2, 3, 4, 5)
)
_NEW_RULE, _GET_RULE, _DELETE_RULE, _NEW_SET = (_SUBSYSTEM << 8 | number for number in (6, 7, 8, 9))
_GET_GENERATION = _SUBSYSTEM << 8 | 16
_BEGIN, _END, _APPEND = 0x10, 0x11, 0x800
_MESSAGE = Struct(">BBH")  # family, version, resource
_HEAD, _EDGE = _MESSAGE.pack(_INET, 0, 0), _MESSAGE.pack(0, 0, _SUBSYSTEM)
_TABLE_NAME = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_PRIORITY = Struct(">i")
_INTERVAL, _MAP, _TIMEOUT, _BY_RULES, _CONCATENATED, _WITH_EXPRESSION = 0x4, 0x8, 0x10, 0x20, 0x80, 0x100
_TYPE_BITS = 6  # nft shows the key of several fields by their types, joined

Message = tuple[int, int, bytes]
"""Kind, flags, body."""


class Field(NamedTuple):
    """A part of a key: how long it is, and as what nft shows it."""

    length: int
    type: int


ADDRESS4, ADDRESS6 = Field(4, 7), Field(16, 8)
PROTOCOL, PORT = Field(1, 12), Field(2, 13)
NUMBER, LINK_NAME = Field(4, 19), Field(16, 41)
TWO_NUMBERS = Field(8, 19 << _TYPE_BITS | 19)
ADDRESS4_AND_PORT, ADDRESS6_AND_PORT = Field(8, 7 << _TYPE_BITS | 13), Field(20, 8 << _TYPE_BITS | 13)
VERDICT = Field(16, 0xFFFFFF00)


class Set(NamedTuple):
    name: str
    key: tuple[Field, ...]
    data: Field | None = None
    """A map, if there is any."""
    ranges: bool = False
    """Each element is from a key to an end, in every field."""
    counted: bool = False
    """Each element counts how often it was found."""
    remembers: int = 0
    """Rules add its elements, each for a time; so many at most."""


class Chain(NamedTuple):
    name: str
    rules: tuple[bytes, ...] = ()
    """Of `expressions`."""
    hook: int | None = None
    """The kernel calls it there by itself; what no rule decides is accepted."""
    priority: int = 0
    kind: str = "filter"
    """nat, filter."""


class Table(NamedTuple):
    """In the family of both, IPv4 and IPv6."""

    name: str
    chains: Sequence[Chain] = ()
    sets: Sequence[Set] = ()


def same(ours: Table, theirs: Table) -> bool:
    """Whether what was read is what we would put; the order of chains says nothing, and sets are not read."""
    mine, found = ({chain.name: chain for chain in table.chains} for table in (ours, theirs))
    return mine.keys() == found.keys() and all(_same(mine[name], found[name]) for name in mine)


def _same(ours: Chain, theirs: Chain) -> bool:
    return (
        ours._replace(rules=()) == theirs._replace(rules=())
        and len(ours.rules) == len(theirs.rules)
        and all(map(expressions.same, ours.rules, theirs.rules))
    )


class KernelTables:
    """Tables of one namespace, on a socket that stays open until `close`."""

    def __init__(self, netns: Path | int | None = None, netlink: Netlink | None = None) -> None:
        """By a socket to netfilter that somebody keeps, or by an own one."""
        self._netlink = Netlink(netns, protocol=NETFILTER) if netlink is None else netlink

    def close(self) -> None:
        self._netlink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def get(self, name: str) -> Table | None:
        """Its chains and rules; None when there is none."""
        if not self.exists(name):
            return None
        rules: dict[str, list[bytes]] = {}
        body = _HEAD + text(_RULE_TABLE, name)
        for reply in self._netlink.dump(Request(_GET_RULE, 0, body, f"list rules of {name}", {})):
            attrs = wire.attributes(reply, _MESSAGE.size)
            if wire.string(attrs[_RULE_TABLE]) == name:
                rules.setdefault(wire.string(attrs[_RULE_CHAIN]), []).append(attrs.get(_RULE_EXPRESSIONS, b""))
        chains = [_chain(attrs, rules) for attrs in self._chains(name)]
        return Table(name, tuple(chains))

    def exists(self, name: str) -> bool:
        names: errors.Names = {errno.ENOENT: errors.NoSuchTable}
        try:
            self._netlink.ask(Request(_GET_TABLE, 0, _HEAD + text(_TABLE_NAME, name), f"read table {name}", names))
        except errors.NoSuchTable:
            return False
        return True

    def _chains(self, name: str) -> Iterator[dict[int, bytes]]:
        for reply in self._netlink.dump(Request(_GET_CHAIN, 0, _HEAD, f"list chains of {name}", {})):
            attrs = wire.attributes(reply, _MESSAGE.size)
            if wire.string(attrs[_CHAIN_TABLE]) == name:
                yield attrs

    def put(self, table: Table, *, instead: bool = False, elements: Sequence[Message] = ()) -> None:
        """Make it, or give the one that is there these rules; its elements stay. Refused when its sets are others.

        With `instead` nothing stays of the one that is there, without a moment between them. Changes of its elements
        can belong to the same transaction. What is refused leaves all as it was.
        """
        away = [(_DELETE_TABLE, REQUEST, _HEAD + text(_TABLE_NAME, table.name))] if instead else []
        messages = [*away, *_messages(table), *elements]
        self._transact(messages, f"put nft table {table.name}", {errno.EEXIST: errors.Refused})

    def generation(self) -> int:
        """Returns a number that each change of any table of the namespace makes larger."""
        request = Request(_GET_GENERATION, 0, _MESSAGE.pack(0, 0, 0), "read the generation of nft", {})
        return wire.big(wire.attributes(self._netlink.ask(request), _MESSAGE.size).get(1))

    def chain_names(self, table: str) -> list[str]:
        return [wire.string(attrs[_CHAIN_NAME]) for attrs in self._chains(table)]

    def delete_chain(self, table: str, chain: str) -> bool:
        """Deletes a chain with its rules; False if it does not exist, or a rule or an element leads to it."""
        try:
            self._transact([chain_deletion(table, chain)], f"delete nft chain {table} {chain}")
        except (errors.Missing, errors.Busy):
            return False
        return True

    def delete(self, name: str) -> bool:
        """With all that is in it; False when there is none."""
        try:
            self._transact([(_DELETE_TABLE, REQUEST, _HEAD + text(_TABLE_NAME, name))], f"delete nft table {name}")
        except errors.Missing:
            return False
        return True

    def _transact(self, messages: Sequence[Message], operation: str, names: errors.Names | None = None) -> None:
        for refusal in self._netlink.exchange(transaction(messages)):
            if refusal is not None:
                raise errors.from_errno(refusal.number, operation, refusal.words, names)


def transaction(messages: Sequence[Message]) -> list[Message]:
    """Whole or not at all. The kernel reports failures in any case; an acknowledgement is requested for the last
    message only, because thousands of answers fit nowhere."""
    *first, (kind, flags, body) = messages
    return [(_BEGIN, REQUEST, _EDGE), *first, (kind, flags | ACK, body), (_END, REQUEST, _EDGE)]


def _messages(table: Table) -> list[Message]:
    """Sets and chains before rules, because these name them."""
    new = REQUEST | CREATE
    messages = [(_NEW_TABLE, new, _HEAD + text(_TABLE_NAME, table.name))]
    messages += [(_NEW_SET, new, _HEAD + _new_set(table.name, *numbered)) for numbered in enumerate(table.sets, 1)]
    messages += [(_NEW_CHAIN, new, _HEAD + _new_chain(table.name, chain)) for chain in table.chains]
    return messages + [message for chain in table.chains for message in _rule_messages(table.name, chain)]


def chain_deletion(table: str, chain: str) -> Message:
    """Deletes a chain with its rules; refused if a rule or an element leads to it."""
    return _DELETE_CHAIN, REQUEST, _HEAD + text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, chain)


def chain_addition(table: str, chain: Chain) -> list[Message]:
    """Adds a chain to a table, or gives one that exists these rules."""
    return [(_NEW_CHAIN, REQUEST | CREATE, _HEAD + _new_chain(table, chain)), *_rule_messages(table, chain)]


def _rule_messages(table: str, chain: Chain) -> list[Message]:
    where = _HEAD + text(_RULE_TABLE, table) + text(_RULE_CHAIN, chain.name)
    # appended: without the flag, each rule would go before the previous one
    new = REQUEST | CREATE | _APPEND
    rules = [(_NEW_RULE, new, where + attribute(_RULE_EXPRESSIONS, rule)) for rule in chain.rules]
    return [(_DELETE_RULE, REQUEST, where), *rules]


def _new_chain(table: str, chain: Chain) -> bytes:
    named = text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, chain.name)
    if chain.hook is None:
        return named
    hook = _u32(_HOOK_NUMBER, chain.hook), attribute(_HOOK_PRIORITY, _PRIORITY.pack(chain.priority))
    return named + nested(_CHAIN_HOOK, *hook) + text(_CHAIN_TYPE, chain.kind)


def _new_set(table: str, number: int, spec: Set) -> bytes:
    flags = (_MAP if spec.data else 0) | (_WITH_EXPRESSION if spec.counted else 0)
    if spec.ranges:
        flags |= _INTERVAL | _CONCATENATED
    if spec.remembers:
        flags |= _TIMEOUT | _BY_RULES
    kind = 0
    for field in spec.key:
        kind = kind << _TYPE_BITS | field.type
    lengths = [field.length for field in spec.key]
    length = lengths[0] if len(lengths) == 1 else sum((size + 3) & ~3 for size in lengths)  # several fill whole words
    parts = [text(1, table), text(2, spec.name), _u32(3, flags), _u32(4, kind), _u32(5, length)]
    if spec.data:
        parts += [_u32(6, spec.data.type), _u32(7, spec.data.length)]
    if spec.ranges:
        fields = [nested(1, _u32(1, field.length)) for field in spec.key]
        parts.append(nested(9, nested(2, *fields)))
    if spec.remembers:
        parts.append(nested(9, _u32(1, spec.remembers)))
    parts.append(_u32(10, number))
    if spec.counted:
        parts.append(nested(17, expressions.counter()))
    return b"".join(parts)


def _chain(attrs: dict[int, bytes], rules: dict[str, list[bytes]]) -> Chain:
    name = wire.string(attrs[_CHAIN_NAME])
    chain = Chain(name, tuple(rules.get(name, ())))
    if _CHAIN_HOOK not in attrs:
        return chain
    hook = wire.attributes(attrs[_CHAIN_HOOK])
    priority = _PRIORITY.unpack(hook[_HOOK_PRIORITY])[0]
    return chain._replace(
        hook=wire.big(hook[_HOOK_NUMBER]), priority=priority, kind=wire.string(attrs.get(_CHAIN_TYPE, b""))
    )


def _u32(kind: int, number: int) -> bytes:
    return attribute(kind, wire.BE32.pack(number))
