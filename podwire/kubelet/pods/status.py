"""The status of a pod, and the patch that brings the API's status to it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from podwire.kubelet.pods.container_status import State, StatusInputs, container_status, uninitialized
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.plan import outcome
from podwire.kubelet.pods.resize import CONDITIONS
from podwire.objects.pods import Pod


def pod_status(pod: Pod, observed: ObservedPod, inputs: StatusInputs) -> State:
    """All fields of the status that a kubelet owns."""
    spec = pod.spec
    init = [container_status(pod, container, observed, inputs) for container in spec.init_containers]
    apps = [container_status(pod, container, observed, inputs) for container in spec.containers]
    phase = _phase(pod, observed, inputs, apps)
    status: State = {
        "phase": phase,
        "conditions": _conditions(pod, observed, inputs, phase, apps),
        "hostIP": inputs.host_ips[0] if inputs.host_ips else None,
        "hostIPs": [{"ip": ip} for ip in inputs.host_ips] or None,
        "startTime": pod.status.start_time or inputs.now,
        "initContainerStatuses": init or None,
        "containerStatuses": apps,
        "qosClass": inputs.qos,
    }
    if spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [
            container_status(pod, container, observed, inputs) for container in spec.ephemeral_containers
        ]
    if (ips := pod_ips(pod, observed, inputs.host_ips)) or phase not in ("Succeeded", "Failed"):
        status["podIP"] = ips[0] if ips else None
        status["podIPs"] = [{"ip": ip} for ip in ips] or None
    if inputs.failure is not None:
        status["reason"], status["message"] = inputs.failure
    elif pod.finished:
        # Reported once, perhaps by an earlier kubelet or by somebody else; it stays.
        status["reason"], status["message"] = pod.status.reason or None, pod.status.message or None
    return _observed(pod, {name: value for name, value in status.items() if value is not None})


def _observed(pod: Pod, status: State) -> State:
    """The status, or a condition, with the generation of the spec that it is about. An API server before Kubernetes
    1.33 counts none."""
    return {**status, "observedGeneration": pod.metadata.generation} if pod.metadata.generation else status


def rejected_status(pod: Pod, reason: str, message: str, now: str) -> State:
    """The status of a pod that was not admitted."""
    status = {"phase": "Failed", "reason": reason, "message": message, "startTime": pod.status.start_time or now}
    return _observed(pod, status)


def pod_ips(pod: Pod, observed: ObservedPod, host_ips: tuple[str, ...]) -> tuple[str, ...]:
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.ready:
        return ()
    return host_ips if pod.spec.host_network else sandbox.ips


def _phase(pod: Pod, observed: ObservedPod, inputs: StatusInputs, apps: Sequence[State]) -> str:
    if inputs.failure is not None:
        return "Failed"
    ended = outcome(pod, observed)
    if ended is not None:
        return ended
    if pod.deleting and observed.containers and not observed.running:
        latest = [observed.latest(container.name) for container in pod.spec.containers]
        codes = [container.exit_code if container is not None else None for container in latest]
        return "Failed" if any(code != 0 for code in codes) else "Succeeded"
    if pod.spec.init_containers and uninitialized(pod, observed, inputs):
        return "Pending"
    never_ran = [status for status in apps if "waiting" in status["state"] and not status["lastState"]]
    return "Pending" if never_ran or not apps else "Running"


def _conditions(
    pod: Pod, observed: ObservedPod, inputs: StatusInputs, phase: str, apps: Sequence[State]
) -> list[State]:
    unready = [status["name"] for status in apps if not status["ready"]]
    sidecars = [container.name for container in pod.spec.init_containers if container.sidecar]
    unready += [name for name in sidecars if not _ready(name, observed, inputs)]
    waiting = uninitialized(pod, observed, inputs) if phase != "Succeeded" else []
    sandbox = observed.sandbox
    networked = sandbox is not None and sandbox.ready
    containers = _condition("ContainersReady", not unready, *_why_unready(unready, phase))
    ready = _condition("Ready", not unready, *_why_unready(unready, phase))
    if not unready and (closed := _closed_gates(pod)):
        ready = _condition("Ready", False, "ReadinessGatesNotReady", ", ".join(closed))
    incomplete = f"containers with incomplete status: [{' '.join(waiting)}]"
    conditions = [
        _condition("PodReadyToStartContainers", networked),
        _condition("Initialized", not waiting, "ContainersNotInitialized", incomplete),
        ready,
        containers,
        _condition("PodScheduled", True),
    ]
    if inputs.disruption:
        target = {"reason": "TerminationByKubelet", "message": inputs.disruption}
        conditions.append({**_condition("DisruptionTarget", True), **target})
    for type_, (reason, message, generation) in inputs.resize.items():
        parts = {"reason": reason, "message": message, "observedGeneration": generation}
        conditions.append({**_condition(type_, True), **{name: part for name, part in parts.items() if part}})
    return [_since(condition, pod, inputs.now) for condition in conditions]


def _closed_gates(pod: Pod) -> list[str]:
    """Says for each readiness gate that is not open why."""
    closed = []
    for gate in pod.spec.readiness_gates:
        reported = _reported(pod, gate.condition_type)
        if reported is None:
            closed.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif (status := reported.get("status", "")) != "True":
            closed.append(f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {status}')
    return closed


def _ready(name: str, observed: ObservedPod, inputs: StatusInputs) -> bool:
    seen = observed.latest(name)
    return seen is not None and seen.running and seen.id in inputs.ready


def _why_unready(unready: Sequence[str], phase: str) -> tuple[str, str]:
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _condition(type_: str, met: bool, reason: str = "", message: str = "") -> State:
    condition: State = {"type": type_, "status": "True" if met else "False"}
    if not met and reason:
        condition["reason"] = reason
    if not met and message:
        condition["message"] = message
    return condition


def _since(condition: State, pod: Pod, now: str) -> State:
    """A condition with the time of its last transition."""
    before = _reported(pod, condition["type"])
    same = before is not None and before.get("status") == condition["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    return {**_observed(pod, {"lastProbeTime": None, "lastTransitionTime": since or now}), **condition}


def _reported(pod: Pod, type_: str) -> dict[str, Any] | None:
    return next((condition for condition in pod.status.conditions if condition.get("type") == type_), None)


def needs_sync(before: Pod, after: Pod) -> bool:
    """Whether a change of the pod in the API is more than the echo of a status that this kubelet reported."""
    gates = {gate.condition_type for gate in after.spec.readiness_gates}
    return (
        after.spec != before.spec
        or after.status.phase != before.status.phase
        or after.status.resource_claim_statuses != before.status.resource_claim_statuses
        or msgspec.structs.replace(after.metadata, resource_version="")
        != msgspec.structs.replace(before.metadata, resource_version="")
        or [condition for condition in after.status.conditions if condition.get("type") in gates]
        != [condition for condition in before.status.conditions if condition.get("type") in gates]
    )


def status_patch(before: State, after: State) -> State:
    """The strategic merge patch from one status to another; empty when they are equal."""
    patch: State = {}
    for name, value in after.items():
        if name == "conditions":
            if changed := _changed_conditions(before.get(name) or (), value):
                patch[name] = changed
        elif before.get(name) != value:
            # Addresses would be merged with those of an earlier sandbox.
            patch[name] = [{"$patch": "replace"}, *value] if name in ("podIPs", "hostIPs") else value
    for name in _CLEARED:
        if name not in after and before.get(name):
            patch[name] = [{"$patch": "replace"}] if name == "podIPs" else None
    return patch


_CLEARED = ("podIP", "podIPs", "reason", "message")
"""Fields that a status may lose again."""


def _changed_conditions(before: Iterable[State], after: Iterable[State]) -> list[State]:
    known = {condition["type"]: condition for condition in before}
    changed = [condition for condition in after if not _equal(known.get(condition["type"]), condition)]
    types = {condition["type"] for condition in after}
    ended = [{"$patch": "delete", "type": type_} for type_ in CONDITIONS if type_ in known and type_ not in types]
    # A merge keeps fields that the patch does not name: the reason of a failure would outlive it without these nulls.
    complete = (
        {**dict.fromkeys(_REASONS & known.get(condition["type"], {}).keys()), **condition} for condition in changed
    )
    return [*complete, *ended]


_REASONS = {"reason", "message"}


def _equal(one: State | None, other: State) -> bool:
    parts = ("status", "reason", "message", "lastTransitionTime", "observedGeneration")
    return one is not None and all((one.get(part) or "") == (other.get(part) or "") for part in parts)
