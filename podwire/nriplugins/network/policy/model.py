"""The model of pods, namespaces and policies, and which policy selects which pod. Pure and incremental.

Contents (`content.py`) are notified of what each change affects, and compute it when they are read.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakSet

from podwire.linux.values import IP
from podwire.nriplugins.network.policy.admin_policies import AdminPolicy
from podwire.nriplugins.network.policy.identities import ANY_POD, Identities, Identity, anchor
from podwire.nriplugins.network.policy.policies import EGRESS, EVERY_POD, Key, Peer, Policy
from podwire.nriplugins.network.policy.values import PROTOCOL_NAMES, NamedPort, Pod
from podwire.objects.selectors import LabelSelector


class Listener(Protocol):
    """Is notified of changes; repeated and unnecessary notifications are harmless."""

    def pod_changed(self, uid: str) -> None:
        """A pod's labels or named ports changed: other policies may select it."""

    def identity_changed(self, identity: Identity) -> None:
        """An identity is new, gone, or matched by other peers."""

    def space_changed(self, number: int) -> None:
        """A namespace is new or has other labels: other peers match it."""

    def address_changed(self, address: IP) -> None: ...

    def policies_changed(self, namespace: str, policies: Iterable[Policy]) -> None:
        """Policies changed; as they are or were."""

    def admin_policies_changed(self, policies: Iterable[AdminPolicy]) -> None:
        """The same for policies of the administrator."""

    def nodes_changed(self) -> None:
        """A node has other addresses or labels."""


class Model:
    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.policies: dict[Key, Policy] = {}
        self.admin_policies: dict[Key, AdminPolicy] = {}
        """Those of both kinds, by kind and name."""
        self.identities = Identities()
        self._owners: dict[IP, list[str]] = {}
        self._held: dict[str, tuple[IP, ...]] = {}
        self._released: dict[str, set[IP]] = {}
        self._selecting: dict[str, dict[tuple[str, str] | None, dict[Key, Policy]]] = {}
        self._named: dict[NamedPort, int] = {}
        self._nodes: dict[str, tuple[frozenset[IP], Mapping[str, str]]] = {}
        self._nodes_found: dict[LabelSelector, frozenset[IP]] = {}
        self._spaces: set[str] = set()
        self._listeners: WeakSet[Listener] = WeakSet()

    def listen(self, listener: Listener) -> None:
        """Entries stay until the last holder releases the address."""
        self._listeners.add(listener)

    # Pods.

    def put_pod(self, pod: Pod) -> None:
        before = self.pods.get(pod.uid)
        if pod == before:
            return
        self.pods[pod.uid] = pod
        if pod.host_network:
            self._forget(pod.uid)
            return
        self._space(pod.namespace)
        self._addresses(pod.uid, () if before is None else self.addresses_of_pod(before), self.addresses_of_pod(pod))
        self._identify(pod, addressed=True)
        if before is None or (before.labels, before.ports) != (pod.labels, pod.ports):
            for listener in self._listeners:
                listener.pod_changed(pod.uid)

    def remove_pod(self, uid: str) -> None:
        self._forget(uid)
        self.pods.pop(uid, None)
        self._held.pop(uid, None)
        self._released.pop(uid, None)

    def _forget(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None:
            return
        gone = {address for address, owners in self._owners.items() if uid in owners} if pod.host_network else set()
        self._addresses(uid, (*self.addresses_of_pod(pod), *gone), ())
        left = self.identities.remove(uid)
        for listener in self._listeners:
            listener.pod_changed(uid)
            if left is not None and not left.uids:
                listener.identity_changed(left)

    def hold(self, uid: str, ips: tuple[IP, ...]) -> None:
        """Assigns the addresses of a pod's sandbox, whatever its status says yet."""
        pod = self.pods.get(uid)
        before = () if pod is None else self.addresses_of_pod(pod)
        self._held[uid] = ips
        self._released.pop(uid, None)
        if pod is not None and not pod.host_network:
            self._addresses(uid, before, self.addresses_of_pod(pod))

    def release_addresses(self, ips: Iterable[IP]) -> None:
        """Releases addresses, whatever the status of the pods that had them says."""
        for address in ips:
            for uid in [*self._owners.get(address, ())]:
                self._released.setdefault(uid, set()).add(address)
                self._addresses(uid, (address,), ())

    def addresses_of_pod(self, pod: Pod) -> tuple[IP, ...]:
        """The addresses of its sandbox and of its status, without released ones."""
        own, gone = (*self._held.get(pod.uid, ()), *pod.ips), self._released.get(pod.uid)
        return tuple(address for address in own if address not in gone) if gone else own

    def _addresses(self, uid: str, before: Iterable[IP], after: Iterable[IP]) -> None:
        for address in before:
            owners = self._owners.get(address)
            if owners and uid in owners:
                owners.remove(uid)
                if not owners:
                    del self._owners[address]
        for address in after:
            owners = self._owners.setdefault(address, [])
            if uid not in owners:
                owners.append(uid)
        for address in {*before, *after}:
            for listener in self._listeners:
                listener.address_changed(address)

    def _identify(self, pod: Pod, *, addressed: bool = False) -> None:
        known = self.identities.of(pod.uid)
        identity, left = self.identities.put(pod, self._named)
        if identity is known:
            return
        for listener in self._listeners:
            if len(identity.uids) == 1:
                listener.identity_changed(identity)
            if left is not None and not left.uids:
                listener.identity_changed(left)
            if left is not None or not addressed:
                for address in self.addresses_of_pod(pod):
                    listener.address_changed(address)

    def owner(self, address: IP) -> Pod | None:
        """The pod that has an address; of several the latest one."""
        owners = self._owners.get(address)
        return self.pods[owners[-1]] if owners else None

    def identity_at(self, address: IP) -> Identity | None:
        owners = self._owners.get(address)
        return self.identities.of(owners[-1]) if owners else None

    def addresses(self) -> Iterable[IP]:
        """The addresses of all pods that are not on the host's network."""
        return self._owners.keys()

    def addresses_behind(self, number: int) -> set[IP]:
        """The addresses of an identity, of a namespace, or of every pod."""
        if number == ANY_POD:
            return set(self._owners)
        identity = self.identities.by_number(number)
        behind = self.identities.inside(number) if identity is None else [identity]
        return {address for one in behind for uid in one.uids for address in self.addresses_of_pod(self.pods[uid])}

    def find(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)), None)

    # Nodes and namespaces.

    def put_node(self, name: str, addresses: Iterable[IP], labels: Mapping[str, str] | None = None) -> None:
        """Adds a node: peers of admin policies select it by its labels, and it always reaches its own pods."""
        node = frozenset(addresses), dict(labels or {})
        if self._nodes.get(name) != node:
            self._nodes[name] = node
            self._notify_nodes()

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._notify_nodes()

    def _notify_nodes(self) -> None:
        self._nodes_found.clear()
        for listener in self._listeners:
            listener.nodes_changed()

    def node_addresses(self, name: str) -> frozenset[IP]:
        return self._nodes[name][0] if name in self._nodes else frozenset()

    def addresses_of_nodes(self, selector: LabelSelector) -> frozenset[IP]:
        """The addresses of all nodes that a selector matches."""
        if selector not in self._nodes_found:
            matching = (addresses for addresses, labels in self._nodes.values() if selector.matches(labels))
            self._nodes_found[selector] = frozenset().union(*matching)
        return self._nodes_found[selector]

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        self._namespace(name, labels)

    def remove_namespace(self, name: str) -> None:
        self._namespace(name, None)

    def _namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        before = self.identities.labels_of(name)
        for identity in self.identities.put_namespace(name, labels):
            for listener in self._listeners:
                listener.identity_changed(identity)
        if before != self.identities.labels_of(name):
            self._space(name, changed=True)
            if self.admin_policies:  # their subjects are selected by labels of namespaces
                for pod in self.pods.values():
                    if pod.namespace == name:
                        for listener in self._listeners:
                            listener.pod_changed(pod.uid)

    def _space(self, name: str, *, changed: bool = False) -> None:
        if changed or name not in self._spaces:
            self._spaces.add(name)
            number = self.identities.space(name)
            for listener in self._listeners:
                listener.space_changed(number)

    # Policies.

    def put_policy(self, policy: Policy) -> None:
        before = self.policies.get(policy.key)
        if before == policy:
            return
        # The new one first: a peer that both name is not forgotten in between.
        self._name_ports(policy, 1)
        for peer in _peers(policy):
            self.identities.add_peer(peer)
        if before is not None:
            self._unshelve(before)
        self.policies[policy.key] = policy
        self._shelf(policy)[policy.key] = policy
        self._notify(policy.namespace, [policy] if before is None else [before, policy])

    def remove_policy(self, namespace: str, name: str) -> None:
        policy = self.policies.pop((namespace, name), None)
        if policy is not None:
            self._unshelve(policy)
            self._notify(namespace, [policy])

    def _unshelve(self, policy: Policy) -> None:
        self._shelf(policy).pop(policy.key, None)
        for peer in _peers(policy):
            self.identities.drop_peer(peer)
        self._name_ports(policy, -1)

    def _notify(self, namespace: str, policies: list[Policy]) -> None:
        for listener in self._listeners:
            listener.policies_changed(namespace, policies)

    def put_admin_policy(self, policy: AdminPolicy) -> None:
        before = self.admin_policies.get(policy.key)
        if before == policy:
            return
        self._name_ports(policy, 1)
        if before is not None:
            self._name_ports(before, -1)
        self.admin_policies[policy.key] = policy
        self._notify_admin([policy] if before is None else [before, policy])

    def remove_admin_policy(self, kind: str, name: str) -> None:
        policy = self.admin_policies.pop((kind, name), None)
        if policy is not None:
            self._name_ports(policy, -1)
            self._notify_admin([policy])

    def _notify_admin(self, policies: list[AdminPolicy]) -> None:
        for listener in self._listeners:
            listener.admin_policies_changed(policies)

    def _shelf(self, policy: Policy) -> dict[Key, Policy]:
        return self._selecting.setdefault(policy.namespace, {}).setdefault(anchor(policy.pods), {})

    def _name_ports(self, policy: Policy | AdminPolicy, by: int) -> None:
        """Egress rules may name ports of other pods: pods with such a port get another identity."""
        changed = set()
        for name in egress_names(policy):
            count = self._named.get(name, 0) + by
            if count == 0:
                del self._named[name]
                changed.add(name)
            else:
                if name not in self._named:
                    changed.add(name)
                self._named[name] = count
        if changed:
            for pod in self.pods.values():
                if not pod.host_network and not changed.isdisjoint(pod.ports):
                    self._identify(pod)

    def selected(self, pod: Pod, direction: str) -> list[Policy]:
        """The policies that isolate a pod in a direction, by name."""
        if pod.host_network or pod.is_process:
            return []
        shelf = self._selecting.get(pod.namespace, {})
        near = [policy for anchor_ in (None, *pod.labels.items()) for policy in shelf.get(anchor_, {}).values()]
        policies = [policy for policy in near if direction in policy.rules and policy.pods.matches(pod.labels)]
        return sorted(policies, key=lambda policy: policy.name)

    def ordered(self, pod: Pod, direction: str) -> list[AdminPolicy]:
        """The admin policies of both kinds that have rules for a pod in a direction, in the order in which they decide.

        Those of the baseline come last; they decide only where no NetworkPolicy isolates the pod.
        """
        if pod.host_network or pod.is_process:
            return []
        space = self.identities.labels_of(pod.namespace)
        policies = [
            policy
            for policy in self.admin_policies.values()
            if direction in policy.rules
            and policy.subject.namespaces.matches(space)
            and policy.subject.pods.matches(pod.labels)
        ]
        return sorted(policies, key=lambda policy: (policy.kind, *policy.order))


def _peers(policy: Policy) -> Iterable[Peer]:
    """The peers that match single pods, once per rule; named ports match single pods, too."""
    for direction, rules in policy.rules.items():
        for rule in rules:
            named = direction == EGRESS and any(isinstance(port.port, str) for port in rule.ports)
            yield from (peer for peer in rule.peers if isinstance(peer, Peer) and (named or not peer.wide))
            if named and not rule.peers:
                yield EVERY_POD


def egress_names(policy: Policy | AdminPolicy) -> Iterable[NamedPort]:
    """The named ports of its egress rules, once per occurrence."""
    for rule in policy.rules.get(EGRESS, ()):
        for port in rule.ports:
            if isinstance(port.port, str):
                yield PROTOCOL_NAMES[port.protocol], port.port
