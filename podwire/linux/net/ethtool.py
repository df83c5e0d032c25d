"""Features and private flags of a link's driver, by ethtool's generic netlink. Links are named by their indexes."""

import errno
from collections.abc import Mapping
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request, attribute, nested, text, u32
from podwire.linux.values import Path

GENERIC = 16
_HEAD = Struct("=BBH")  # command, version, nothing
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_GET_FEATURES, _SET_FEATURES, _GET_FLAGS, _SET_FLAGS = 11, 12, 13, 14
_INDEX, _HEADER_FLAGS, _NO_REPLY = 1, 3, 2
_HEADER, _CAN, _WANTED, _ACTIVE, _FLAGS = 1, 2, 3, 4, 2
_BITS, _BIT, _NO_MASK, _BIT_NAME, _BIT_VALUE = 3, 1, 1, 2, 3

_ERRORS: errors.Names = {errno.ENODEV: errors.NoSuchLink}


class Features(NamedTuple):
    """By the kernel's names, as `tx-tcp-segmentation`."""

    wanted: frozenset[str]
    """Requested features; dependencies may keep one inactive."""
    active: frozenset[str]
    changeable: frozenset[str]


class Ethtool:
    def __init__(self, netns: Path | int | None = None) -> None:
        self._netlink = Netlink(netns, protocol=GENERIC)
        self._family = 0

    def close(self) -> None:
        self._netlink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def features(self, index: int) -> Features:
        """NoSuchLink."""
        attrs = self._ask(_GET_FEATURES, index, "features")
        sets = (_bits(attrs.get(kind, b"")) for kind in (_WANTED, _ACTIVE, _CAN))
        return Features(*(frozenset(name for name, value in bits.items() if value) for bits in sets))

    def set_features(self, index: int, values: Mapping[str, bool]) -> None:
        """Requests features. Raises Refused for a name that the kernel does not know; NoSuchLink."""
        self._set(_SET_FEATURES, index, _WANTED, values, "features")

    def flags(self, index: int) -> dict[str, bool]:
        """The driver's private flags; none for a driver that has none. NoSuchLink."""
        try:
            attrs = self._ask(_GET_FLAGS, index, "private flags")
        except errors.Unsupported:
            return {}
        return _bits(attrs.get(_FLAGS, b""))

    def set_flags(self, index: int, values: Mapping[str, bool]) -> None:
        """Unsupported by a driver that has none; NoSuchLink."""
        self._set(_SET_FLAGS, index, _FLAGS, values, "private flags")

    def _ask(self, command: int, index: int, what: str) -> dict[int, bytes]:
        body = _HEAD.pack(command, 1, 0) + nested(_HEADER, u32(_INDEX, index))
        answer = self._netlink.ask(Request(self._number(), 0, body, f"read the {what} of link {index}", _ERRORS))
        return wire.attributes(answer, _HEAD.size)

    def _set(self, command: int, index: int, kind: int, values: Mapping[str, bool], what: str) -> None:
        bits = [
            nested(_BIT, text(_BIT_NAME, name), attribute(_BIT_VALUE, b"") if value else b"")
            for name, value in values.items()
        ]
        body = _HEAD.pack(command, 1, 0) + nested(_HEADER, u32(_INDEX, index), u32(_HEADER_FLAGS, _NO_REPLY))
        body += nested(kind, nested(_BITS, *bits))
        self._netlink.do(Request(self._number(), 0, body, f"set the {what} of link {index}", _ERRORS))

    def _number(self) -> int:
        """Returns ethtool's generic netlink family id."""
        if not self._family:
            body = _HEAD.pack(_GET_FAMILY, 1, 0) + text(_FAMILY_NAME, "ethtool")
            answer = self._netlink.ask(Request(_CONTROL, 0, body, "find ethtool", {errno.ENOENT: errors.Unsupported}))
            self._family = wire.number(wire.attributes(answer, _HEAD.size)[_FAMILY_ID])
        return self._family


def _bits(packed: bytes) -> dict[str, bool]:
    attrs = wire.attributes(packed)
    found = {}
    for _, bit in wire.iter_attributes(attrs.get(_BITS, b"")):
        each = wire.attributes(bit)
        found[wire.string(each.get(_BIT_NAME, b""))] = _BIT_VALUE in each or _NO_MASK in attrs
    return found
