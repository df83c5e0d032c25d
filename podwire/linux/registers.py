"""What rules of nft consist of, as bytes: loads into registers, lookups, comparisons, verdicts. No I/O.

Written by hand because the language of `nft` cannot say all that the kernel can do: a lookup in a map puts its answer
into a register, and that can be a part of the key of the next lookup.
"""

from collections.abc import Sequence

from podwire.linux import wire
from podwire.linux.wire import BE32, attribute, nested, text

REGISTER = 8
"""The first of sixteen registers of four bytes each; a longer value goes on into the next ones."""
VERDICTS = {"drop": 0, "accept": 1, "continue": -1, "jump": -3, "goto": -4, "return": -5}

ESTABLISHED, RELATED, NEW = 2, 4, 8
"""Bits of a connection's state."""
IPV4, IPV6 = 2, 10
"""What `family` gives."""

_NAME, _DATA, _ELEMENT = 1, 2, 1
_NETWORK, _TRANSPORT = 1, 2
_INPUT_NAME, _OUTPUT_NAME, _NFPROTO, _L4PROTO, _PACKET_KIND = 6, 7, 15, 16, 19
_EQUAL, _UNEQUAL = 0, 1
_VERDICT_REGISTER = 0
_VALUE, _VERDICT, _CODE, _CHAIN = 1, 2, 1, 2


def network(offset: int, length: int, register: int) -> bytes:
    """Bytes of the IP header."""
    return _payload(_NETWORK, offset, length, register)


def transport(offset: int, length: int, register: int) -> bytes:
    """Bytes of the header after IP's; a packet without them does not match."""
    return _payload(_TRANSPORT, offset, length, register)


def _payload(base: int, offset: int, length: int, register: int) -> bytes:
    return _expression("payload", _be(1, register), _be(2, base), _be(3, offset), _be(4, length))


def family(register: int) -> bytes:
    """IPV4 or IPV6, one byte."""
    return _expression("meta", _be(1, register), _be(2, _NFPROTO))


def protocol(register: int) -> bytes:
    """What IP carries, one byte; of IPv6 behind its extension headers."""
    return _expression("meta", _be(1, register), _be(2, _L4PROTO))


def input_name(register: int) -> bytes:
    """The name of the link that it came by, sixteen bytes."""
    return _expression("meta", _be(1, register), _be(2, _INPUT_NAME))


def output_name(register: int) -> bytes:
    """The name of the link that it leaves by, sixteen bytes."""
    return _expression("meta", _be(1, register), _be(2, _OUTPUT_NAME))


def packet_kind(register: int) -> bytes:
    """For whom the frame was: 0 this machine, 1 everybody, 2 a group, 3 another machine; one byte."""
    return _expression("meta", _be(1, register), _be(2, _PACKET_KIND))


def connection_state(register: int) -> bytes:
    return _expression("ct", _be(1, register), _be(2, 0))


def value(data: bytes, register: int) -> bytes:
    return _expression("immediate", _be(1, register), nested(2, attribute(_VALUE, data)))


def equal(register: int, data: bytes) -> bytes:
    return _expression("cmp", _be(1, register), _be(2, _EQUAL), nested(3, attribute(_VALUE, data)))


def unequal(register: int, data: bytes) -> bytes:
    return _expression("cmp", _be(1, register), _be(2, _UNEQUAL), nested(3, attribute(_VALUE, data)))


def between(register: int, first: bytes, last: bytes) -> bytes:
    """Neither before the first nor after the last, compared as network order has it."""
    ends = nested(3, attribute(_VALUE, first)), nested(4, attribute(_VALUE, last))
    return _expression("range", _be(1, register), _be(2, _EQUAL), *ends)


def masked(register: int, mask: bytes) -> bytes:
    """The bits of a register that a mask has; the others become zero."""
    none = nested(5, attribute(_VALUE, bytes(len(mask))))
    return _expression(
        "bitwise",
        *(_be(1, register), _be(2, register), _be(3, len(mask))),
        nested(4, attribute(_VALUE, mask)),
        none,
    )


def found(name: str, register: int) -> bytes:
    """Matches when the key in the registers is in the set."""
    return _expression("lookup", text(1, name), _be(2, register))


def mapped(name: str, register: int, into: int) -> bytes:
    """Matches when the map has the key, and loads its data."""
    return _expression("lookup", text(1, name), _be(2, register), _be(3, into))


def counter() -> bytes:
    return _expression("counter")


def verdict(words: str) -> bytes:
    """`accept`, `drop`, `return`, `jump CHAIN`, `goto CHAIN`."""
    word, _, chain = words.partition(" ")
    code = _be(_CODE, VERDICTS[word] & 0xFFFFFFFF)
    data = nested(_VERDICT, code, text(_CHAIN, chain) if chain else b"")
    return _expression("immediate", _be(1, _VERDICT_REGISTER), nested(2, data))


def listed(expressions: Sequence[bytes]) -> bytes:
    """The parts of one rule, in their order."""
    return b"".join(nested(_ELEMENT, each) for each in expressions)


def _expression(name: str, *parts: bytes) -> bytes:
    return text(_NAME, name) + nested(_DATA, *parts)


def _be(kind: int, number: int) -> bytes:
    return wire.attribute(kind, BE32.pack(number))
