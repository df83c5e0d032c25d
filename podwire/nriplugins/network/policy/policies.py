"""Parses NetworkPolicy objects. Pure; `Broken` names the invalid field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from weakref import WeakValueDictionary

from podwire.nriplugins.network.policy.spans import Network
from podwire.nriplugins.network.policy.values import PROTOCOLS
from podwire.objects.selectors import EVERYTHING, LabelSelector, from_object

INGRESS, EGRESS = "Ingress", "Egress"
DIRECTIONS = (INGRESS, EGRESS)

Key = tuple[str, str]
"""Namespace and name."""


class Broken(ValueError):
    """An invalid policy; API servers reject these."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


@dataclass(frozen=True, slots=True)
class PortMatch:
    protocol: int
    port: int | str | None = None
    """A number, a named port of a container, or any."""
    end: int | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Peer:
    """A peer that selects pods by labels of pods and namespaces. Equal peers are one object (`the`), for fast sets."""

    pods: LabelSelector
    namespace: str | None = None
    """Their namespace; None when a selector decides."""
    namespaces: LabelSelector = EVERYTHING
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.pods, self.namespace, self.namespaces)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def wide(self) -> bool:
        """Whether it matches all pods of each namespace that it matches."""
        return self.pods.everything


_PEERS: "WeakValueDictionary[Peer, Peer]" = WeakValueDictionary()


def the(peer: Peer) -> Peer:
    return _PEERS.setdefault(peer, peer)


EVERY_POD = the(Peer(EVERYTHING))


@dataclass(frozen=True, slots=True)
class Block:
    """An ipBlock: addresses, whichever pod has them."""

    network: Network
    excepts: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    peers: tuple[Peer | Block, ...] = ()
    """Any of these peers; everyone when empty."""
    ports: tuple[PortMatch, ...] = ()
    """Any of these ports; every protocol and port when empty."""


@dataclass(frozen=True, slots=True)
class Policy:
    namespace: str
    name: str
    pods: LabelSelector
    rules: Mapping[str, tuple[Rule, ...]]
    """Rules by direction; the policy does not isolate a missing direction."""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def policy_of(manifest: Mapping[str, Any]) -> Policy:
    """From a NetworkPolicy object. Raises Broken."""
    metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
    namespace = metadata.get("namespace", "")
    given = {INGRESS: spec.get("ingress") or [], EGRESS: spec.get("egress") or []}
    types = spec.get("policyTypes") or [INGRESS, *([EGRESS] if given[EGRESS] else [])]
    for index, type_ in enumerate(types):
        if type_ not in DIRECTIONS:
            raise Broken(f"spec.policyTypes[{index}]", f'Unsupported value: "{type_}"')
    rules = {
        direction: _rules(given[direction], direction, namespace) for direction in DIRECTIONS if direction in types
    }
    selected = selector_of(spec.get("podSelector") or {}, "spec.podSelector")
    return Policy(namespace, metadata.get("name", ""), selected, rules)


def _rules(given: Sequence[Mapping[str, Any]], direction: str, namespace: str) -> tuple[Rule, ...]:
    side = "from" if direction == INGRESS else "to"
    rules = []
    for index, rule in enumerate(given):
        where = f"spec.{direction.lower()}[{index}]"
        peers = [_peer(peer, namespace, f"{where}.{side}[{at}]") for at, peer in enumerate(rule.get(side) or [])]
        ports = [_port(port, f"{where}.ports[{at}]") for at, port in enumerate(rule.get("ports") or [])]
        rules.append(Rule(tuple(peers), tuple(ports)))
    return tuple(rules)


def _peer(given: Mapping[str, Any], namespace: str, where: str) -> Peer | Block:
    block, pods, namespaces = (given.get(key) for key in ("ipBlock", "podSelector", "namespaceSelector"))
    if block is not None:
        if pods is not None or namespaces is not None:
            raise Broken(where, "Forbidden: may not specify both ipBlock and another peer")
        return _block(block, f"{where}.ipBlock")
    if pods is None and namespaces is None:
        raise Broken(where, "Required value: must specify a peer")
    selected = EVERYTHING if pods is None else selector_of(pods, f"{where}.podSelector")
    if namespaces is None:
        return the(Peer(selected, namespace))
    return the(Peer(selected, None, selector_of(namespaces, f"{where}.namespaceSelector")))


def _block(given: Mapping[str, Any], where: str) -> Block:
    network = network_of(given.get("cidr"), f"{where}.cidr")
    excepts = []
    for index, except_ in enumerate(given.get("except") or []):
        without = network_of(except_, f"{where}.except[{index}]")
        if without.version != network.version or not _inside(without, network):
            raise Broken(f"{where}.except[{index}]", f'Invalid value: "{except_}": must be a strict subset of `cidr`')
        excepts.append(without)
    return Block(network, tuple(excepts))


def _inside(inner: Network, outer: Network) -> bool:
    first, last = int(outer.network_address), int(outer.broadcast_address)
    return first <= int(inner.network_address) <= last and inner.prefixlen > outer.prefixlen


def network_of(given: Any, where: str) -> Network:
    try:
        return ip_network(given, strict=False)
    except ValueError:
        raise Broken(where, f'Invalid value: "{given}": must be a valid CIDR value') from None


def _port(given: Mapping[str, Any], where: str) -> PortMatch:
    protocol, port, end = given.get("protocol") or "TCP", given.get("port"), given.get("endPort")
    if protocol not in PROTOCOLS:
        raise Broken(f"{where}.protocol", f'Unsupported value: "{protocol}"')
    if isinstance(port, int) and not 1 <= port <= 65535:
        raise Broken(f"{where}.port", f"Invalid value: {port}: must be between 1 and 65535, inclusive")
    if end is not None and not isinstance(port, int):
        raise Broken(f"{where}.endPort", f"Invalid value: {end}: may not be specified when `port` is not a number")
    if end is not None and isinstance(port, int) and not port <= end <= 65535:
        raise Broken(f"{where}.endPort", f"Invalid value: {end}: must be greater than or equal to `port`")
    return PortMatch(PROTOCOLS[protocol], port, end)


def selector_of(given: Mapping[str, Any], where: str) -> LabelSelector:
    try:
        return from_object(given)
    except ValueError as error:
        raise Broken(where, str(error)) from None
