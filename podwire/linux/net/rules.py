"""Rules of policy routing by rtnetlink."""

import errno
from ipaddress import IPv4Network, IPv6Network
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, Request, attribute, text, u8, u32
from podwire.linux.values import Network, Rule

_NEW, _DELETE, _GET = 32, 33, 34
_MESSAGE = Struct("=BBBBBxxBI")  # family, prefix lengths, tos, table, action, flags
_TO, _FROM, _INPUT, _PRIORITY, _MARK, _TABLE, _MASK, _OUTPUT, _PROTOCOL = 1, 2, 3, 6, 10, 15, 16, 17, 21
_TO_TABLE = 1
_FAMILY = {4: 2, 6: 10}
_VERSION = {2: 4, 10: 6}

_ERRORS: errors.Names = {
    errno.EEXIST: errors.RuleExists,
    errno.ENOENT: errors.NoSuchRule,
    errno.ESRCH: errors.NoSuchRule,
}


class KernelRules:
    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def add(self, rule: Rule) -> None:
        """RuleExists when there is the very same."""
        self._netlink.do(Request(_NEW, CREATE | EXCL, _body(rule), f"add rule {rule.priority}", _ERRORS))

    def delete(self, rule: Rule) -> None:
        """NoSuchRule."""
        self._netlink.do(Request(_DELETE, 0, _body(rule), f"delete rule {rule.priority}", _ERRORS))

    def list(self, family: int) -> list[Rule]:
        """Lists rules of IPv4 or IPv6 (4, 6), including the kernel's own three (protocol 2)."""
        body = _MESSAGE.pack(_FAMILY[family], 0, 0, 0, 0, 0, 0)
        return [_parsed(reply) for reply in self._netlink.dump(Request(_GET, 0, body, "list rules", _ERRORS))]


def _body(rule: Rule) -> bytes:
    lengths = [network.prefixlen if network else 0 for network in (rule.destination, rule.source)]
    table = rule.table if rule.table < 256 else 0
    parts = [
        _MESSAGE.pack(_FAMILY[rule.family], *lengths, 0, table, _TO_TABLE, 0),
        attribute(_FROM, rule.source.network_address.packed) if rule.source else b"",
        attribute(_TO, rule.destination.network_address.packed) if rule.destination else b"",
        text(_INPUT, rule.input) if rule.input else b"",
        text(_OUTPUT, rule.output) if rule.output else b"",
        u32(_PRIORITY, rule.priority),
        u32(_TABLE, rule.table),
        u8(_PROTOCOL, rule.protocol),
    ]
    if rule.mark or rule.mask:
        parts += u32(_MARK, rule.mark), u32(_MASK, rule.mask or 0xFFFFFFFF)
    return b"".join(parts)


def _network(family: int, length: int, packed: bytes | None) -> Network | None:
    if packed is None:
        return None
    return IPv4Network((packed, length)) if family == 2 else IPv6Network((packed, length))


def _parsed(body: bytes) -> Rule:
    family, to_length, from_length, _, table, _, _ = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    mark = wire.number(attrs.get(_MARK))
    return Rule(
        priority=wire.number(attrs.get(_PRIORITY)),
        table=wire.number(attrs.get(_TABLE), table),
        family=_VERSION[family],
        source=_network(family, from_length, attrs.get(_FROM)),
        destination=_network(family, to_length, attrs.get(_TO)),
        input=wire.string(attrs.get(_INPUT, b"")),
        output=wire.string(attrs.get(_OUTPUT, b"")),
        mark=mark,
        mask=wire.number(attrs.get(_MASK)) if _MARK in attrs else 0,
        protocol=wire.number(attrs.get(_PROTOCOL)),
    )
