"""Decisions about a StatefulSet: which pods are created and deleted next, what a pod looks like, the status. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.controllers.apps.conditions import scaled_value, without_zeros
from podwire.controllers.apps.revisions import POD_HASH
from podwire.controllers.apps.stateful_claims import claim_name
from podwire.controllers.metadata import PartialObject, PodState
from podwire.controllers.pod_control import pod_of
from podwire.protocols.k8sapi.watch import Object

POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_MEMBER = re.compile(r"(.*)-([0-9]{1,10})", re.DOTALL)
_UNKNOWN_STATE = PodState()


def parent_and_ordinal(name: str) -> tuple[str, int]:
    """Splits the name of a pod; the ordinal is -1 if it has none."""
    found = _MEMBER.fullmatch(name)
    if found is None or int(found[2]) >= 2**31:
        return (found[1] if found else ""), -1
    return found[1], int(found[2])


def ordinal_of(pod: PartialObject) -> int:
    return parent_and_ordinal(pod.name)[1]


def ordinals(set_: Mapping[str, Any]) -> range:
    """Returns the ordinals of the pods that the set wants."""
    start = (set_["spec"].get("ordinals") or {}).get("start") or 0
    return range(start, start + (set_["spec"].get("replicas") or 0))


def is_ordered(set_: Mapping[str, Any]) -> bool:
    return bool(set_["spec"].get("podManagementPolicy") != "Parallel")


def state(pod: PartialObject) -> PodState:
    return pod.pod or _UNKNOWN_STATE


def is_rolling(set_: Mapping[str, Any]) -> bool:
    """Returns whether pods of an old template are replaced; with OnDelete, the current revision stays as it is."""
    return (set_["spec"].get("updateStrategy") or {}).get("type") == "RollingUpdate"


def revision_of(pod: PartialObject) -> str:
    return pod.labels.get(POD_HASH, "")


def has_identity(pod: PartialObject) -> bool:
    return pod.labels.get(POD_NAME) == pod.name


def stateful_pod(set_: Mapping[str, Any], template: Mapping[str, Any], revision: str, ordinal: int) -> Object:
    """Returns the pod of an ordinal: its name, labels, host name and volumes."""
    name = f"{set_['metadata']['name']}-{ordinal}"
    pod = pod_of(template, set_, name=name)
    labels = {**(pod["metadata"].get("labels") or {}), **identity(name, ordinal), POD_HASH: revision}
    pod["metadata"]["labels"] = labels
    pod["spec"] = with_storage(set_, pod["spec"], ordinal) | {"hostname": name}
    service = set_["spec"].get("serviceName")
    if service:
        pod["spec"]["subdomain"] = service
    return pod


def identity(name: str, ordinal: int) -> dict[str, str]:
    return {POD_NAME: name, POD_INDEX: str(ordinal)}


def with_storage(set_: Mapping[str, Any], spec: Mapping[str, Any], ordinal: int) -> Object:
    """Returns a pod's spec with the volumes of the set's claim templates."""
    names = [template["metadata"]["name"] for template in set_["spec"].get("volumeClaimTemplates") or ()]
    if not names:
        return dict(spec)
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim_name(set_, name, ordinal)}} for name in names
    ]
    kept = [volume for volume in spec.get("volumes") or () if volume.get("name") not in names]
    return {**spec, "volumes": [*volumes, *kept]}


def has_storage(set_: Mapping[str, Any], spec: Mapping[str, Any], ordinal: int) -> bool:
    """Returns whether a pod has the volumes of the set's claim templates."""
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    return all(
        ((volumes.get(name) or {}).get("persistentVolumeClaim") or {}).get("claimName")
        == claim_name(set_, name, ordinal)
        for name in (template["metadata"]["name"] for template in set_["spec"].get("volumeClaimTemplates") or ())
    )


def uses_current(set_: Mapping[str, Any], ordinal: int) -> bool:
    """Returns whether a new pod of an ordinal gets the current template, not the next one."""
    strategy = set_["spec"].get("updateStrategy") or {}
    rolling, start = strategy.get("rollingUpdate"), ordinals(set_).start
    if rolling is not None:
        return ordinal < start + int(rolling.get("partition") or 0)
    current = (set_.get("status") or {}).get("currentReplicas") or 0
    return strategy.get("type") == "RollingUpdate" and ordinal < start + current


@dataclass(slots=True)
class Plan:
    """The next steps. Everything in it may be done together."""

    create: list[int] = field(default_factory=list)
    """Ordinals."""
    delete: list[PartialObject] = field(default_factory=list)
    check: list[PartialObject] = field(default_factory=list)
    """Pods whose labels, volumes and claims are compared with the set's."""
    condemned: list[PartialObject] = field(default_factory=list)
    """Pods beyond the size, the highest ordinal first."""


def plan(set_: Mapping[str, Any], pods: Iterable[PartialObject], update: str, now: float) -> Plan:
    """Decides on the next step towards the size and template of the set; `update` is the name of its revision.

    1. Pods in order of their ordinals: create what is missing, delete what ended; an ordered set waits for each one.
    2. Pods beyond the size, the highest first.  3. Pods of an old template, the highest first.
    """
    wanted, ordered = ordinals(set_), is_ordered(set_)
    minimum = set_["spec"].get("minReadySeconds") or 0
    known = {ordinal_of(pod): pod for pod in pods if ordinal_of(pod) >= 0}
    result = Plan(condemned=[known[ordinal] for ordinal in sorted(known, reverse=True) if ordinal not in wanted])
    for ordinal in wanted:
        if _replica(result, known.get(ordinal), ordinal, minimum, now, ordered=ordered) and ordered:
            return result
    if _condemn(result, known, wanted, minimum, now, ordered=ordered) and ordered:
        return result
    if is_rolling(set_):
        present = [known[ordinal] for ordinal in wanted if ordinal in known]
        outdated = _outdated(set_, present, update, minimum, now, missing=len(result.create))
        result.delete += [pod for pod in outdated if pod not in result.delete]
    return result


def _replica(result: Plan, pod: PartialObject | None, ordinal: int, minimum: int, now: float, *, ordered: bool) -> bool:
    """Decides on one pod within the size; returns whether an ordered set has to wait for it."""
    if pod is None:
        result.create.append(ordinal)
        return True
    if state(pod).phase in ("Succeeded", "Failed"):
        if not pod.deleting:
            result.delete.append(pod)
        return True
    waits = pod.deleting or not _serves(pod, minimum, now)
    if not (waits and ordered) or state(pod).phase == "Pending":
        result.check.append(pod)
    return waits


def _serves(pod: PartialObject, minimum: int, now: float) -> bool:
    return state(pod).phase == "Running" and state(pod).available(minimum, now)


def _unavailable(pod: PartialObject, minimum: int, now: float) -> bool:
    return pod.deleting or not state(pod).available(minimum, now)


def _condemn(
    result: Plan, known: Mapping[int, PartialObject], wanted: range, minimum: int, now: float, *, ordered: bool
) -> bool:
    """Decides on pods beyond the size; returns whether an ordered set waits for one of them."""
    order = [*(known[ordinal] for ordinal in wanted if ordinal in known), *reversed(result.condemned)]
    first = next((pod for pod in order if _unavailable(pod, minimum, now)), None)
    for pod in result.condemned:
        if pod.deleting:
            if ordered:
                return True
            continue
        if ordered and pod is not first and not _serves(pod, minimum, now):
            return True
        result.delete.append(pod)
        if ordered:
            return True
    return False


def _most_unavailable(set_: Mapping[str, Any]) -> int:
    rolling = (set_["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    total = set_["spec"].get("replicas") or 0
    return max(1, scaled_value(rolling.get("maxUnavailable", 1), total, round_up=False))


def _outdated(
    set_: Mapping[str, Any],
    replicas: Sequence[PartialObject],
    update: str,
    minimum: int,
    now: float,
    *,
    missing: int,
) -> list[PartialObject]:
    """Returns the pods of an old template to delete now, the highest ordinal first, above the partition."""
    rolling = (set_["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    lowest = ordinals(set_).start + int(rolling.get("partition") or 0)
    from_the_top = sorted(replicas, key=ordinal_of, reverse=True)
    above = [pod for pod in from_the_top if ordinal_of(pod) >= lowest]
    if "maxUnavailable" not in rolling:
        for pod in above if not missing else ():
            if revision_of(pod) != update and not pod.deleting:
                return [pod]
            if _unavailable(pod, minimum, now):
                return []
        return []
    lost = missing + sum(_unavailable(pod, minimum, now) for pod in replicas)
    old = [pod for pod in above if revision_of(pod) != update and not pod.deleting]
    budget = max(0, _most_unavailable(set_) - lost)
    if is_ordered(set_):
        return old[:budget]
    broken = [pod for pod in old if _unavailable(pod, minimum, now)]
    return [*broken, *[pod for pod in old if pod not in broken][:budget]]


def stateful_status(
    set_: Mapping[str, Any], pods: Iterable[PartialObject], current: str, update: str, collisions: int, now: float
) -> Object:
    """Returns the status of a set with these pods."""
    minimum, wanted = set_["spec"].get("minReadySeconds") or 0, set_["spec"].get("replicas") or 0
    members = [pod for pod in pods if ordinal_of(pod) >= 0]
    living = [pod for pod in members if not pod.deleting]
    ready = [pod for pod in members if state(pod).phase == "Running" and state(pod).ready]
    counts = {
        "replicas": len(members),
        "readyReplicas": len(ready),
        "availableReplicas": sum(state(pod).available(minimum, now) for pod in ready),
        "currentReplicas": sum(revision_of(pod) == current for pod in living),
        "updatedReplicas": sum(revision_of(pod) == update for pod in living),
    }
    complete = counts["updatedReplicas"] == counts["readyReplicas"] == counts["replicas"] == wanted
    if is_rolling(set_) and complete:
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    status = {
        **counts,
        "observedGeneration": set_["metadata"].get("generation") or 0,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collisions,
        "conditions": (set_.get("status") or {}).get("conditions") or [],
    }
    return without_zeros(status, "replicas", "availableReplicas", "collisionCount")
