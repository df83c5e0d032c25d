"""Small nft tables as a whole: chains with rules of expressions, read, put and deleted, each in one transaction.

For tables that are made where somebody waits: the `nft` program takes longer to start than the kernel to work.
"""

import errno
from collections.abc import Iterator
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

from podwire.linux import errors, expressions, wire
from podwire.linux.netlink import NETFILTER, Netlink
from podwire.linux.values import Path
from podwire.linux.wire import ACK, CREATE, REQUEST, Request, attribute, text

PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING = range(5)
"""Hooks."""
_INET, _SUBSYSTEM = 1, 10
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE, _NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE = (
    _SUBSYSTEM << 8 | each for each in (0, 1, 2, 3, 4, 6, 7)
)
_BEGIN, _END, _APPEND = 0x10, 0x11, 0x800
_MESSAGE = Struct(">BBH")  # family, version, resource
_HEAD, _EDGE = _MESSAGE.pack(_INET, 0, 0), _MESSAGE.pack(0, 0, _SUBSYSTEM)
_TABLE_NAME = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_PRIORITY = Struct(">i")


class Chain(NamedTuple):
    """One that the kernel calls; what no rule decides is accepted."""

    name: str
    kind: str
    """nat, filter."""
    hook: int
    priority: int
    rules: tuple[bytes, ...] = ()


class Table(NamedTuple):
    """In the family of both, IPv4 and IPv6."""

    name: str
    chains: tuple[Chain, ...] = ()


def same(ours: Table, theirs: Table) -> bool:
    """Whether what was read is what we would put; the order of chains says nothing."""
    mine, found = ({each.name: each for each in table.chains} for table in (ours, theirs))
    return mine.keys() == found.keys() and all(_same(mine[each], found[each]) for each in mine)


def _same(ours: Chain, theirs: Chain) -> bool:
    return (
        ours[:4] == theirs[:4]
        and len(ours.rules) == len(theirs.rules)
        and all(map(expressions.same, ours.rules, theirs.rules))
    )


class KernelTables:
    """Those of one namespace, on a socket that is kept until `close`."""

    def __init__(self, netns: Path | int | None = None) -> None:
        self._netlink = Netlink(netns, protocol=NETFILTER)

    def close(self) -> None:
        self._netlink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def get(self, name: str) -> Table | None:
        """None when there is none."""
        if not self._exists(name):
            return None
        rules: dict[str, list[bytes]] = {}
        body = _HEAD + text(_RULE_TABLE, name)
        for each in self._netlink.dump(Request(_GET_RULE, 0, body, f"list rules of {name}", {})):
            told = wire.attributes(each, _MESSAGE.size)
            if wire.string(told[_RULE_TABLE]) == name:
                rules.setdefault(wire.string(told[_RULE_CHAIN]), []).append(told.get(_RULE_EXPRESSIONS, b""))
        chains = [_chain(told, rules) for told in self._chains(name)]
        return Table(name, tuple(chains))

    def _exists(self, name: str) -> bool:
        names: errors.Names = {errno.ENOENT: errors.NoSuchTable}
        try:
            self._netlink.ask(Request(_GET_TABLE, 0, _HEAD + text(_TABLE_NAME, name), f"read table {name}", names))
        except errors.NoSuchTable:
            return False
        return True

    def _chains(self, name: str) -> Iterator[dict[int, bytes]]:
        for each in self._netlink.dump(Request(_GET_CHAIN, 0, _HEAD, f"list chains of {name}", {})):
            told = wire.attributes(each, _MESSAGE.size)
            if wire.string(told[_CHAIN_TABLE]) == name:
                yield told

    def put(self, table: Table, *, instead: bool = False) -> None:
        """Make it; with `instead` in place of one that is there, without a moment between them. Unsupported, …"""
        name = text(_TABLE_NAME, table.name)
        messages = [(_DELETE_TABLE, 0, name)] if instead else []
        messages.append((_NEW_TABLE, CREATE, name))
        for chain in table.chains:
            messages.append((_NEW_CHAIN, CREATE, _new_chain(table.name, chain)))
            head = text(_RULE_TABLE, table.name) + text(_RULE_CHAIN, chain.name)
            messages += [
                (_NEW_RULE, CREATE | _APPEND, head + attribute(_RULE_EXPRESSIONS, each)) for each in chain.rules
            ]
        self._transact(messages, f"put nft table {table.name}")

    def delete(self, name: str) -> bool:
        """With all that is in it; False when there is none."""
        try:
            self._transact([(_DELETE_TABLE, 0, text(_TABLE_NAME, name))], f"delete nft table {name}")
        except errors.Missing:
            return False
        return True

    def _transact(self, messages: list[tuple[int, int, bytes]], operation: str) -> None:
        framed = [(kind, REQUEST | ACK | flags, _HEAD + body) for kind, flags, body in messages]
        answers = self._netlink.exchange([(_BEGIN, REQUEST, _EDGE), *framed, (_END, REQUEST, _EDGE)])
        for refusal in answers:
            if refusal is not None:
                raise errors.named(refusal.number, operation, refusal.words)


def _new_chain(table: str, chain: Chain) -> bytes:
    hook = attribute(_HOOK_NUMBER, wire.BE32.pack(chain.hook))
    hook += attribute(_HOOK_PRIORITY, _PRIORITY.pack(chain.priority))
    named = text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, chain.name)
    return named + wire.nested(_CHAIN_HOOK, hook) + text(_CHAIN_TYPE, chain.kind)


def _chain(told: dict[int, bytes], rules: dict[str, list[bytes]]) -> Chain:
    """One that hangs on no hook, which is nobody of ours, has the hook -1."""
    hook, name = wire.attributes(told.get(_CHAIN_HOOK, b"")), wire.string(told[_CHAIN_NAME])
    number = wire.big(hook[_HOOK_NUMBER]) if _HOOK_NUMBER in hook else -1
    priority = _PRIORITY.unpack(hook.get(_HOOK_PRIORITY, bytes(4)))[0]
    return Chain(name, wire.string(told.get(_CHAIN_TYPE, b"")), number, priority, tuple(rules.get(name, ())))
