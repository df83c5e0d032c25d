"""Base chains of all nft tables, and their rules, as far as podwire needs them."""

import errno
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request, text
from podwire.linux.nft import keys
from podwire.linux.nft.values import Counter

FORWARD = 2
"""The hook that packets for others pass, in the families of IP."""
_FAMILIES = {1: "inet", 2: "ip", 10: "ip6"}
_ALL_FAMILIES = {**_FAMILIES, 7: "bridge"}
_GET_CHAIN, _GET_RULE = (10 << 8 | number for number in (4, 7))
_MESSAGE = Struct(">BBH")  # family, version, resource
_TABLE, _NAME, _HOOK, _POLICY, _NUMBER = 1, 3, 4, 5, 1
_RULE_CHAIN, _HANDLE, _EXPRESSIONS, _USERDATA = 2, 3, 4, 7
_EXPRESSION_NAME, _EXPRESSION_DATA, _COUNTED_BYTES, _COUNTED_PACKETS = 1, 2, 1, 2
_DROP = 0


class Chain(NamedTuple):
    """A base chain: the kernel calls it at a hook."""

    family: str
    table: str
    name: str
    drops: bool = False
    """Whether its policy is drop."""

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


class Rule(NamedTuple):
    handle: int
    expressions: bytes
    comment: str = ""
    counter: Counter | None = None


def counter_of(expression: bytes) -> Counter | None:
    """Parses an expression of a rule or an element that is a counter; None if it is another one."""
    attrs = wire.attributes(expression)
    if wire.string(attrs.get(_EXPRESSION_NAME, b"")) != "counter":
        return None
    data = wire.attributes(attrs.get(_EXPRESSION_DATA, b""))
    return Counter(wire.big(data.get(_COUNTED_PACKETS)), wire.big(data.get(_COUNTED_BYTES)))


class KernelChains:
    def __init__(self, netlink: Netlink) -> None:
        """Uses a netfilter socket of the caller."""
        self._netlink = netlink

    def forwarding(self) -> list[Chain]:
        """Returns the base chains of the forward hook."""
        found = []
        for body in self._netlink.dump(Request(_GET_CHAIN, 0, _MESSAGE.pack(0, 0, 0), "list chains", {})):
            attrs, family = wire.attributes(body, _MESSAGE.size), _FAMILIES.get(body[0])
            hook = wire.attributes(attrs.get(_HOOK, b""))
            if family is not None and _NUMBER in hook and wire.big(hook[_NUMBER]) == FORWARD:
                drops = _POLICY in attrs and wire.big(attrs[_POLICY]) == _DROP
                found.append(Chain(family, wire.string(attrs[_TABLE]), wire.string(attrs[_NAME]), drops))
        return found

    def exists(self, family: str, table: str, chain: str) -> bool:
        """Whether a chain of any kind exists."""
        number = next(number for number, name in _ALL_FAMILIES.items() if name == family)
        body = _MESSAGE.pack(number, 0, 0) + text(_TABLE, table) + text(_NAME, chain)
        names: errors.Names = {errno.ENOENT: errors.NoSuchTable}
        try:
            self._netlink.ask(Request(_GET_CHAIN, 0, body, f"read chain {family} {table} {chain}", names))
        except errors.NoSuchTable:
            return False
        return True

    def rules(self, chain: Chain) -> list[Rule]:
        """Returns the rules in order; none if the chain no longer exists."""
        family = next(number for number, name in _ALL_FAMILIES.items() if name == chain.family)
        body = _MESSAGE.pack(family, 0, 0) + text(_TABLE, chain.table) + text(_RULE_CHAIN, chain.name)
        found = []
        for reply in self._netlink.dump(Request(_GET_RULE, 0, body, f"list rules of {chain}", {})):
            attrs = wire.attributes(reply, _MESSAGE.size)
            comment = keys.commented(attrs.get(_USERDATA, b""))
            expressions = attrs.get(_EXPRESSIONS, b"")
            counters = (counter_of(expression) for _, expression in wire.iter_attributes(expressions))
            counter = next((counter for counter in counters if counter is not None), None)
            found.append(Rule(wire.big(attrs[_HANDLE]), expressions, comment, counter))
        return found
