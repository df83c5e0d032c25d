"""Matches peers and ports of rules with one packet. Pure."""

from collections.abc import Iterable, Mapping

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.admin_policies import Nodes, OrderedRule
from podwire.nriplugins.network.policy.identities import Identity
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.policies import Block, Peer, PortMatch, Rule
from podwire.nriplugins.network.policy.spans import Network
from podwire.nriplugins.network.policy.values import PROTOCOL_NAMES, NamedPort, Pod

Party = Pod | Identity | None
"""The pod at the other end; None for an address that no pod has."""


def meets(model: Model, rule: Rule | OrderedRule, party: Party, address: IP) -> bool:
    """Whether a rule is for the other end of a connection."""
    if isinstance(rule, OrderedRule):
        return rule.is_for_everyone or _any(model, rule.peers, party, address)
    return not rule.peers or _any(model, rule.peers, party, address)


def _any(model: Model, peers: Iterable[Peer | Block | Nodes], party: Party, address: IP) -> bool:
    return any(
        party is not None and is_peer(model, peer, party) if isinstance(peer, Peer) else is_at(model, peer, address)
        for peer in peers
    )


def is_peer(model: Model, peer: Peer, pod: Pod | Identity) -> bool:
    if peer.namespace is not None:
        namespace_matches = peer.namespace == pod.namespace
    else:
        namespace_matches = peer.namespaces.matches(model.identities.labels_of(pod.namespace))
    return namespace_matches and peer.pods.matches(pod.labels)


def is_at(model: Model, peer: Block | Nodes, address: IP) -> bool:
    """Whether a peer of addresses has this one."""
    if isinstance(peer, Nodes):
        return address in model.addresses_of_nodes(peer.selector)
    return _in(peer.network, address) and not any(_in(network, address) for network in peer.excepts)


def _in(network: Network, address: IP) -> bool:
    return network.version == address.version and address in network


def has_port(
    matches: tuple[PortMatch, ...], receiver: Mapping[NamedPort, int] | None, protocol: int, port: int
) -> bool:
    """Whether the ports of a rule include one; `receiver` are the named ports of the pod that receives."""
    return not matches or any(_is_port(match, receiver, protocol, port) for match in matches)


def _is_port(match: PortMatch, receiver: Mapping[NamedPort, int] | None, protocol: int, port: int) -> bool:
    if match.protocol != protocol:
        return False
    if match.port is None:
        return True
    if isinstance(match.port, str):
        return receiver is not None and receiver.get((PROTOCOL_NAMES[protocol], match.port)) == port
    return match.port <= port <= (match.end or match.port)
