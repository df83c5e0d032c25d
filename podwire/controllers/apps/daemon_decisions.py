"""Decisions about a DaemonSet: on which nodes pods run, which are created and deleted, and the status. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from podwire.controllers.apps.conditions import scaled_value, without_zeros
from podwire.controllers.apps.revisions import POD_HASH
from podwire.controllers.metadata import PartialObject, PodState
from podwire.objects import node_affinity
from podwire.objects.nodes import Node
from podwire.objects.pods import PodSpec, Toleration
from podwire.objects.taints import untolerated
from podwire.protocols.k8sapi.watch import Object

GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
GENERATION_LABEL = "pod-template-generation"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PRESSED = (
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)
_NETWORK = "node.kubernetes.io/network-unavailable"
_SHOWN = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_UNKNOWN_STATE = PodState()

PodsByNode = Mapping[str, Sequence[PartialObject]]


def tolerations(spec: Mapping[str, Any]) -> list[Object]:
    """Returns the tolerations of a template with those that every daemon has."""
    added = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _NOT_READY]
    keys = (*_PRESSED, _NETWORK) if spec.get("hostNetwork") else _PRESSED
    added += [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    given = [
        toleration for toleration in spec.get("tolerations") or () if not any(_same(toleration, new) for new in added)
    ]
    return [*given, *added]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Returns whether one toleration replaces another: they differ in their seconds only."""
    fields = ("key", "operator", "effect", "value")
    return all((one.get(name) or "") == (other.get(name) or "") for name in fields)


def daemon_pod(template: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> Object:
    """Returns the template of the pod for one node: with labels, tolerations and an affinity to the node."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = spec.get("affinity") or {}
    to_nodes = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }
    return {
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}},
        "spec": {**spec, "tolerations": tolerations(spec), "affinity": {**affinity, "nodeAffinity": to_nodes}},
    }


def target_node(pod: PartialObject) -> str:
    """Returns the node of a pod, or the one that its affinity names; empty if neither does."""
    if pod.pod is not None and pod.pod.node_name:
        return pod.pod.node_name
    affinity = (pod.object().get("spec") or {}).get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for wanted in term.get("matchFields") or ():
            values = wanted.get("values") or []
            if wanted.get("key") == "metadata.name" and wanted.get("operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The constraints of a DaemonSet's template on nodes."""

    spec: PodSpec

    @classmethod
    def of(cls, daemon: Mapping[str, Any]) -> "Placement":
        template = (daemon["spec"].get("template") or {}).get("spec") or {}
        given = {key: template[key] for key in ("nodeSelector", "affinity", "nodeName") if key in template}
        return cls(msgspec.convert({**given, "tolerations": tolerations(template)}, PodSpec))

    def on(self, node: Node) -> tuple[bool, bool]:
        """Returns whether a pod has to run on a node, and whether one that runs there may continue."""
        if self.spec.node_name not in ("", node.name) or not node_affinity.wants(self.spec, node):
            return False, False
        if not _tainted(node, self.spec.tolerations, ("NoSchedule", "NoExecute")):
            return True, True
        return False, not _tainted(node, self.spec.tolerations, ("NoExecute",))


def _tainted(node: Node, given: Sequence[Toleration], effects: Sequence[str]) -> bool:
    return next(untolerated(node.spec.taints, given, effects), None) is not None


@dataclass(slots=True)
class Changes:
    """Pods to create and to delete."""

    create: list[str] = field(default_factory=list)
    """Nodes that need a pod."""
    delete: list[PartialObject] = field(default_factory=list)
    failed: list[tuple[str, PartialObject]] = field(default_factory=list)
    """Failed pods by their node: deleted with back-off."""
    succeeded: list[tuple[str, PartialObject]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.create or self.delete or self.failed or self.succeeded)


def state(pod: PartialObject) -> PodState:
    return pod.pod or _UNKNOWN_STATE


def _age_order(pods: Iterable[PartialObject]) -> list[PartialObject]:
    """Returns pods: bound ones first, then by age."""
    return sorted(pods, key=lambda pod: (not state(pod).node_name, pod.metadata.creation_timestamp or "", pod.name))


def is_updated(pod: PartialObject, daemon: Mapping[str, Any], hash_: str) -> bool:
    """Returns whether a pod is of the present template."""
    generation = (daemon["metadata"].get("annotations") or {}).get(GENERATION_ANNOTATION)
    if generation is not None and pod.labels.get(GENERATION_LABEL) == generation:
        return True
    return bool(hash_) and pod.labels.get(POD_HASH) == hash_


def _bounds(daemon: Mapping[str, Any], nodes: int) -> tuple[int, int]:
    """Returns how many nodes may have a second pod, and how many none that is available; not both are 0."""
    strategy = daemon["spec"].get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate") or {} if strategy.get("type") == "RollingUpdate" else {}
    surge = scaled_value(rolling.get("maxSurge"), nodes, round_up=True)
    unavailable = scaled_value(rolling.get("maxUnavailable"), nodes, round_up=True)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def allows_surge(daemon: Mapping[str, Any]) -> bool:
    return _bounds(daemon, 1)[0] > 0


def manage(daemon: Mapping[str, Any], nodes: Sequence[Node], pods: PodsByNode, hash_: str, now: float) -> Changes:
    """Decides on nodes with too few or too many pods. Pods of another template are `rolling`'s."""
    placement, changes = Placement.of(daemon), Changes()
    surging = allows_surge(daemon)
    for node in nodes:
        present = pods.get(node.name)
        runs, continues = placement.on(node)
        if runs and not present:
            changes.create.append(node.name)
        elif continues:
            running = _running(node.name, present or (), changes)
            if surging and not running and runs:
                changes.create.append(node.name)
            elif surging:
                changes.delete += _surplus_of_surge(daemon, running, hash_, now)
            else:
                changes.delete += running[1:]
        else:
            changes.delete += [pod for pod in present or () if not pod.deleting]
    known = {node.name for node in nodes}
    changes.delete += [
        pod
        for name, on_node in pods.items()
        if name not in known
        for pod in on_node
        if not state(pod).node_name and not pod.deleting
    ]
    return changes


def _running(node: str, pods: Iterable[PartialObject], changes: Changes) -> list[PartialObject]:
    """Returns the pods that run, the oldest first; collects those that ended."""
    running = []
    for pod in pods:
        if pod.deleting:
            continue
        if state(pod).phase == "Failed":
            changes.failed.append((node, pod))
        elif state(pod).phase == "Succeeded":
            changes.succeeded.append((node, pod))
        else:
            running.append(pod)
    return _age_order(running)


def _surplus_of_surge(
    daemon: Mapping[str, Any], running: Sequence[PartialObject], hash_: str, now: float
) -> list[PartialObject]:
    """Returns the pods of a node that are more than one old and one new pod; the old one goes when the new one is
    available."""
    new = [pod for pod in running if pod.labels.get(POD_HASH) == hash_]
    old = [pod for pod in running if pod.labels.get(POD_HASH) != hash_]
    surplus = [*new[1:], *old[1:]]
    minimum = daemon["spec"].get("minReadySeconds") or 0
    if new and old and (not state(old[0]).ready or state(new[0]).available(minimum, now)):
        surplus.append(old[0])
    return surplus


def rolling(daemon: Mapping[str, Any], nodes: Sequence[Node], pods: PodsByNode, hash_: str, now: float) -> Changes:
    """Decides on pods of another template, within the bounds of the update strategy."""
    placement = Placement.of(daemon)
    wanted = {node.name: placement.on(node)[0] for node in nodes}
    desired = sum(wanted.values())
    surge, unavailable = _bounds(daemon, desired)
    names = sorted({*pods, *(name for name, runs in wanted.items() if runs)})
    pairs = [(name, _pair(daemon, pods.get(name, ()), hash_)) for name in names]
    minimum = daemon["spec"].get("minReadySeconds") or 0

    def available(pod: PartialObject) -> bool:
        return state(pod).available(minimum, now)

    if surge:
        return _roll_with_surge(pairs, wanted, available, surge, desired)
    return _roll_in_place(pairs, available, unavailable)


Pair = tuple[PartialObject | None, PartialObject | None]
"""The new and the old pod of a node."""


def _pair(daemon: Mapping[str, Any], pods: Iterable[PartialObject], hash_: str) -> Pair | None:
    """Returns the new and the old pod of a node; None while there are several of one."""
    new: PartialObject | None = None
    old: PartialObject | None = None
    for pod in pods:
        if pod.deleting:
            continue
        if is_updated(pod, daemon, hash_):
            if new is not None:
                return None
            new = pod
        elif old is not None:
            return None
        else:
            old = pod
    return new, old


def _roll_in_place(pairs: Sequence[tuple[str, Pair | None]], available: Any, most: int) -> Changes:
    """Deletes old pods, so that their nodes get new ones; those that are not available at once."""
    lost, candidates, replaced = 0, [], []
    for _name, pair in pairs:
        if pair is None or (pair[0] is None) is (pair[1] is None):
            lost += 1
        elif pair[0] is not None:
            lost += not available(pair[0])
        elif pair[1] is not None and not available(pair[1]):
            replaced.append(pair[1])
            lost += 1
        elif pair[1] is not None:
            candidates.append(pair[1])
    return Changes(delete=[*replaced, *candidates[: max(0, most - lost)]])


def _roll_with_surge(
    pairs: Sequence[tuple[str, Pair | None]],
    wanted: Mapping[str, bool],
    available: Any,
    surge: int,
    desired: int,
) -> Changes:
    """Creates new pods beside old ones, and deletes an old one when its new one is available."""
    changes, candidates, unwanted = Changes(), [], []
    surging = serving = 0
    for name, pair in pairs:
        if pair is None:
            surging += 1
            continue
        new, old = pair
        present = old or new
        serving += present is not None and available(present)
        if old is None:
            continue
        if new is not None:
            if available(new):
                changes.delete.append(old)
            else:
                surging += 1
        elif not wanted.get(name):
            if available(old):
                unwanted.append(old)
            else:
                changes.delete.append(old)
        elif available(old):
            candidates.append(name)
        else:
            changes.create.append(name)
    changes.delete += unwanted[: max(0, serving - desired)]
    changes.create += candidates[: max(0, surge - surging)]
    return changes


def daemon_status(daemon: Mapping[str, Any], nodes: Sequence[Node], pods: PodsByNode, hash_: str, now: float) -> Object:
    """Returns the status; its observedGeneration is the present one."""
    placement, before = Placement.of(daemon), daemon.get("status") or {}
    minimum = daemon["spec"].get("minReadySeconds") or 0
    counts = dict.fromkeys((*_SHOWN, "updatedNumberScheduled", "numberAvailable"), 0)
    for node in nodes:
        present = pods.get(node.name)
        if not placement.on(node)[0]:
            counts["numberMisscheduled"] += bool(present)
            continue
        counts["desiredNumberScheduled"] += 1
        if not present:
            continue
        pod = _age_order(present)[0]
        counts["currentNumberScheduled"] += 1
        counts["numberReady"] += state(pod).ready
        counts["numberAvailable"] += state(pod).available(minimum, now)
        counts["updatedNumberScheduled"] += is_updated(pod, daemon, hash_)
    status = {
        **{key: value for key, value in before.items() if key in ("collisionCount", "conditions")},
        **counts,
        "numberUnavailable": counts["desiredNumberScheduled"] - counts["numberAvailable"],
        "observedGeneration": daemon["metadata"].get("generation") or 0,
    }
    return without_zeros(status, *_SHOWN)
