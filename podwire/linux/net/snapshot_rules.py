"""Snapshot of policy routing rules with all their attributes, for use in another namespace."""

import errno
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, Request, attribute, text

_NEW, _DELETE, _GET = 32, 33, 34
_MESSAGE = Struct("=BBBBBxxBI")  # family, prefix lengths, tos, table, action, flags
_INPUT, _PRIORITY, _TABLE, _OUTPUT, _PROTOCOL = 3, 6, 15, 17, 21
_ASKED_FOR = 0x02  # invert; the other flags tell whether its links are there
_KERNEL = 2

_ERRORS: errors.Names = {
    errno.EEXIST: errors.RuleExists,
    errno.ENOENT: errors.NoSuchRule,
    errno.ESRCH: errors.NoSuchRule,
}


class SavedRule(NamedTuple):
    family: int
    destination_prefix: int
    source_prefix: int
    tos: int
    table: int
    action: int
    flags: int
    input: str
    output: str
    attributes: tuple[tuple[int, str], ...]
    """The other attributes, by the kernel's numbers, in hex."""

    @property
    def priority(self) -> int:
        return wire.number(bytes.fromhex(dict(self.attributes).get(_PRIORITY, "")))

    def names(self, link: str) -> bool:
        return link in (self.input, self.output)

    def renamed(self, was: str, becomes: str) -> "SavedRule":
        swapped = {was: becomes}
        return self._replace(input=swapped.get(self.input, self.input), output=swapped.get(self.output, self.output))


class SavedRules:
    """Rules of one namespace."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self) -> tuple[SavedRule, ...]:
        """Returns all rules but the kernel's own."""
        bodies = [
            body
            for family in (2, 10)
            for body in self._netlink.dump(
                Request(_GET, 0, _MESSAGE.pack(family, 0, 0, 0, 0, 0, 0), "list rules", _ERRORS)
            )
        ]
        return tuple(rule for rule in map(_kept, bodies) if rule is not None)

    def add(self, rule: SavedRule) -> None:
        """RuleExists."""
        self._netlink.do(Request(_NEW, CREATE | EXCL, _body(rule), f"add rule {rule.priority}", _ERRORS))

    def delete(self, rule: SavedRule) -> None:
        """NoSuchRule."""
        self._netlink.do(Request(_DELETE, 0, _body(rule), f"delete rule {rule.priority}", _ERRORS))


def _body(rule: SavedRule) -> bytes:
    head = _MESSAGE.pack(
        rule.family,
        rule.destination_prefix,
        rule.source_prefix,
        rule.tos,
        rule.table if rule.table < 256 else 0,
        rule.action,
        rule.flags,
    )
    parts = [attribute(kind, bytes.fromhex(value)) for kind, value in rule.attributes]
    parts += [text(_INPUT, rule.input)] if rule.input else []
    parts += [text(_OUTPUT, rule.output)] if rule.output else []
    return head + b"".join(parts)


def _kept(body: bytes) -> SavedRule | None:
    family, to_length, from_length, tos, table, action, flags = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    if wire.number(attrs.get(_PROTOCOL)) == _KERNEL:
        return None
    others = tuple((number, attrs[number].hex()) for number in sorted(attrs.keys() - {_INPUT, _OUTPUT}))
    return SavedRule(
        family,
        to_length,
        from_length,
        tos,
        wire.number(attrs.get(_TABLE), table),
        action,
        flags & _ASKED_FOR,
        wire.string(attrs.get(_INPUT, b"")),
        wire.string(attrs.get(_OUTPUT, b"")),
        others,
    )
