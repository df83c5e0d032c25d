"""Parses AdminNetworkPolicy and BaselineAdminNetworkPolicy (policy.networking.k8s.io/v1alpha1). Pure.

Their rules are ordered, and the first that matches a connection decides. A rule that cannot be read, such as one with a
peer of a newer version, fails closed as the API demands: Allow matches nothing, Deny and Pass deny everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.nriplugins.network.policy.policies import (
    DIRECTIONS,
    INGRESS,
    Block,
    Broken,
    Key,
    Peer,
    PortMatch,
    network_of,
    selector_of,
    the,
)
from podwire.nriplugins.network.policy.values import PROTOCOLS
from podwire.objects.selectors import EVERYTHING, LabelSelector

ALLOW, DENY, PASS = "Allow", "Deny", "Pass"
ADMIN, BASELINE = "AdminNetworkPolicy", "BaselineAdminNetworkPolicy"
_ACTIONS = {ADMIN: (ALLOW, DENY, PASS), BASELINE: (ALLOW, DENY)}
_LARGEST_PRIORITY, _LARGEST_PORT = 1000, 65535


@dataclass(frozen=True, slots=True)
class Nodes:
    """A peer that selects the addresses of nodes by their labels."""

    selector: LabelSelector


@dataclass(frozen=True, slots=True)
class OrderedRule:
    action: str
    peers: tuple[Peer | Block | Nodes, ...] = ()
    """Any of these peers."""
    ports: tuple[PortMatch, ...] = ()
    """Any of these ports; every protocol and port when empty."""
    name: str = ""
    is_for_everyone: bool = False
    """A rule that failed closed: it matches every peer."""


@dataclass(frozen=True, slots=True)
class AdminPolicy:
    kind: str
    name: str
    priority: int
    subject: Peer
    rules: Mapping[str, tuple[OrderedRule, ...]]
    """Rules by direction; a direction without rules is missing."""
    problems: tuple[str, ...] = ()
    """Errors of rules that failed closed."""

    @property
    def key(self) -> Key:
        return self.kind, self.name

    @property
    def order(self) -> tuple[int, str]:
        """The policy with the lowest order decides first; of the same priority the one whose name comes first."""
        return self.priority, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def admin_policy_of(manifest: Mapping[str, Any]) -> AdminPolicy:
    """From an object of either kind. Raises Broken when its subject or priority cannot be read."""
    metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
    kind = ADMIN if manifest.get("kind") == ADMIN else BASELINE
    priority = spec.get("priority", 0) if kind == ADMIN else 0
    if not isinstance(priority, int) or not 0 <= priority <= _LARGEST_PRIORITY:
        raise Broken("spec.priority", f"Invalid value: {priority}: must be between 0 and {_LARGEST_PRIORITY}")
    subject = _pods(spec.get("subject") or {}, "spec.subject")
    if subject is None:
        raise Broken("spec.subject", "Required value: must specify namespaces or pods")
    problems: list[str] = []
    rules = {}
    for direction in DIRECTIONS:
        if given := spec.get(direction.lower()):
            rules[direction] = tuple(_rules(given, direction, _ACTIONS[kind], problems))
    return AdminPolicy(kind, metadata.get("name", ""), priority, subject, rules, tuple(problems))


def _rules(
    given: Sequence[Mapping[str, Any]], direction: str, actions: Sequence[str], problems: list[str]
) -> list[OrderedRule]:
    rules = []
    for index, rule in enumerate(given):
        try:
            rules.append(_rule(rule, direction, actions, f"spec.{direction.lower()}[{index}]"))
        except Broken as error:
            problems.append(str(error))
            is_closed = rule.get("action") != ALLOW
            rules.append(OrderedRule(DENY if is_closed else ALLOW, name=_name(rule), is_for_everyone=is_closed))
    return rules


def _rule(given: Mapping[str, Any], direction: str, actions: Sequence[str], where: str) -> OrderedRule:
    action, side = str(given.get("action")), "from" if direction == INGRESS else "to"
    if action not in actions:
        raise Broken(f"{where}.action", f'Unsupported value: "{action}": supported values: {", ".join(actions)}')
    peers: list[Peer | Block | Nodes] = []
    for index, peer in enumerate(given.get(side) or ()):
        peers += _peers(peer, direction, f"{where}.{side}[{index}]")
    if not peers:
        raise Broken(f"{where}.{side}", "Required value: must contain at least one peer")
    ports = [
        match for index, port in enumerate(given.get("ports") or ()) for match in _port(port, f"{where}.ports[{index}]")
    ]
    return OrderedRule(action, tuple(peers), tuple(ports), _name(given))


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("name") or "")


def _peers(given: Mapping[str, Any], direction: str, where: str) -> list[Peer | Block | Nodes]:
    if (pods := _pods(given, where)) is not None:
        return [pods]
    if direction != INGRESS:
        if given.get("nodes") is not None:
            return [Nodes(selector_of(given["nodes"], f"{where}.nodes"))]
        if networks := given.get("networks"):
            return [Block(network_of(cidr, f"{where}.networks[{index}]")) for index, cidr in enumerate(networks)]
    known = ", ".join(sorted(given)) or "nothing"
    raise Broken(where, f"Unsupported value: a peer of {known}; the rule fails closed")


def _pods(given: Mapping[str, Any], where: str) -> Peer | None:
    """A subject, or a peer of pods."""
    if given.get("namespaces") is not None:
        return the(Peer(EVERYTHING, None, selector_of(given["namespaces"], f"{where}.namespaces")))
    if (pods := given.get("pods")) is not None:
        namespaces = selector_of(pods.get("namespaceSelector") or {}, f"{where}.pods.namespaceSelector")
        return the(Peer(selector_of(pods.get("podSelector") or {}, f"{where}.pods.podSelector"), None, namespaces))
    return None


def _port(given: Mapping[str, Any], where: str) -> list[PortMatch]:
    """A named port has no protocol of its own: it is that of the container's port."""
    if (name := given.get("namedPort")) is not None:
        return [PortMatch(protocol, name) for protocol in PROTOCOLS.values()]
    if (number := given.get("portNumber")) is not None:
        first = last = number.get("port")
        protocol = number.get("protocol") or "TCP"
    elif (range_ := given.get("portRange")) is not None:
        first, last, protocol = range_.get("start"), range_.get("end"), range_.get("protocol") or "TCP"
    else:
        raise Broken(where, "Required value: must specify portNumber, namedPort or portRange")
    if protocol not in PROTOCOLS:
        raise Broken(f"{where}.protocol", f'Unsupported value: "{protocol}"')
    if not (isinstance(first, int) and isinstance(last, int) and 1 <= first <= last <= _LARGEST_PORT):
        raise Broken(where, f"Invalid value: {first} to {last}: must be ports between 1 and {_LARGEST_PORT}")
    return [PortMatch(PROTOCOLS[protocol], first, last)]
