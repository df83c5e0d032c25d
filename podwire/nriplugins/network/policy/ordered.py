"""Classes of pods that admin policies select: ordered rules, compiled to disjoint areas of addresses and ports. Pure.

A connection is decided by the first rule of an AdminNetworkPolicy that matches it, then by NetworkPolicies if they
isolate the pod, then by the BaselineAdminNetworkPolicy, and is allowed if nothing decides. The kernel's program has
no order: it looks up what is allowed. So the whole address space is divided here, into ranges whose packets have the
same verdicts: one for each pod that a rule tells apart from its neighbours, and those of networks and nodes between.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.admin_policies import (
    ADMIN,
    ALLOW,
    BASELINE,
    PASS,
    AdminPolicy,
    Nodes,
    OrderedRule,
)
from podwire.nriplugins.network.policy.classes import Class, ClassKey
from podwire.nriplugins.network.policy.identities import Identity
from podwire.nriplugins.network.policy.matching import is_at, meets
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.policies import INGRESS, Block, Policy, Rule
from podwire.nriplugins.network.policy.regions import EVERYTHING, NOTHING, Area, Region, areas_of, region_of
from podwire.nriplugins.network.policy.spans import Range
from podwire.nriplugins.network.policy.values import NamedPort

_BITS = {4: 32, 6: 128}


class OrderedClass(Class):
    """Pods in one direction that the same admin policies select, and that the same NetworkPolicies isolate."""

    def __init__(
        self, key: ClassKey, number: int, policies: Iterable[Policy], admin_policies: Iterable[AdminPolicy]
    ) -> None:
        super().__init__(key, number, ())
        direction = key[0]
        in_order = sorted(admin_policies, key=lambda policy: policy.order)
        self._tiers = {
            kind: [rule for policy in in_order if policy.kind == kind for rule in policy.rules[direction]]
            for kind in (ADMIN, BASELINE)
        }
        policies = list(policies)
        self._isolated = bool(policies)
        self._rules = [rule for policy in policies for rule in policy.rules[direction]]
        self._own: Mapping[NamedPort, int] | None = dict(key[2]) if direction == INGRESS else None
        self._at: list[Block | Nodes] = sorted(
            {peer for rule in self._all_rules() for peer in rule.peers if isinstance(peer, Block | Nodes)}, key=repr
        )

        self._decided: dict[tuple[int, tuple[bool, ...]], tuple[Area, ...]] = {}

    def _all_rules(self) -> list[Rule | OrderedRule]:
        return [*self._tiers[ADMIN], *self._rules, *self._tiers[BASELINE]]

    @property
    def by_address(self) -> bool:
        return True

    def areas(self, model: Model, version: int) -> Iterator[tuple[Range, tuple[Area, ...]]]:
        pods = {int(address): address for address in model.addresses() if address.version == version}
        edges = [*self._edges(model, version, pods)]
        begun, before = 0, self._allowed(model, pods, version, 0)
        for first in edges[1:-1]:
            here = self._allowed(model, pods, version, first)
            if here != before:
                if before:
                    yield Range(begun, first - 1), before
                begun, before = first, here
        if before:
            yield Range(begun, edges[-1] - 1), before

    def _allowed(self, model: Model, pods: Mapping[int, IP], version: int, number: int) -> tuple[Area, ...]:
        """The areas that are allowed with an address; pods of one identity share the answer."""
        address = pods.get(number)
        identity = None if address is None else model.identity_at(address)
        if address is None:
            address = IPv4Address(number) if version == 4 else IPv6Address(number)
        signature = (identity.number if identity else 0, tuple(is_at(model, peer, address) for peer in self._at))
        if signature not in self._decided:
            self._decided[signature] = areas_of(self._region(model, identity, address))
        return self._decided[signature]

    def forget(self) -> None:
        """Labels of namespaces or nodes changed, so that peers may match others."""
        self._decided.clear()

    def _edges(self, model: Model, version: int, pods: Iterable[int]) -> list[int]:
        """The addresses at which another verdict may begin."""
        edges, singles = {0, 1 << _BITS[version]}, set(pods)
        for peer in self._at:
            if isinstance(peer, Nodes):
                nodes = model.addresses_of_nodes(peer.selector)
                singles |= {int(address) for address in nodes if address.version == version}
            elif peer.network.version == version:
                for network in (peer.network, *peer.excepts):
                    edges |= {int(network.network_address), int(network.broadcast_address) + 1}
        return sorted(edges.union(singles, (single + 1 for single in singles)))

    def _region(self, model: Model, identity: Identity | None, address: IP) -> Region:
        """The protocols and ports that are allowed with one peer."""
        named = self._own if self._own is not None else identity.ports if identity else {}
        allowed, left, passed = self._decide(model, self._tiers[ADMIN], identity, address, EVERYTHING, named)
        left |= passed
        if self._isolated:
            for rule in self._rules:
                if meets(model, rule, identity, address):
                    allowed |= left & region_of(rule.ports, named)
            return allowed
        last, undecided, _ = self._decide(model, self._tiers[BASELINE], identity, address, left, named)
        return allowed | last | undecided

    def _decide(
        self,
        model: Model,
        rules: Iterable[OrderedRule],
        identity: Identity | None,
        address: IP,
        left: Region,
        named: Mapping[NamedPort, int],
    ) -> tuple[Region, Region, Region]:
        """Splits a region by ordered rules: allowed, not decided, passed on; the rest is denied."""
        allowed = passed = NOTHING
        for rule in rules:
            if left and meets(model, rule, identity, address):
                here = left & region_of(rule.ports, named)
                left &= ~here
                if rule.action == ALLOW:
                    allowed |= here
                elif rule.action == PASS:
                    passed |= here
        return allowed, left, passed
