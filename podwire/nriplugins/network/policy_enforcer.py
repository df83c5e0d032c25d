"""NetworkPolicies of this node's pods: the model is told of every change, the kernel of what follows from it.

Pods that hang on the node by a link are judged by the node's rules; those without such a link in their own namespace.
Synchronous, and called by one thread only.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import NamedTuple

from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import IP
from podwire.nriplugins.network.attachment import look
from podwire.nriplugins.network.kinds import NAMESPACES, PODS
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, Model
from podwire.nriplugins.network.policy.bridges import Bridges, NotJudged
from podwire.nriplugins.network.policy.policies import DIRECTIONS, Broken, policy_of
from podwire.nriplugins.network.policy.values import Attachment, Pod, pod_of
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, key_of, metadata

_log = logging.getLogger("podwire.nriplugins.network")

Changes = Iterable[tuple[Kind, Change]]
NOT_ENFORCED, UNDOABLE = "NetworkPolicyNotEnforced", "NetworkPolicyUndoable"
_UNDOABLE = "no link of the node leads to it: its policies are in its own namespace, where NET_ADMIN could undo them"


class PolicyWarning(NamedTuple):
    """What people are to know of a pod."""

    reason: str
    message: str


class VerdictCount(NamedTuple):
    """How many packets that open connections of a pod were judged one way."""

    namespace: str
    name: str
    direction: str
    allowed: bool
    packets: int


class Facts(NamedTuple):
    policies: int
    broken: int
    judged: list[VerdictCount]


@dataclass(slots=True)
class _Ruleset:
    """A namespace in which packets are judged."""

    content: Content
    kernel: Kernel

    def settle(self) -> int:
        return self.kernel.apply(self.content.wanted())


class PolicyEnforcer:
    def __init__(self, netns: str | None = None) -> None:
        """Of the node whose network namespace that is; None is the caller's own."""
        self._netns = netns
        self.model = Model()
        self._host: KernelNetwork | None = None
        self._node: _Ruleset | None = None
        self._inside: dict[str, _Ruleset] = {}
        """By the UID of their pod, as is the next."""
        self._sandboxes: dict[str, Sandbox] = {}
        self._over: set[str] = set()
        """Pods whose sandbox has stopped: their status may tell addresses that are theirs no more."""
        self._bridges = Bridges(netns)
        self._watched: int | None = None
        self._settled = False
        """Whether the kernel was told of all pods; before that it loses nothing but addresses that are freed."""
        self._heard: set[str] = set()
        """Pods that the API server has."""
        self.broken: dict[tuple[str, str], str] = {}
        """Policies that say something that they must not, and what."""

    # Pods of this node.

    def protect(self, local: Sandbox, here: Iterable[Sandbox], changes: Changes) -> None:
        """Judge a new pod's packets, from the first one on; `here` are the others. Raises LinuxError, NotJudged."""
        self._learn(changes)
        self._take_all(here)
        local.hanging = look(local.netns, local.ips, self._network())
        self._take(local)
        pod = self.model.pods[local.uid]
        local.policies = tuple({each.name for way in DIRECTIONS for each in self.model.selected(pod, way)})
        self._node_place().settle()
        if (inside := self._inside.get(local.uid)) is not None:
            inside.settle()
        self._settled = True
        if self._by_bridge(local):
            self._heal()

    def release(self, local: Sandbox) -> None:
        """Its addresses are nobody's from now on; what is left of its connections is forgotten."""
        known = self._sandboxes.get(local.uid)
        if known is not None and known.id != local.id:
            self._release_old(local, known)
            return
        self._sandboxes.pop(local.uid, None)
        ips = [ip_address(each) for each in local.ips]
        self.model.let_go(ips)
        if local.uid in self._heard:
            self._over.add(local.uid)
        else:
            self.model.remove_pod(local.uid)
        place = self._inside.pop(local.uid, None)
        if place is not None:
            place.kernel.close()  # the namespace goes, and all that is in it
        node = self._node_place()
        node.content.remove(local.uid)
        if self._settled:
            node.settle()
        else:
            node.kernel.release(ips)  # nobody knows yet what the others should have, so they keep what they have

    def _release_old(self, old: Sandbox, new: Sandbox) -> None:
        """The pod has another sandbox by now; only what that does not have is freed."""
        freed = [ip_address(each) for each in old.ips if each not in new.ips]
        self.model.let_go(freed)
        self.model.hold(new.uid, tuple(map(ip_address, new.ips)))
        if self._settled:
            self._node_place().settle()
        self._node_place().kernel.release(freed)

    def settle(self, here: Iterable[Sandbox], changes: Changes, *, audit: bool = False) -> dict[str, PolicyWarning]:
        """Bring the kernel to what follows from all that is known; what is to be said of pods, by their UID."""
        self._learn(changes)
        remarks = self._take_all(here)
        for place in (self._node_place(), *self._inside.values()):
            if audit and not place.kernel.audit():
                _log.warning("the rules of policies were changed by somebody else, and are set again")
            place.settle()
        self._settled = True
        return remarks | self._said()

    @property
    def bridges(self) -> int | None:
        """A descriptor that tells when somebody wrote to the settings of bridges; None while none matters."""
        return self._watched

    def _take_all(self, here: Iterable[Sandbox]) -> dict[str, PolicyWarning]:
        """Those that were there before; one that cannot be looked at is judged by the node's rules."""
        remarks = {}
        for each in here:
            if self._sandboxes.get(each.uid) is each:
                continue
            try:
                each.hanging = look(each.netns, each.ips, self._network())
                self._take(each)
            except LinuxError as error:
                each.hanging = None
                self._take(each)
                remarks[each.uid] = PolicyWarning(NOT_ENFORCED, str(error))
        return remarks

    def _said(self) -> dict[str, PolicyWarning]:
        """Of pods that nobody judges, or that could free themselves."""
        said = {
            uid: PolicyWarning(UNDOABLE, _UNDOABLE) for uid, each in self._inside.items() if each.content.isolated(uid)
        }
        bridged = [uid for uid, each in self._sandboxes.items() if self._by_bridge(each)]
        if bridged or self._watched is not None:
            try:
                self._heal()
            except NotJudged as error:
                said |= dict.fromkeys(bridged, PolicyWarning(NOT_ENFORCED, str(error)))
        return said

    def facts(self) -> Facts:
        """For whoever counts. Raises LinuxError."""
        places = (self._node_place(), *self._inside.values())
        judged = []
        for each in (each for place in places for each in place.kernel.verdicts()):
            pod = self.model.owner(ip_address(each.address))
            if pod is not None:
                judged.append(VerdictCount(pod.namespace, pod.name, each.direction, each.allowed, each.counted.packets))
        return Facts(len(self.model.policies), len(self.broken), judged)

    def close(self) -> None:
        """The kernel keeps what it has."""
        for place in (self._node, *self._inside.values()):
            if place is not None:
                place.kernel.close()
        if self._host is not None:
            self._host.close()
        self._bridges.close()

    def _take(self, local: Sandbox) -> None:
        ips = tuple(map(ip_address, local.ips))
        way, link = local.hanging or (Attachment.ROUTED, "")
        place = self._place(local)
        self._over.discard(local.uid)
        self._sandboxes[local.uid] = local
        if local.uid not in self.model.pods:
            told = Pod(uid=local.uid, namespace=local.namespace, name=local.name, labels=local.labels)
            self.model.put_pod(told)
        self.model.hold(local.uid, ips)
        place.content.put(LocalPod(uid=local.uid, ips=ips, attachment=way, link=link, netns=local.netns))

    def _by_bridge(self, local: Sandbox) -> bool:
        """Whether policies isolate a pod whose packets pass a bridge."""
        bridged = local.hanging is not None and local.hanging.way is Attachment.BRIDGED
        return bridged and self._node_place().content.isolated(local.uid)

    def _heal(self) -> None:
        """Bridges call the rules, and are listened to from now on. Raises NotJudged."""
        self._watched = self._bridges.watch()
        if off := self._bridges.heal():
            _log.warning("bridges did not call the rules, and do again", extra={"sysctls": ",".join(off)})

    # Places.

    def _network(self) -> KernelNetwork:
        if self._host is None:
            self._host = KernelNetwork(self._netns)
        return self._host

    def _node_place(self) -> _Ruleset:
        if self._node is None:
            self._node = _Ruleset(Content(self.model), Kernel(self._netns))
        return self._node

    def _place(self, local: Sandbox) -> _Ruleset:
        if local.hanging is None or local.hanging.way is not Attachment.INSIDE:
            return self._node_place()
        if local.uid not in self._inside:
            kernel = Kernel(local.netns, inside=True, node=self._node_addresses())
            self._inside[local.uid] = _Ruleset(Content(self.model, everyone=False), kernel)
        return self._inside[local.uid]

    def _node_addresses(self) -> list[IP]:
        return [each.interface.ip for each in self._network().addresses.list() if not each.interface.ip.is_loopback]

    # The model.

    def _learn(self, changes: Changes) -> None:
        for kind, change in changes:
            if isinstance(change, Synced):
                continue
            gone = isinstance(change, Deleted)
            if kind is PODS:
                self._pod(change.object, gone=gone)
            elif kind is NAMESPACES:
                self._namespace(change.object, gone=gone)
            else:
                self._policy(change.object, gone=gone)

    def _pod(self, object_: Object, *, gone: bool) -> None:
        pod = pod_of(object_)
        if gone:
            self._heard.discard(pod.uid)
            self._over.discard(pod.uid)
            if pod.uid not in self._sandboxes:
                self.model.remove_pod(pod.uid)
        else:
            self._heard.add(pod.uid)
            self.model.put_pod(replace(pod, ips=()) if pod.uid in self._over else pod)

    def _namespace(self, object_: Object, *, gone: bool) -> None:
        _, name = key_of(object_)
        if gone:
            self.model.remove_namespace(name)
        else:
            self.model.put_namespace(name, metadata(object_).get("labels") or {})

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
            _log.warning("a policy cannot be followed", extra={"policy": "/".join(key), "why": str(error)})
            with suppress(Broken):  # the pods that it selects are closed, as far as it can be told which
                self.model.put_policy(policy_of(_without_rules(object_)))


def _without_rules(policy: Object) -> Object:
    spec = policy.get("spec") or {}
    return {**policy, "spec": {"podSelector": spec.get("podSelector"), "policyTypes": ["Ingress", "Egress"]}}
