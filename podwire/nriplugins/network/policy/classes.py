"""Classes: pods that the same policies isolate, and what these allow. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from podwire.nriplugins.network.policy.admin_policies import AdminPolicy
from podwire.nriplugins.network.policy.identities import Identity
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.policies import EVERY_POD, INGRESS, Block, Key, Peer, Policy, PortMatch
from podwire.nriplugins.network.policy.regions import Area
from podwire.nriplugins.network.policy.spans import EVERYTHING, NOTHING, Range, Span, Spans, cut, joined, layered, whole
from podwire.nriplugins.network.policy.values import PROTOCOL_NAMES, PROTOCOLS, NamedPort, Pod

ClassKey = tuple[str, frozenset[Key], frozenset[tuple[NamedPort, int]], frozenset[Key]]
"""Direction, policies, for ingress the pod's own named ports that the policies use, and admin policies."""


@dataclass(slots=True)
class _Allowance:
    """The ports that a peer or block may use: numbers, and names that are resolved at the destination."""

    spans: list[Spans] = field(default_factory=list)
    names: set[NamedPort] = field(default_factory=set)


class Class:
    """Everything that a set of policies allows in one direction."""

    def __init__(self, key: ClassKey, number: int, policies: Iterable[Policy]) -> None:
        self.key, self.number = key, number
        self.users: set[str] = set()
        self.peers: dict[Peer, _Allowance] = {}
        self.wide: dict[Peer, list[Spans]] = {}
        """Peers that are whole namespaces."""
        self._anyone: list[Spans] = []
        self._blocks: dict[Block, _Allowance] = {}
        own = dict(key[2])
        for policy in policies:
            for rule in policy.rules[key[0]]:
                self._take(rule.peers, *_resolved(rule.ports, own if key[0] == INGRESS else None))

    def _take(self, peers: tuple[Peer | Block, ...], spans: Spans, names: set[NamedPort]) -> None:
        if not peers:
            self._anyone.append(spans)
            if names:
                self.peers.setdefault(EVERY_POD, _Allowance()).names |= names
        for peer in peers:
            if isinstance(peer, Peer) and peer.wide:
                self.wide.setdefault(peer, []).append(spans)
                if names:
                    self.peers.setdefault(peer, _Allowance()).names |= names
                continue
            allowance = (
                self._blocks.setdefault(peer, _Allowance())
                if isinstance(peer, Block)
                else self.peers.setdefault(peer, _Allowance())
            )
            allowance.spans.append(spans)
            allowance.names |= names

    @property
    def by_address(self) -> bool:
        """Whether its blocks depend on the addresses of pods."""
        return any(block.names for block in self._blocks.values())

    def forget(self) -> None:
        """Labels of namespaces or nodes changed; called before `areas` is."""

    def anyone(self) -> Spans:
        return joined(self._anyone)

    def allowed(self, identity: Identity) -> Spans:
        """The ports that pods of an identity may use."""
        mine = [self.peers[peer] for peer in identity.peers if peer in self.peers]
        if not mine:
            return NOTHING
        named = (_at(peer.names, identity) for peer in mine if peer.names)
        return joined([*(spans for peer in mine for spans in peer.spans), *named])

    def allowed_to_all(self) -> Spans:
        """The ports that every pod of every namespace may use."""
        return joined(self.wide.get(EVERY_POD, ()))

    def allowed_to(self, space: int, model: Model) -> Spans:
        """The ports that all pods of a namespace may use."""
        meant = (peer for peer in self.wide if peer is not EVERY_POD and space in model.identities.spaces(peer))
        return joined(spans for peer in meant for spans in self.wide[peer])

    def spaces(self, model: Model) -> set[int]:
        """The namespaces that it matches."""
        return {number for peer in self.wide if peer is not EVERY_POD for number in model.identities.spaces(peer)}

    def areas(self, model: Model, version: int) -> Iterator[tuple[Range, tuple[Area, ...]]]:
        """The ports that addresses of a family (4, 6) may use, in disjoint ranges."""
        for range_, spans in self._ranges(model, version).items():
            yield range_, tuple(Area(protocol, protocol, first, last) for protocol, first, last in spans)

    def _ranges(self, model: Model, version: int) -> dict[Range, Spans]:
        parts: list[tuple[Range, Spans]] = []
        for block, allowance in self._blocks.items():
            if block.network.version == version:
                ranges, spans = cut(block.network, block.excepts), joined(allowance.spans)
                parts += [(range_, spans) for range_ in ranges]
                if allowance.names:
                    parts += _named_inside(model, ranges, allowance.names, version)
        return dict(layered(parts))


def class_key(model: Model, pod: Pod, direction: str) -> ClassKey | None:
    """The class of a pod; None when no policy is for it."""
    policies, admin_policies = model.selected(pod, direction), model.ordered(pod, direction)
    if not policies and not admin_policies:
        return None
    own: frozenset[tuple[NamedPort, int]] = frozenset()
    if direction == INGRESS and pod.ports:
        asked = {
            (PROTOCOL_NAMES[port.protocol], port.port)
            for ports in (*_ports(policies), *_ports(admin_policies))
            for port in ports
            if isinstance(port.port, str)
        }
        own = frozenset((name, number) for name, number in pod.ports.items() if name in asked)
    keys, admin_keys = ({policy.key for policy in kind} for kind in (policies, admin_policies))
    return direction, frozenset(keys), own, frozenset(admin_keys)


def _ports(policies: Iterable[Policy] | Iterable[AdminPolicy]) -> Iterator[tuple[PortMatch, ...]]:
    """The ports of each ingress rule."""
    return (rule.ports for policy in policies for rule in policy.rules[INGRESS])


def _resolved(ports: tuple[PortMatch, ...], own: dict[NamedPort, int] | None) -> tuple[Spans, set[NamedPort]]:
    """Spans, and the names to resolve at each destination; the pod's own names are resolved here."""
    if not ports:
        return EVERYTHING, set()
    spans, names = set(), set()
    for port in ports:
        if port.port is None:
            spans.add(whole(port.protocol))
        elif isinstance(port.port, int):
            spans.add(Span(port.protocol, port.port, port.end or port.port))
        elif own is None:
            names.add((PROTOCOL_NAMES[port.protocol], port.port))
        elif (PROTOCOL_NAMES[port.protocol], port.port) in own:
            number = own[PROTOCOL_NAMES[port.protocol], port.port]
            spans.add(Span(port.protocol, number, number))
    return frozenset(spans), names


def _at(names: Iterable[NamedPort], identity: Identity) -> Spans:
    ports = [(name[0], identity.ports[name]) for name in names if name in identity.ports]
    return frozenset(Span(PROTOCOLS[protocol], number, number) for protocol, number in ports)


def _named_inside(
    model: Model, ranges: list[Range], names: set[NamedPort], version: int
) -> Iterable[tuple[Range, Spans]]:
    """Pods with an address in a block, each with its own port of that name."""
    kind = IPv4Address if version == 4 else IPv6Address
    for address in model.addresses():
        if isinstance(address, kind) and any(range_.first <= int(address) <= range_.last for range_ in ranges):
            identity = model.identity_at(address)
            if identity is not None and (spans := _at(names, identity)):
                yield Range(int(address), int(address)), spans
