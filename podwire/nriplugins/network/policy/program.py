"""The nft rules: a fixed number, however many policies and pods there are. Pure.

A packet of a connection that was allowed passes (established flows are kept). Else the pod that sends is looked up, and
if it is isolated its class and who is at the other end are looked up together; then the same for the pod that receives.
What is not found is dropped.

Keys begin with a field of zeros: together with the next three it is loaded as one constant, on top of which lookups put
their answers. So what is not looked up is 0, which stands for any; and the `nft` program, which does not know lookups
that feed lookups and would end in an assertion, sees a constant there.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from podwire.linux.nft import expressions as do
from podwire.linux.nft.tables import (
    ADDRESS4,
    ADDRESS6,
    FORWARD,
    INPUT,
    LINK_NAME,
    NUMBER,
    OUTPUT,
    PORT,
    PROTOCOL,
    TWO_NUMBERS,
    Chain,
    Field,
    Set,
    Table,
)
from podwire.nriplugins.network.policy.content import ALLOWED, LINKS, RANGED, ROUTED, SEGMENTS, VERDICTS
from podwire.nriplugins.network.policy.identities import ANY_POD
from podwire.nriplugins.network.policy.policies import EGRESS, INGRESS

TABLE = "podwire-policy"
NODE = {4: "node4", 6: "node6"}
"""Only inside a pod's namespace: addresses that may always come in."""

_R = 0
"""The first register: keys begin there."""
_CLASS, _WHO, _PROTOCOL, _PORT = _R + 1, _R + 2, _R + 3, _R + 4
_ASIDE = _R + 12
_PRIORITY = 5
_STATE = Struct("=I")
_UDP, _ICMPV6 = 17, 58
_BROADCAST, _MULTICAST = 1, 2
_DHCP = 67, 68
_SOURCE, _DESTINATION = {4: 12, 6: 8}, {4: 16, 6: 24}
_LENGTH = {4: 4, 6: 16}

Rule = Sequence[bytes]


def node_program() -> Table:
    """For packets that the node forwards, and those of pods to the node; the node's own packets are not filtered."""
    came_by = [do.meta("iifname", _R), do.found(LINKS, _R)]
    chains = [*_common()]
    chains.append(_entry("forward", FORWARD, [*came_by, do.verdict("jump many")]))
    chains.append(_entry("input", INPUT, [*came_by, do.verdict("jump near")]))
    for version in (4, 6):
        ask = {direction: _ask(direction, version) for direction in (EGRESS, INGRESS)}
        bound = [do.meta("iifname", _R), do.found(ROUTED, _R), do.verdict(f"jump source{version}")]
        chains.append(_chain(f"forward{version}", [_own(version), bound, ask[EGRESS], ask[INGRESS]]))
        chains.append(_chain(f"input{version}", [bound, ask[EGRESS]]))
        chains.append(_chain(f"source{version}", [*_source(version)]))
    return Table(TABLE, chains, _sets())


def pod_program() -> Table:
    """The same for the namespace of a pod without a link to the node."""
    came, goes = ([do.meta(key, _R), do.found(LINKS, _R)] for key in ("iifname", "oifname"))
    chains = [*_common()]
    chains.append(_entry("input", INPUT, [*came, do.verdict("jump many")]))
    chains.append(_entry("output", OUTPUT, [*goes, do.verdict("jump near")]))
    for version in (4, 6):
        from_node = [*_address(_SOURCE, version, _R), do.found(NODE[version], _R), do.verdict("accept")]
        chains.append(_chain(f"input{version}", [from_node, _own(version), _ask(INGRESS, version)]))
        chains.append(_chain(f"output{version}", [_looped(version), _own(version), _ask(EGRESS, version)]))
    node = [Set(NODE[version], (_field(version),)) for version in (4, 6)]
    return Table(TABLE, chains, [*_sets(), *node])


def _chain(name: str, rules: Iterable[Rule]) -> Chain:
    return Chain(name, tuple(do.rule(*rule) for rule in rules))


def _field(version: int) -> Field:
    return ADDRESS4 if version == 4 else ADDRESS6


def _sets() -> list[Set]:
    sets = [
        Set(ALLOWED, (NUMBER, NUMBER, NUMBER, PROTOCOL, PORT)),
        Set(SEGMENTS, (PROTOCOL, PORT), NUMBER, ranges=True),
        Set(RANGED, (NUMBER, NUMBER, NUMBER, NUMBER)),
        Set("blocks4", (NUMBER, NUMBER, ADDRESS4, PROTOCOL, PORT), ranges=True),
        Set("blocks6", (NUMBER, NUMBER, PROTOCOL, PORT, ADDRESS6), ranges=True),
        Set(LINKS, (LINK_NAME,)),
        Set(ROUTED, (LINK_NAME,)),
    ]
    for version in (4, 6):
        field = _field(version)
        sets.append(Set(f"identity{version}", (field,), TWO_NUMBERS))
        sets += [Set(f"{name}{version}", (field,), NUMBER) for name in ("ingress", "egress")]
        sets.append(Set(f"self{version}", (field, field)))
        sets.append(Set(f"sources{version}", (LINK_NAME, field)))
        sets.append(Set(f"verdicts{version}", (field, NUMBER), counted=True))
    return sets


def _entry(name: str, hook: int, guard: Rule) -> Chain:
    """The base chain: established connections pass, then the rules of the address family follow."""
    known = _STATE.pack(do.ESTABLISHED | do.RELATED)
    rules: list[Rule] = [
        [do.conntrack("state"), do.masked(known), do.differs(bytes(4)), do.verdict("accept")],
        [*do.family(6), do.verdict("jump neighbours")],
        guard,
        *([*do.family(version), do.verdict(f"goto {name}{version}")] for version in (4, 6)),
    ]
    return _chain(name, rules)._replace(hook=hook, priority=_PRIORITY)


def _common() -> Iterable[Chain]:
    yield _chain("neighbours", [*_neighbours()])
    yield _chain("many", [*_many(), *_near()])
    yield _chain("near", [*_near()])
    for version in (4, 6):
        for direction in (INGRESS, EGRESS):
            yield _judge(direction, version)
            yield _chain(_allowed(direction, version), [_counted(direction, version, allowed=True)])


def _neighbours() -> Iterable[Rule]:
    """Accepts IPv6 neighbour discovery and MLD, which bridges forward like other packets."""
    kind = [do.meta("l4proto"), do.equals(bytes((_ICMPV6,))), do.transport(0, 1)]
    for first, last in ((130, 133), (135, 136), (143, 143)):
        yield [*kind, do.between(bytes((first,)), bytes((last,))), do.verdict("accept")]


def _many() -> Iterable[Rule]:
    """Drops multicast and broadcast to isolated pods, because it has no receiver to look up; DHCP passes."""
    everybody = [do.meta("pkttype"), do.equals(bytes((_BROADCAST,)))]
    for port in _DHCP:
        carried = [do.meta("l4proto"), do.equals(bytes((_UDP,))), do.transport(2, 2)]
        yield [*everybody, *carried, do.equals(port.to_bytes(2, "big")), do.verdict("accept")]
    yield [*everybody, do.verdict("drop")]
    yield [do.meta("pkttype"), do.equals(bytes((_MULTICAST,))), do.verdict("drop")]


def _near() -> Iterable[Rule]:
    """Drops link-local addresses, because they identify no pod."""
    for side in (_SOURCE, _DESTINATION):
        local = [do.network(side[6], 2), do.masked(b"\xff\xc0"), do.equals(b"\xfe\x80")]
        yield [*do.family(6), *local, do.verdict("drop")]


def _source(version: int) -> Iterable[Rule]:
    both = [do.meta("iifname", _R), *_address(_SOURCE, version, _R + 4)]
    yield [*both, do.found(f"sources{version}", _R), do.verdict("return")]
    yield [do.counter(), do.verdict("drop")]


def _address(side: dict[int, int], version: int, register: int) -> list[bytes]:
    return [do.network(side[version], _LENGTH[version], register)]


def _own(version: int) -> Rule:
    """A pod can always reach itself, also through a Service."""
    there = _R + _LENGTH[version] // 4
    both = [*_address(_SOURCE, version, _R), *_address(_DESTINATION, version, there)]
    return [*both, do.found(f"self{version}", _R), do.verdict("accept")]


def _looped(version: int) -> Rule:
    """Accepts packets within the namespace, also when they are redirected to a proxy."""
    if version == 4:
        to_self = [do.network(16, 1), do.equals(bytes((127,)))]
    else:
        to_self = [do.network(24, 16), do.equals(bytes(15) + b"\1")]
    return [*to_self, do.verdict("accept")]


def _sides(direction: str) -> tuple[dict[int, int], dict[int, int]]:
    """The offsets of the pod's own address and of the peer's."""
    return (_DESTINATION, _SOURCE) if direction == INGRESS else (_SOURCE, _DESTINATION)


def _ask(direction: str, version: int) -> Rule:
    own, _ = _sides(direction)
    isolated = [*_address(own, version, _ASIDE), do.mapped(f"{direction.lower()}{version}", _ASIDE, _R)]
    return [*isolated, do.verdict(f"jump {_name(direction, version)}")]


def _name(direction: str, version: int) -> str:
    return f"{direction.lower()}{version}-judge"


def _allowed(direction: str, version: int) -> str:
    return f"{direction.lower()}{version}-allowed"


def _judge(direction: str, version: int) -> Chain:
    """A peer in any of these sets is allowed; the most frequent match comes first."""
    parties = [_party(direction, version, name) for name in ("identity", "namespace", "pod", "anyone")]
    ways: list[Rule] = [[*party, *ports, do.found(ALLOWED, _R)] for ports in (_PORTS, _ANYTHING) for party in parties]
    ways += [[*_place(direction, version, exact), do.found(f"blocks{version}", _R)] for exact in (True, False)]
    ways += [[*party, *_SEGMENT, do.found(RANGED, _R)] for party in parties]
    allowed = do.verdict(f"goto {_allowed(direction, version)}")
    last = [_counted(direction, version, allowed=False), [do.verdict("drop")]]
    return _chain(_name(direction, version), [*([*way, allowed] for way in ways), *last])


_PORTS = (do.meta("l4proto", _PROTOCOL), do.transport(2, 2, _PORT))
_ANYTHING = (do.value(bytes(4), _PROTOCOL), do.value(bytes(2), _PORT))
_SEGMENT = (do.meta("l4proto", _ASIDE), do.transport(2, 2, _ASIDE + 1), do.mapped(SEGMENTS, _ASIDE, _PROTOCOL))


def _party(direction: str, version: int, who: str) -> Rule:
    """Loads the class and the peer's identity. The map has namespace and identity side by side: where its answer is put
    decides which of the two is in its place, and what lies beside it is written over."""
    own, other = _sides(direction)
    class_ = [*_address(own, version, _ASIDE), do.mapped(f"{direction.lower()}{version}", _ASIDE, _CLASS)]
    there, known = _address(other, version, _ASIDE), f"identity{version}"
    party = {
        "identity": [*there, do.mapped(known, _ASIDE, _CLASS)],
        "namespace": [*there, do.mapped(known, _ASIDE, _WHO)],
        "pod": [*there, do.mapped(known, _ASIDE, _CLASS), do.value(_STATE.pack(ANY_POD), _WHO)],
        "anyone": [],
    }[who]
    return [do.value(bytes(16), _R), *party, *class_]


def _place(direction: str, version: int, exact: bool) -> Rule:
    """Loads the class and the peer's address. IPv6 has it at the end of the key, behind the constant."""
    _, other = _sides(direction)
    class_ = _party(direction, version, "anyone")
    if version == 4:
        return [*class_, *_address(other, 4, _WHO), *(_PORTS if exact else _ANYTHING)]
    ports = [do.meta("l4proto", _R + 2), do.transport(2, 2, _R + 3)] if exact else []
    return [*class_, *ports, *_address(other, 6, _R + 4)]


def _counted(direction: str, version: int, *, allowed: bool) -> Rule:
    own, _ = _sides(direction)
    verdict = _STATE.pack(VERDICTS[direction, allowed])
    there = _R + _LENGTH[version] // 4
    return [*_address(own, version, _R), do.value(verdict, there), do.found(f"verdicts{version}", _R)]
