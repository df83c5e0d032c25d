"""The expressions of nft rules as bytes, in the form in which the kernel tells them back. No I/O.

A rule is a row of expressions: one loads something into a register, the next compares it and ends the rule when it is
not met, the last one decides. Attributes stand in the kernel's own order and without the flag of nests, so that what
is read can be compared with what was written.
"""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network

from podwire.linux import wire
from podwire.linux.wire import BE32, attribute

Expression = bytes
Network = IPv4Network | IPv6Network

TCP = 6
LOCAL = 2
"""The type of an address that is the namespace's own."""
NEW, DNAT = 1 << 3, 1 << 5
"""A connection's state, and a bit of its status: its destination was changed."""
_NAME, _DATA, _ELEMENT = 1, 2, 1
_REGISTER = 1
_EQUAL, _UNEQUAL = 0, 1
_META = {"mark": 3, "iif": 4, "skuid": 10, "skgid": 11, "nfproto": 15, "l4proto": 16}
_CT = {"state": 0, "status": 2}
_HEADERS = {"network": 1, "transport": 2}
_ADDRESSES = {("source", 4): 12, ("destination", 4): 16, ("source", 6): 8, ("destination", 6): 24}
_PROTOCOL_FAMILY = {4: 2, 6: 10}
_VERDICTS = {"drop": 0, "accept": 1, "return": -5}
_ADDRESS_AND_PORT, _PORT_ONLY = 3, 2


def told(packed: bytes) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Name and attributes of each expression of a rule."""
    for _, each in wire.each_attribute(packed):
        parts = wire.attributes(each)
        yield wire.string(parts.get(_NAME, b"")), wire.attributes(parts.get(_DATA, b""))


def same(ours: bytes, theirs: bytes) -> bool:
    """Whether a rule that was read is one that we would write; kernels may tell more of it than they were told."""
    if ours == theirs:
        return True
    mine, found = list(told(ours)), list(told(theirs))
    return len(mine) == len(found) and all(
        name == other and wanted.items() <= has.items()
        for (name, wanted), (other, has) in zip(mine, found, strict=True)
    )


def rule(*expressions: Expression) -> bytes:
    return b"".join(expressions)


def _expression(name: str, *attributes: bytes) -> Expression:
    return attribute(_ELEMENT, wire.text(_NAME, name) + attribute(_DATA, b"".join(attributes)))


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, BE32.pack(value & 0xFFFFFFFF))


def _value(kind: int, value: bytes) -> bytes:
    return attribute(kind, attribute(1, value))


def meta(key: str) -> Expression:
    """Load what is known of the packet besides its bytes."""
    return _expression("meta", _u32(2, _META[key]), _u32(1, _REGISTER))


def conntrack(key: str) -> Expression:
    return _expression("ct", _u32(1, _REGISTER), _u32(2, _CT[key]))


def payload(header: str, offset: int, length: int) -> Expression:
    return _expression("payload", _u32(1, _REGISTER), _u32(2, _HEADERS[header]), _u32(3, offset), _u32(4, length))


def masked(mask: bytes) -> Expression:
    """Keep these bits of what was loaded."""
    mask_and_flip = 0
    where = _u32(1, _REGISTER), _u32(2, _REGISTER), _u32(3, len(mask)), _u32(6, mask_and_flip)
    return _expression("bitwise", *where, _value(4, mask), _value(5, bytes(len(mask))))


def equals(value: bytes) -> Expression:
    return _expression("cmp", _u32(1, _REGISTER), _u32(2, _EQUAL), _value(3, value))


def differs(value: bytes) -> Expression:
    return _expression("cmp", _u32(1, _REGISTER), _u32(2, _UNEQUAL), _value(3, value))


def destination_type() -> Expression:
    """Load whose the packet's destination is, see `LOCAL`."""
    by_address, kind_of = 2, 3
    return _expression("fib", _u32(1, _REGISTER), _u32(2, kind_of), _u32(3, by_address))


def within(side: str, network: Network) -> tuple[Expression, ...]:
    """The packet's source or destination is in a network; no packet of the other family is."""
    if network.prefixlen == 0:
        return family(network.version)
    packed, mask = network.network_address.packed, network.netmask.packed
    load = payload("network", _ADDRESSES[side, network.version], len(packed))
    narrowed = () if network.prefixlen == network.max_prefixlen else (masked(mask),)
    return *family(network.version), load, *narrowed, equals(packed)


def family(version: int) -> tuple[Expression, ...]:
    """The packet is of IPv4 or IPv6 (4, 6)."""
    return meta("nfproto"), equals(bytes((_PROTOCOL_FAMILY[version],)))


def verdict(word: str) -> Expression:
    code = attribute(2, _u32(1, _VERDICTS[word]))
    return _expression("immediate", _u32(1, 0), attribute(2, code))


def reset() -> Expression:
    """Answer a TCP packet with a reset."""
    return _expression("reject", _u32(1, 1))


def redirect(port: int) -> tuple[Expression, ...]:
    """To a port of the namespace itself: of the loopback when the packet is leaving, else of the link it came by."""
    load = _expression("immediate", _u32(1, _REGISTER), _value(2, port.to_bytes(2, "big")))
    return load, _expression("redir", _u32(1, _REGISTER), _u32(2, _REGISTER), _u32(3, _PORT_ONLY))


def destined(version: int, address: bytes, port: int) -> tuple[Expression, ...]:
    """To another address and port; only in rules for that family."""
    loads = (
        _expression("immediate", _u32(1, _REGISTER), _value(2, address)),
        _expression("immediate", _u32(1, _REGISTER + 1), _value(2, port.to_bytes(2, "big"))),
    )
    registers = _u32(3, 1), _u32(4, 1), _u32(5, 2), _u32(6, 2)
    destination = 1
    where = _u32(1, destination), _u32(2, _PROTOCOL_FAMILY[version])
    return *loads, _expression("nat", *where, *registers, _u32(7, _ADDRESS_AND_PORT))
