"""Whole nft tables by netlink: sets, chains and rules, made or renewed in one transaction."""

import errno
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors, registers, wire
from podwire.linux.netlink import Netlink
from podwire.linux.wire import ACK, BE32, CREATE, REQUEST, Request, attribute, nested, text

INPUT, FORWARD, OUTPUT = 1, 2, 3
"""Hooks of the families of IP."""

_INET = 1
_SUBSYSTEM = 10
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _DELETE_RULE, _NEW_SET = (
    _SUBSYSTEM << 8 | each for each in (0, 1, 2, 3, 6, 8, 9)
)
_BEGIN, _END = 0x10, 0x11
_MESSAGE = Struct(">BBH")  # family, version, resource
_INTERVAL, _MAP, _CONCATENATED, _WITH_EXPRESSION = 0x4, 0x8, 0x80, 0x100
_TYPE_BITS = 6  # nft shows the key of several fields by their types, joined
_ERRORS: errors.Names = {errno.ENOENT: errors.NoSuchTable}


class Field(NamedTuple):
    """A part of a key: how long it is, and as what nft shows it."""

    length: int
    type: int


ADDRESS4, ADDRESS6 = Field(4, 7), Field(16, 8)
PROTOCOL, PORT = Field(1, 12), Field(2, 13)
NUMBER, LINK_NAME = Field(4, 19), Field(16, 41)
TWO_NUMBERS = Field(8, 19 << _TYPE_BITS | 19)


class Set(NamedTuple):
    name: str
    key: tuple[Field, ...]
    data: Field | None = None
    """A map, if there is any."""
    ranges: bool = False
    """Each element is from a key to an end, in every field."""
    counted: bool = False
    """Each element counts how often it was found."""


class Chain(NamedTuple):
    name: str
    rules: Sequence[Sequence[bytes]]
    """Of `registers`."""
    hook: int | None = None
    """The kernel calls it there by itself; what it does not decide passes."""
    priority: int = 0


class Program(NamedTuple):
    name: str
    sets: Sequence[Set]
    chains: Sequence[Chain]


class KernelPrograms:
    """Tables of the inet family in one namespace, by a socket to netfilter that somebody keeps."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink

    def define(self, table: Program) -> None:
        """Make it, or give the one that is there these rules; elements stay. Refused when its sets are others.

        Refused leaves all as it was.
        """
        self._transaction(_defined(table), f"define the nft table {table.name}")

    def replace(self, table: Program) -> None:
        """The same with nothing left of the one that is there."""
        head = _head() + text(1, table.name)
        away = [(_NEW_TABLE, REQUEST | CREATE, head), (_DELETE_TABLE, REQUEST, head)]
        self._transaction([*away, *_defined(table)], f"replace the nft table {table.name}")

    def delete(self, name: str) -> None:
        """Nothing happens when there is none."""
        head = _head() + text(1, name)
        steps = [(_NEW_TABLE, REQUEST | CREATE, head), (_DELETE_TABLE, REQUEST, head)]
        self._transaction(steps, f"delete the nft table {name}")

    def exists(self, name: str) -> bool:
        try:
            self._netlink.ask(
                Request(_GET_TABLE, 0, _head() + text(1, name), f"look for the nft table {name}", _ERRORS)
            )
        except errors.NoSuchTable:
            return False
        return True

    def _transaction(self, messages: Sequence[tuple[int, int, bytes]], operation: str) -> None:
        """The kernel tells of each that fails; that the last succeeded is asked for."""
        *first, (kind, flags, body) = messages
        edge = _MESSAGE.pack(0, 0, _SUBSYSTEM)
        framed = [(_BEGIN, REQUEST, edge), *first, (kind, flags | ACK, body), (_END, REQUEST, edge)]
        for refusal in self._netlink.exchange(framed):
            if refusal is not None:
                raise errors.named(refusal.number, operation, refusal.words, {errno.EEXIST: errors.Refused})


def _defined(table: Program) -> list[tuple[int, int, bytes]]:
    """Sets and chains before rules, because these name them."""
    new = REQUEST | CREATE
    messages = [(_NEW_TABLE, new, _head() + text(1, table.name))]
    messages += [(_NEW_SET, new, _set(table.name, number, each)) for number, each in enumerate(table.sets, 1)]
    messages += [(_NEW_CHAIN, new, _chain(table.name, each)) for each in table.chains]
    for chain in table.chains:
        where = _head() + text(1, table.name) + text(2, chain.name)
        messages.append((_DELETE_RULE, REQUEST, where))
        for rule in chain.rules:
            # appended: NLM_F_APPEND, without which each would go before the one told earlier
            messages.append((_NEW_RULE, new | 0x800, where + nested(4, registers.listed(rule))))
    return messages


def _head() -> bytes:
    return _MESSAGE.pack(_INET, 0, 0)


def _chain(table: str, chain: Chain) -> bytes:
    named = _head() + text(1, table) + text(3, chain.name)
    if chain.hook is None:
        return named
    hook = nested(4, _be(1, chain.hook), attribute(2, chain.priority.to_bytes(4, "big", signed=True)))
    return named + hook + _be(5, registers.VERDICTS["accept"]) + text(7, "filter")


def _set(table: str, number: int, spec: Set) -> bytes:
    flags = (_MAP if spec.data else 0) | (_WITH_EXPRESSION if spec.counted else 0)
    if spec.ranges:
        flags |= _INTERVAL | _CONCATENATED
    kind = 0
    for field in spec.key:
        kind = kind << _TYPE_BITS | field.type
    parts = [text(1, table), text(2, spec.name), _be(3, flags), _be(4, kind), _be(5, _length(spec.key))]
    if spec.data:
        parts += [_be(6, spec.data.type), _be(7, spec.data.length)]
    if spec.ranges:
        fields = [nested(1, _be(1, each.length)) for each in spec.key]
        parts.append(nested(9, nested(2, *fields)))
    parts.append(_be(10, number))
    if spec.counted:
        parts.append(attribute(17 | wire.NESTED, registers.counter()))
    return _head() + b"".join(parts)


def _length(fields: Sequence[Field]) -> int:
    """A single field stands as it is, several fill whole words each."""
    return fields[0].length if len(fields) == 1 else sum((each.length + 3) & ~3 for each in fields)


def _be(kind: int, number: int) -> bytes:
    return attribute(kind, BE32.pack(number))
