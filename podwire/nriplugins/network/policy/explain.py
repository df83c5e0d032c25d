"""Explains why a packet passes or not: which policy and rule decides, in each direction. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.admin_policies import ADMIN, ALLOW, BASELINE, PASS, AdminPolicy, OrderedRule
from podwire.nriplugins.network.policy.matching import has_port, meets
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.policies import EGRESS, INGRESS, Policy, Rule
from podwire.nriplugins.network.policy.values import PROTOCOLS, Pod

End = Pod | IP
"""A pod, or an address."""


class Unknown(LookupError):
    """Unknown pod, or no address family that both ends share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of one end, in its direction."""

    direction: str
    allowed: bool
    reason: str
    policy: str = ""
    """The policy that decides: namespace/name, or kind and name of an admin policy."""
    rule: str = ""
    """Its rule, as a field path: spec.ingress[0]."""
    policies: tuple[str, ...] = ()
    """All policies that are for this end."""


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
    """The first admin policy that matches decides, then NetworkPolicies if they isolate, then the baseline."""
    policies, admin_policies = model.selected(own, direction), model.ordered(own, direction)
    baseline = [policy for policy in admin_policies if policy.kind == BASELINE]
    names, named = tuple(map(str, (*policies, *admin_policies))), None if receiver is None else receiver.ports

    def first(candidates: Iterable[Policy | AdminPolicy]) -> _Match | None:
        for policy in candidates:
            rules: Sequence[Rule | OrderedRule] = policy.rules[direction]
            for index, rule in enumerate(rules):
                if meets(model, rule, other, address) and has_port(rule.ports, named, protocol, port):
                    return _Match(str(policy), f"spec.{direction.lower()}[{index}]", rule)
        return None

    found, passed = first(policy for policy in admin_policies if policy.kind == ADMIN), ""
    if found is not None and found.action == PASS:
        passed, found = f"{found} passes it on; ", None
    if found is None:
        found = first(policies or baseline)
    if found is not None:
        allowed = found.action == ALLOW
        reason = f"{passed}{found} {'allows' if allowed else 'denies'} it"
        return Judgement(
            direction=direction, allowed=allowed, reason=reason, policy=found.policy, rule=found.where, policies=names
        )
    if not policies:
        reason = f"{passed}no policy isolates {own} for {direction.lower()}"
        return Judgement(direction=direction, allowed=True, reason=reason, policies=names)
    who = f"{len(policies)} policies isolate" if len(policies) > 1 else f"{policies[0]} isolates"
    reason = f"{passed}{who} {own} for {direction.lower()} and no rule allows it"
    return Judgement(direction=direction, allowed=False, reason=reason, policies=names)


class _Match(NamedTuple):
    """A rule that matches a packet."""

    policy: str
    where: str
    rule: Rule | OrderedRule

    @property
    def action(self) -> str:
        return self.rule.action if isinstance(self.rule, OrderedRule) else ALLOW

    def __str__(self) -> str:
        named = isinstance(self.rule, OrderedRule) and self.rule.name
        return f"{self.policy} {self.where}" + (f' "{named}"' if named else "")
