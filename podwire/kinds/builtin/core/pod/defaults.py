"""Defaults of a Pod, and what its creation sets."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.builtin.core.pod.qos import qos_class
from podwire.kinds.podspec.defaults import default_pod_spec
from podwire.kinds.podspec.resource_defaults import default_pod_level, request_limits


def default_pod(pod: dict[str, Any]) -> None:
    """Fills in defaults. Those that a pod has and a template has not come first: requests follow limits before
    rounding."""
    spec = pod["spec"]
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            request_limits(container)
    if spec.get("resources") is not None:
        default_pod_level(spec)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _publish_ports(spec)
    default_pod_spec(spec)
    if status := pod.get("status"):
        _align_addresses(status)


def _publish_ports(spec: dict[str, Any]) -> None:
    """On the host's network a port of the container is a port of the host."""
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            for port in container.get("ports") or ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def _align_addresses(status: dict[str, Any]) -> None:
    """podIP is the first of podIPs; where they differ, podIP is right."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


def prepare_create(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    status = pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod)}
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        if created := pod["metadata"].get("creationTimestamp"):
            gated["lastTransitionTime"] = created
        status["conditions"] = [gated]
    labels = pod["metadata"].get("labels") or {}
    if affinity := spec.get("affinity"):
        for term in _affinity_terms(affinity):
            _narrow(term, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _narrow(constraint, labels)


def prepare_status(pod: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Keeps what a client that does not know the field leaves out of a status: generations and the QoS class."""
    status, before = pod.get("status"), old.get("status") or {}
    if status is None:
        return
    for name in ("observedGeneration", "qosClass"):
        if not status.get(name) and before.get(name):
            status[name] = before[name]
    conditions = status.get("conditions") or ()
    if all(condition.get("observedGeneration") for condition in conditions):
        return
    known: dict[str, list[int]] = {}  # validation permits several conditions of one type
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration") or 0)
    for condition in conditions:
        generations = known.get(condition.get("type", ""))
        generation = generations.pop(0) if generations else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def _affinity_terms(affinity: Mapping[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = []
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [term["podAffinityTerm"] for term in preferred if term.get("podAffinityTerm")]
    return terms


def _narrow(term: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Adds the values of matchLabelKeys, which name labels of the new pod, to the selector; later changes do not
    count."""
    selector = term.get("labelSelector")
    if selector is None:  # it selects nothing
        return
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys) or ():
            if key in labels:
                expression = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(expression)
