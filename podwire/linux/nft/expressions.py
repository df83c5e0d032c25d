"""The expressions of nft rules as bytes, in the form in which the kernel tells them back. No I/O.

A rule is a row of expressions: one loads something into registers, the next compares it and ends the rule when it is
not met, the last one decides. Attributes stand in the kernel's own order and without the flag of nests, so that what
is read can be compared with what was written.

Written by hand because the language of `nft` cannot say all that the kernel can do: a lookup in a map puts its answer
into a register, and that can be a part of the key of the next lookup.

There are sixteen registers of four bytes each, counted from 0; a longer value goes on into the next ones.
"""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from sys import byteorder

from podwire.linux.net import wire
from podwire.linux.net.wire import BE32, attribute, text

Expression = bytes
Network = IPv4Network | IPv6Network

VERDICTS = {"drop": 0, "accept": 1, "continue": -1, "jump": -3, "goto": -4, "return": -5}
TCP, UDP, SCTP = 6, 17, 132
LOCAL = 2
"""The type of an address that is the namespace's own."""
ESTABLISHED, RELATED, NEW = 1 << 1, 1 << 2, 1 << 3
"""Bits of a connection's state."""
DNAT = 1 << 5
"""A bit of its status: its destination was changed."""
_NAME, _DATA, _ELEMENT = 1, 2, 1
_VALUE, _VERDICT, _CODE, _CHAIN = 1, 2, 1, 2
_WORDS_IN_ONE, _SMALL = 4, 8
_EQUAL, _UNEQUAL = 0, 1
_META = {
    "mark": 3,
    "iif": 4,
    "iifname": 6,
    "oifname": 7,
    "skuid": 10,
    "skgid": 11,
    "nfproto": 15,
    "l4proto": 16,
    "pkttype": 19,
}
_CT = {"state": 0, "status": 2}
_NETWORK, _TRANSPORT = 1, 2
_ADDRESSES = {("source", 4): 12, ("destination", 4): 16, ("source", 6): 8, ("destination", 6): 24}
_PROTOCOL_FAMILY = {4: 2, 6: 10}
_ADDRESS_AND_PORT, _PORT_ONLY = 3, 2


def rule(*expressions: Expression) -> bytes:
    return b"".join(attribute(_ELEMENT, expression) for expression in expressions)


def expressions_of(packed: bytes) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Name and attributes of each expression of a rule."""
    for _, expression in wire.iter_attributes(packed):
        parts = wire.attributes(expression)
        yield wire.string(parts.get(_NAME, b"")), wire.attributes(parts.get(_DATA, b""))


def same(ours: bytes, theirs: bytes) -> bool:
    """Whether a rule that was read is one that we would write; kernels may report more of it than was written."""
    if ours == theirs:
        return True
    mine, found = list(expressions_of(ours)), list(expressions_of(theirs))
    return len(mine) == len(found) and all(
        name == other and wanted.items() <= has.items()
        for (name, wanted), (other, has) in zip(mine, found, strict=True)
    )


def _expression(name: str, *attributes: bytes) -> Expression:
    return text(_NAME, name) + attribute(_DATA, b"".join(attributes))


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, BE32.pack(value & 0xFFFFFFFF))


def _register(kind: int, number: int) -> bytes:
    """By the number that the kernel tells: each fourth has one of its own, from when there were only these."""
    whole, inside = divmod(number, _WORDS_IN_ONE)
    return _u32(kind, _SMALL + number if inside else 1 + whole)


def _value(kind: int, value: bytes) -> bytes:
    return attribute(kind, attribute(_VALUE, value))


def meta(key: str, register: int = 0) -> Expression:
    """Load what is known of the packet besides its bytes."""
    return _expression("meta", _u32(2, _META[key]), _register(1, register))


def conntrack(key: str, register: int = 0) -> Expression:
    return _expression("ct", _register(1, register), _u32(2, _CT[key]))


def network(offset: int, length: int, register: int = 0) -> Expression:
    """Load bytes of the IP header."""
    return _payload(_NETWORK, offset, length, register)


def transport(offset: int, length: int, register: int = 0) -> Expression:
    """Load bytes of the header after IP's; a packet without them does not match."""
    return _payload(_TRANSPORT, offset, length, register)


def _payload(header: int, offset: int, length: int, register: int) -> Expression:
    return _expression("payload", _register(1, register), _u32(2, header), _u32(3, offset), _u32(4, length))


def destination_type(register: int = 0) -> Expression:
    """Load whose the packet's destination is, see `LOCAL`."""
    by_destination, kind_of = 2, 3
    return _expression("fib", _register(1, register), _u32(2, kind_of), _u32(3, by_destination))


def source_type(register: int = 0) -> Expression:
    """Load whose the packet's source is, see `LOCAL`."""
    by_source, kind_of = 1, 3
    return _expression("fib", _register(1, register), _u32(2, kind_of), _u32(3, by_source))


def value(data: bytes, register: int = 0) -> Expression:
    """Load a constant."""
    return _expression("immediate", _register(1, register), _value(2, data))


def masked(mask: bytes, register: int = 0) -> Expression:
    """Keep these bits of what was loaded; the others become zero."""
    mask_and_flip = 0
    where = _register(1, register), _register(2, register), _u32(3, len(mask)), _u32(6, mask_and_flip)
    return _expression("bitwise", *where, _value(4, mask), _value(5, bytes(len(mask))))


def equals(data: bytes, register: int = 0) -> Expression:
    return _expression("cmp", _register(1, register), _u32(2, _EQUAL), _value(3, data))


def differs(data: bytes, register: int = 0) -> Expression:
    return _expression("cmp", _register(1, register), _u32(2, _UNEQUAL), _value(3, data))


def between(first: bytes, last: bytes, register: int = 0) -> Expression:
    """Neither before the first nor after the last, compared as network order has it."""
    return _expression("range", _register(1, register), _u32(2, _EQUAL), _value(3, first), _value(4, last))


def found(name: str, register: int = 0) -> Expression:
    """Matches when the key in the registers is in the set."""
    return _expression("lookup", text(1, name), _register(2, register))


def missing(name: str, register: int = 0) -> Expression:
    """Matches when the key in the registers is not in the set."""
    inverted = 1
    return _expression("lookup", text(1, name), _register(2, register), _u32(5, inverted))


def mapped(name: str, register: int, into: int) -> Expression:
    """Matches when the map has the key, and loads its data."""
    return _expression("lookup", text(1, name), _register(2, register), _register(3, into))


def dispatched(name: str, register: int = 0) -> Expression:
    """Matches when the map has the key, and follows its verdict."""
    return _expression("lookup", text(1, name), _register(2, register), _u32(3, 0))


def random_number(below: int, register: int = 0) -> Expression:
    """Load a random number from 0 on, as 32 bits in the byte order of the host."""
    at_random = 1
    return _expression("numgen", _register(1, register), _u32(2, below), _u32(3, at_random), _u32(4, 0))


def remembered(name: str, key: int, data: int, milliseconds: int) -> Expression:
    """Add the key with its data to a map, or make the element that has the key last as long again; its data stays.

    Does not match when the map is full.
    """
    update, lifetime = 1, milliseconds.to_bytes(8, "big")
    registers = _register(4, key), _register(5, data)
    return _expression("dynset", text(1, name), _u32(3, update), *registers, attribute(6, lifetime))


def forgotten(name: str, key: int, data: int) -> Expression:
    """Delete the key from a map; the register of data is required, but not compared."""
    delete = 2
    return _expression("dynset", text(1, name), _u32(3, delete), _register(4, key), _register(5, data))


def within(side: str, network_: Network) -> tuple[Expression, ...]:
    """The packet's source or destination is in a network; no packet of the other family is."""
    if network_.prefixlen == 0:
        return family(network_.version)
    packed, mask = network_.network_address.packed, network_.netmask.packed
    load = network(_ADDRESSES[side, network_.version], len(packed))
    narrowed = () if network_.prefixlen == network_.max_prefixlen else (masked(mask),)
    return *family(network_.version), load, *narrowed, equals(packed)


def family(version: int) -> tuple[Expression, ...]:
    """The packet is of IPv4 or IPv6 (4, 6)."""
    return meta("nfproto"), equals(bytes((_PROTOCOL_FAMILY[version],)))


def counter() -> Expression:
    return _expression("counter")


def verdict(words: str) -> Expression:
    """`accept`, `drop`, `return`, `jump CHAIN`, `goto CHAIN`."""
    return _expression("immediate", _u32(1, 0), attribute(2, decision(words)))


def decision(words: str) -> bytes:
    """A verdict as data, as maps have it too."""
    word, _, chain = words.partition(" ")
    code = _u32(_CODE, VERDICTS[word])
    return attribute(_VERDICT, code + (text(_CHAIN, chain) if chain else b""))


def set_mark(bits: int, *, on: bool) -> tuple[Expression, ...]:
    """Set or clear these bits of the packet's mark, and keep the others."""
    keep, flip = (~bits & 0xFFFFFFFF).to_bytes(4, byteorder), (bits if on else 0).to_bytes(4, byteorder)
    where = _register(1, 0), _register(2, 0), _u32(3, 4), _u32(6, 0)
    changed = _expression("bitwise", *where, _value(4, keep), _value(5, flip))
    return meta("mark"), changed, _expression("meta", _u32(2, _META["mark"]), _register(3, 0))


def masquerade(*, random_ports: bool = False) -> Expression:
    """To come from the host's own address; only in chains of nat."""
    fully_random = 1 << 4
    return _expression("masq", *([_u32(1, fully_random)] if random_ports else []))


def reset() -> Expression:
    """Answer a TCP packet with a reset."""
    return _expression("reject", _u32(1, 1))


def reject() -> Expression:
    """Answer with ICMP that nobody listens at the port, for IPv4 and IPv6."""
    for_both, port_unreachable = 2, b"\1"
    return _expression("reject", _u32(1, for_both), attribute(2, port_unreachable))


def redirect(port: int) -> tuple[Expression, ...]:
    """To a port of the namespace itself: of the loopback when the packet is leaving, else of the link it came by."""
    return value(port.to_bytes(2, "big")), _expression("redir", _register(1, 0), _register(2, 0), _u32(3, _PORT_ONLY))


def translated(version: int, address: int, port: int) -> Expression:
    """To the address and the port in these registers; only in rules for that family."""
    registers = _register(3, address), _register(4, address), _register(5, port), _register(6, port)
    destination = 1
    where = _u32(1, destination), _u32(2, _PROTOCOL_FAMILY[version])
    return _expression("nat", *where, *registers, _u32(7, _ADDRESS_AND_PORT))


def destined(version: int, address: bytes, port: int) -> tuple[Expression, ...]:
    """To another address and port; only in rules for that family."""
    to, at = 0, _WORDS_IN_ONE
    loads = value(address, to), value(port.to_bytes(2, "big"), at)
    registers = _register(3, to), _register(4, to), _register(5, at), _register(6, at)
    destination = 1
    where = _u32(1, destination), _u32(2, _PROTOCOL_FAMILY[version])
    return *loads, _expression("nat", *where, *registers, _u32(7, _ADDRESS_AND_PORT))
