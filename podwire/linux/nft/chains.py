"""Chains of anybody's nft tables, and their rules, as far as one must know of them."""

from struct import Struct
from typing import NamedTuple

from podwire.linux.net import wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request, text

FORWARD = 2
"""The hook that packets for others pass, in the families of IP."""
_FAMILIES = {1: "inet", 2: "ip", 10: "ip6"}
_GET_CHAIN, _GET_RULE = (10 << 8 | each for each in (4, 7))
_MESSAGE = Struct(">BBH")  # family, version, resource
_TABLE, _NAME, _HOOK, _POLICY, _NUMBER = 1, 3, 4, 5, 1
_RULE_CHAIN, _HANDLE, _EXPRESSIONS = 2, 3, 4
_DROP = 0


class Chain(NamedTuple):
    """One that the kernel calls by itself."""

    family: str
    table: str
    name: str
    drops: bool = False
    """What none of its rules decides."""

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


class Rule(NamedTuple):
    handle: int
    expressions: bytes


class KernelChains:
    def __init__(self, netlink: Netlink) -> None:
        """By a socket to netfilter that somebody keeps."""
        self._netlink = netlink

    def forwarding(self) -> list[Chain]:
        """Those that decide what this host passes on."""
        found = []
        for body in self._netlink.dump(Request(_GET_CHAIN, 0, _MESSAGE.pack(0, 0, 0), "list chains", {})):
            told, family = wire.attributes(body, _MESSAGE.size), _FAMILIES.get(body[0])
            hook = wire.attributes(told.get(_HOOK, b""))
            if family is not None and _NUMBER in hook and wire.big(hook[_NUMBER]) == FORWARD:
                drops = _POLICY in told and wire.big(told[_POLICY]) == _DROP
                found.append(Chain(family, wire.string(told[_TABLE]), wire.string(told[_NAME]), drops))
        return found

    def rules(self, chain: Chain) -> list[Rule]:
        """In their order; none when the chain is gone."""
        family = next(number for number, name in _FAMILIES.items() if name == chain.family)
        body = _MESSAGE.pack(family, 0, 0) + text(_TABLE, chain.table) + text(_RULE_CHAIN, chain.name)
        found = []
        for each in self._netlink.dump(Request(_GET_RULE, 0, body, f"list rules of {chain}", {})):
            told = wire.attributes(each, _MESSAGE.size)
            found.append(Rule(wire.big(told[_HANDLE]), told.get(_EXPRESSIONS, b"")))
        return found
