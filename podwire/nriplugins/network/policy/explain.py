"""Explains why a packet passes or not: which policy and rule decides, in each direction. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.policies import EGRESS, INGRESS, Block, Peer, Policy, PortMatch, Rule
from podwire.nriplugins.network.policy.spans import Network
from podwire.nriplugins.network.policy.values import PROTOCOLS, Pod

End = Pod | IP
"""A pod, or an address."""
_NAMES = {number: name for name, number in PROTOCOLS.items()}


class Unknown(LookupError):
    """Unknown pod, or no address family that both ends share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of one end, in its direction."""

    direction: str
    allowed: bool
    reason: str
    policy: str = ""
    """The policy that allows, as namespace/name."""
    rule: str = ""
    """Its rule, as a field path: spec.ingress[0]."""
    policies: tuple[str, ...] = ()
    """All policies that isolate this end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    allowed: bool
    source: IP
    destination: IP
    port: int
    protocol: str
    judgements: tuple[Judgement, ...]

    def __str__(self) -> str:
        """Text for people."""
        what = self.protocol if not self.port else f"{self.protocol} {self.port}"
        head = f"{'allowed' if self.allowed else 'denied'}: {self.source} -> {self.destination} {what}"
        lines = [
            f"  {judgement.direction.lower()}: {'yes' if judgement.allowed else 'no'}, {judgement.reason}"
            for judgement in self.judgements
        ]
        return "\n".join([head, *lines])


def explain(
    model: Model,
    source: End,
    destination: End,
    port: int = 0,
    protocol: str = "TCP",
    *,
    family: int | None = None,
) -> Explained:
    """The verdict on the packet that opens a connection, after a Service's address was replaced.

    Port 0 with a protocol other than TCP, UDP and SCTP (ICMP, …) is anything without ports. Raises Unknown.
    """
    from_, to = _pair(_ips(model, source), _ips(model, destination), family)
    sender, receiver = (_pod(model, party) for party in (source, destination))
    number = PROTOCOLS.get(protocol, 0)
    judgements: tuple[Judgement, ...]
    if sender is not None and receiver is not None and sender.uid == receiver.uid:
        judgements = (Judgement(direction=INGRESS, allowed=True, reason="a pod can always reach itself"),)
    else:
        judgements = (
            _egress(model, sender, receiver, to, number, port),
            _ingress(model, sender, receiver, from_, number, port),
        )
    allowed = all(judgement.allowed for judgement in judgements)
    return Explained(allowed=allowed, source=from_, destination=to, port=port, protocol=protocol, judgements=judgements)


def end(model: Model, text: str) -> End:
    """`namespace/name` of a pod, or an address. Raises Unknown."""
    try:
        return ip_address(text)
    except ValueError:
        namespace, _, name = text.rpartition("/")
        pod = model.find(namespace or "default", name)
        if pod is None:
            raise Unknown(
                f"unknown pod {namespace or 'default'}/{name}; must be [NAMESPACE/]POD or an IP address"
            ) from None
        return pod


def _pod(model: Model, given: End) -> Pod | None:
    """The pod of an end; a pod on the host's network counts as its node."""
    pod = given if isinstance(given, Pod) else model.owner(given)
    return None if pod is None or pod.host_network else pod


def _pair(source: tuple[IP, ...], destination: tuple[IP, ...], family: int | None) -> tuple[IP, IP]:
    for to in destination:
        for from_ in source:
            if from_.version == to.version and family in (None, to.version):
                return from_, to
    raise Unknown("the two have no addresses of the same family")


def _ips(model: Model, given: End) -> tuple[IP, ...]:
    return model.addresses_of_pod(given) if isinstance(given, Pod) else (given,)


def _egress(model: Model, sender: Pod | None, receiver: Pod | None, to: IP, protocol: int, port: int) -> Judgement:
    if sender is None or sender.is_process:
        return Judgement(direction=EGRESS, allowed=True, reason="the sender is not a pod with a network of its own")
    return _decide(model, EGRESS, sender, receiver, to, receiver, protocol, port)


def _ingress(model: Model, sender: Pod | None, receiver: Pod | None, from_: IP, protocol: int, port: int) -> Judgement:
    if receiver is None or receiver.is_process:
        return Judgement(direction=INGRESS, allowed=True, reason="the receiver is not a pod with a network of its own")
    if (sender is None or sender.is_process) and from_ in model.node_addresses(receiver.node):
        return Judgement(direction=INGRESS, allowed=True, reason="a pod can always be reached from its own node")
    return _decide(model, INGRESS, receiver, sender, from_, receiver, protocol, port)


def _decide(
    model: Model,
    direction: str,
    own: Pod,
    other: Pod | None,
    address: IP,
    receiver: Pod | None,
    protocol: int,
    port: int,
) -> Judgement:
    policies = model.selected(own, direction)
    names = tuple(map(str, policies))
    if not policies:
        return Judgement(direction=direction, allowed=True, reason=f"no policy isolates {own} for {direction.lower()}")
    for policy, index, rule in _rules(policies, direction):
        if _meant(model, rule, other, address) and _port(rule.ports, receiver, protocol, port):
            where = f"spec.{direction.lower()}[{index}]"
            reason = f"{policy} {where} allows it"
            return Judgement(
                direction=direction, allowed=True, reason=reason, policy=str(policy), rule=where, policies=names
            )
    who = f"{len(names)} policies isolate" if len(names) > 1 else f"{names[0]} isolates"
    reason = f"{who} {own} for {direction.lower()} and no rule allows it"
    return Judgement(direction=direction, allowed=False, reason=reason, policies=names)


def _rules(policies: Iterable[Policy], direction: str) -> Iterator[tuple[Policy, int, Rule]]:
    for policy in policies:
        for index, rule in enumerate(policy.rules[direction]):
            yield policy, index, rule


def _meant(model: Model, rule: Rule, other: Pod | None, address: IP) -> bool:
    if not rule.peers:
        return True
    return any(
        _in_block(peer, address) if isinstance(peer, Block) else other is not None and _is_peer(model, peer, other)
        for peer in rule.peers
    )


def _is_peer(model: Model, peer: Peer, pod: Pod) -> bool:
    if peer.namespace is not None:
        namespace_matches = peer.namespace == pod.namespace
    else:
        namespace_matches = peer.namespaces.matches(model.identities.labels_of(pod.namespace))
    return namespace_matches and peer.pods.matches(pod.labels)


def _in_block(block: Block, address: IP) -> bool:
    return _in(block.network, address) and not any(_in(network, address) for network in block.excepts)


def _in(network: Network, address: IP) -> bool:
    return network.version == address.version and address in network


def _port(ports: tuple[PortMatch, ...], receiver: Pod | None, protocol: int, port: int) -> bool:
    return not ports or any(_is_port(policy_port, receiver, protocol, port) for policy_port in ports)


def _is_port(match: PortMatch, receiver: Pod | None, protocol: int, port: int) -> bool:
    if match.protocol != protocol:
        return False
    if match.port is None:
        return True
    if isinstance(match.port, str):
        return receiver is not None and receiver.ports.get((_NAMES[protocol], match.port)) == port
    return match.port <= port <= (match.end or match.port)
