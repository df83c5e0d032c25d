"""Enforces NetworkPolicies on the pods of this node: changes go into the model, its rules into the kernel.

Pods with a link to the node are filtered by the node's rules; pods without one (macvlan, a moved device) in their own
namespace. Synchronous, and called by one thread only.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import NamedTuple

from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import IP
from podwire.nriplugins.network.attachment import find_attachment
from podwire.nriplugins.network.kinds import ADMIN_KINDS, NAMESPACES, NODES, PODS, POLICIES, SLICES
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, Model
from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.nriplugins.network.policy.bridges import Bridges, NotEnforceable
from podwire.nriplugins.network.policy.policies import DIRECTIONS, Broken, policy_of
from podwire.nriplugins.network.policy.values import Attachment, Pod, dns_server_of, node_addresses_of, pod_of
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, key_of, metadata

_log = logging.getLogger("podwire.nriplugins.network")

Changes = Iterable[tuple[Kind, Change]]
NOT_ENFORCED, UNDOABLE = "NetworkPolicyNotEnforced", "NetworkPolicyUndoable"
_UNDOABLE = "no link of the node leads to it: its policies are in its own namespace, where NET_ADMIN could undo them"


class PolicyWarning(NamedTuple):
    """A warning event for a pod."""

    reason: str
    message: str


class VerdictCount(NamedTuple):
    """Packets that open connections of a pod, by direction and verdict."""

    namespace: str
    name: str
    direction: str
    allowed: bool
    packets: int


class Facts(NamedTuple):
    policies: Mapping[str, int]
    """By kind."""
    broken: int
    verdicts: list[VerdictCount]


@dataclass(slots=True)
class _Ruleset:
    """The rules in one network namespace."""

    content: Content
    kernel: Kernel

    def reconcile(self) -> int:
        return self.kernel.apply(self.content.desired())


class PolicyEnforcer:
    def __init__(self, netns: str | None = None) -> None:
        """`netns` is the node's network namespace; None: the caller's own."""
        self._netns = netns
        self.model = Model()
        self._host: KernelNetwork | None = None
        self._node: _Ruleset | None = None
        self._inside: dict[str, _Ruleset] = {}
        """By the UID of the pod; so is the next."""
        self._sandboxes: dict[str, Sandbox] = {}
        self._ended: set[str] = set()
        """Pods whose sandbox has stopped: the addresses in their status may be stale."""
        self._bridges = Bridges(netns)
        self._watched: int | None = None
        self._reconciled = False
        """Whether the kernel has the rules of all pods; before that only freed addresses are removed from it."""
        self._in_api: set[str] = set()
        """The UIDs of pods that the API server has."""
        self.broken: dict[tuple[str, str], str] = {}
        """Invalid policies, and their errors."""

    # Pods of this node.

    def protect(self, sandbox: Sandbox, here: Iterable[Sandbox], changes: Changes) -> None:
        """Filters a new pod's packets from the first on; `here` are the others. Raises LinuxError, NotEnforceable."""
        self._apply_changes(changes)
        self._add_all(here)
        sandbox.attachment = find_attachment(sandbox.netns, sandbox.ips, self._network())
        self._add(sandbox)
        pod = self.model.pods[sandbox.uid]
        sandbox.policies = tuple({policy.name for way in DIRECTIONS for policy in self.model.selected(pod, way)})
        sandbox.admin_policies = tuple({policy.key for way in DIRECTIONS for policy in self.model.ordered(pod, way)})
        self._node_ruleset().reconcile()
        if (inside := self._inside.get(sandbox.uid)) is not None:
            inside.reconcile()
        self._reconciled = True
        if self._is_bridged(sandbox):
            self._restore_bridges()

    def release(self, sandbox: Sandbox) -> None:
        """Releases a pod's addresses, and removes its connections from conntrack."""
        known = self._sandboxes.get(sandbox.uid)
        if known is not None and known.id != sandbox.id:
            self._release_old(sandbox, known)
            return
        self._sandboxes.pop(sandbox.uid, None)
        ips = [ip_address(ip) for ip in sandbox.ips]
        self.model.release_addresses(ips)
        if sandbox.uid in self._in_api:
            self._ended.add(sandbox.uid)
        else:
            self.model.remove_pod(sandbox.uid)
        ruleset = self._inside.pop(sandbox.uid, None)
        if ruleset is not None:
            ruleset.kernel.close()  # its rules go with the namespace
        node = self._node_ruleset()
        node.content.remove(sandbox.uid)
        if self._reconciled:
            node.reconcile()
        else:
            node.kernel.release(ips)  # the rules of other pods are not known yet, and stay

    def _release_old(self, old: Sandbox, new: Sandbox) -> None:
        """Releases the addresses that the pod's newer sandbox does not have."""
        freed = [ip_address(ip) for ip in old.ips if ip not in new.ips]
        self.model.release_addresses(freed)
        self.model.hold(new.uid, tuple(map(ip_address, new.ips)))
        if self._reconciled:
            self._node_ruleset().reconcile()
        self._node_ruleset().kernel.release(freed)

    def reconcile(self, here: Iterable[Sandbox], changes: Changes, *, audit: bool = False) -> dict[str, PolicyWarning]:
        """Brings the kernel to what the model says; returns warnings by the UID of the pod."""
        self._apply_changes(changes)
        warnings = self._add_all(here)
        for ruleset in (self._node_ruleset(), *self._inside.values()):
            if audit and not ruleset.kernel.audit():
                _log.warning("nft rules of policies were changed by others, restoring them")
            ruleset.reconcile()
        self._reconciled = True
        return warnings | self._policy_warnings()

    @property
    def bridges(self) -> int | None:
        """A descriptor that is readable after a write to the sysctls of bridges; None without bridged pods."""
        return self._watched

    def _add_all(self, here: Iterable[Sandbox]) -> dict[str, PolicyWarning]:
        """Adds pods that existed before; one whose attachment cannot be read is filtered by the node's rules."""
        warnings = {}
        for pod_sandbox in here:
            if self._sandboxes.get(pod_sandbox.uid) is pod_sandbox:
                continue
            try:
                pod_sandbox.attachment = find_attachment(pod_sandbox.netns, pod_sandbox.ips, self._network())
                self._add(pod_sandbox)
            except LinuxError as error:
                pod_sandbox.attachment = None
                self._add(pod_sandbox)
                warnings[pod_sandbox.uid] = PolicyWarning(NOT_ENFORCED, str(error))
        return warnings

    def _policy_warnings(self) -> dict[str, PolicyWarning]:
        """Warnings for pods that are not filtered, or that could remove their rules."""
        said = {
            uid: PolicyWarning(UNDOABLE, _UNDOABLE)
            for uid, ruleset in self._inside.items()
            if ruleset.content.isolated(uid)
        }
        bridged = [uid for uid, sandbox in self._sandboxes.items() if self._is_bridged(sandbox)]
        if bridged or self._watched is not None:
            try:
                self._restore_bridges()
            except NotEnforceable as error:
                said |= dict.fromkeys(bridged, PolicyWarning(NOT_ENFORCED, str(error)))
        return said

    def facts(self) -> Facts:
        """Counts for metrics. Raises LinuxError."""
        rulesets = (self._node_ruleset(), *self._inside.values())
        verdicts = []
        for verdict in (verdict for ruleset in rulesets for verdict in ruleset.kernel.verdicts()):
            pod = self.model.owner(ip_address(verdict.address))
            if pod is not None:
                verdicts.append(
                    VerdictCount(pod.namespace, pod.name, verdict.direction, verdict.allowed, verdict.counted.packets)
                )
        policies = Counter(kind for kind, _ in self.model.admin_policies)
        policies[POLICIES.kind] = len(self.model.policies)
        return Facts(policies, len(self.broken), verdicts)

    def close(self) -> None:
        """Leaves the rules in the kernel."""
        for ruleset in (self._node, *self._inside.values()):
            if ruleset is not None:
                ruleset.kernel.close()
        if self._host is not None:
            self._host.close()
        self._bridges.close()

    def _add(self, sandbox: Sandbox) -> None:
        ips = tuple(map(ip_address, sandbox.ips))
        way, link = sandbox.attachment or (Attachment.ROUTED, "")
        ruleset = self._ruleset_of(sandbox)
        self._ended.discard(sandbox.uid)
        self._sandboxes[sandbox.uid] = sandbox
        if sandbox.uid not in self.model.pods:
            pod = Pod(uid=sandbox.uid, namespace=sandbox.namespace, name=sandbox.name, labels=sandbox.labels)
            self.model.put_pod(pod)
        self.model.hold(sandbox.uid, ips)
        ruleset.content.put(LocalPod(uid=sandbox.uid, ips=ips, attachment=way, link=link, netns=sandbox.netns))

    def _is_bridged(self, sandbox: Sandbox) -> bool:
        """Whether a pod is isolated and its packets pass a bridge."""
        bridged = sandbox.attachment is not None and sandbox.attachment.way is Attachment.BRIDGED
        return bridged and self._node_ruleset().content.isolated(sandbox.uid)

    def _restore_bridges(self) -> None:
        """Makes bridges call the rules, and watches their sysctls from now on. Raises NotEnforceable."""
        self._watched = self._bridges.watch()
        if off := self._bridges.heal():
            _log.warning("bridge-nf-call sysctls were off, switched on again", extra={"sysctls": ",".join(off)})

    # Rulesets.

    def _network(self) -> KernelNetwork:
        if self._host is None:
            self._host = KernelNetwork(self._netns)
        return self._host

    def _node_ruleset(self) -> _Ruleset:
        if self._node is None:
            self._node = _Ruleset(Content(self.model), Kernel(self._netns))
        return self._node

    def _ruleset_of(self, sandbox: Sandbox) -> _Ruleset:
        if sandbox.attachment is None or sandbox.attachment.way is not Attachment.INSIDE:
            return self._node_ruleset()
        if sandbox.uid not in self._inside:
            kernel = Kernel(sandbox.netns, inside=True, node=self._node_addresses())
            self._inside[sandbox.uid] = _Ruleset(Content(self.model, everyone=False), kernel)
        return self._inside[sandbox.uid]

    def _node_addresses(self) -> list[IP]:
        return [
            address.interface.ip for address in self._network().addresses.list() if not address.interface.ip.is_loopback
        ]

    # The model.

    def _apply_changes(self, changes: Changes) -> None:
        for kind, change in changes:
            if isinstance(change, Synced):
                continue
            gone = isinstance(change, Deleted)
            if kind is PODS:
                self._pod(change.object, gone=gone)
            elif kind is NAMESPACES:
                self._namespace(change.object, gone=gone)
            elif kind is SLICES:
                self._dns_server(change.object, gone=gone)
            elif kind is NODES:
                self._node_object(change.object, gone=gone)
            elif kind in ADMIN_KINDS:
                self._admin_policy(kind, change.object, gone=gone)
            else:
                self._policy(change.object, gone=gone)

    def _pod(self, object_: Object, *, gone: bool) -> None:
        pod = pod_of(object_)
        if gone:
            self._in_api.discard(pod.uid)
            self._ended.discard(pod.uid)
            if pod.uid not in self._sandboxes:
                self.model.remove_pod(pod.uid)
        else:
            self._in_api.add(pod.uid)
            self.model.put_pod(replace(pod, ips=()) if pod.uid in self._ended else pod)

    def _dns_server(self, object_: Object, *, gone: bool) -> None:
        server = dns_server_of(object_)
        if gone:
            self.model.remove_pod(server.uid)
        else:
            self.model.put_pod(server)

    def _namespace(self, object_: Object, *, gone: bool) -> None:
        _, name = key_of(object_)
        if gone:
            self.model.remove_namespace(name)
        else:
            self.model.put_namespace(name, metadata(object_).get("labels") or {})

    def _node_object(self, object_: Object, *, gone: bool) -> None:
        _, name = key_of(object_)
        if gone:
            self.model.remove_node(name)
        else:
            self.model.put_node(name, node_addresses_of(object_), metadata(object_).get("labels") or {})

    def _admin_policy(self, kind: Kind, object_: Object, *, gone: bool) -> None:
        """A rule that cannot be read fails closed; without a subject that can be read, no pod can be selected."""
        key = kind.kind, key_of(object_)[1]
        self.broken.pop(key, None)
        if gone:
            self.model.remove_admin_policy(*key)
            return
        try:
            policy = admin_policy_of({**object_, "kind": kind.kind})
        except Broken as error:
            self.broken[key] = str(error)
            self.model.remove_admin_policy(*key)
            _log.warning("admin policy is not enforced", extra={"policy": " ".join(key), "error": str(error)})
            return
        if policy.problems:
            self.broken[key] = "; ".join(policy.problems)
            extra = {"policy": " ".join(key), "error": self.broken[key]}
            _log.warning("rule of an admin policy fails closed", extra=extra)
        self.model.put_admin_policy(policy)

    def _policy(self, object_: Object, *, gone: bool) -> None:
        key = key_of(object_)
        self.broken.pop(key, None)
        if gone:
            self.model.remove_policy(*key)
            return
        try:
            self.model.put_policy(policy_of(object_))
        except Broken as error:
            self.broken[key] = str(error)
            _log.warning(
                "invalid network policy isolates its pods", extra={"policy": "/".join(key), "error": str(error)}
            )
            with suppress(Broken):  # the pods that it selects are isolated, if its selector is valid
                self.model.put_policy(policy_of(_without_rules(object_)))


def _without_rules(policy: Object) -> Object:
    spec = policy.get("spec") or {}
    return {**policy, "spec": {"podSelector": spec.get("podSelector"), "policyTypes": ["Ingress", "Egress"]}}
