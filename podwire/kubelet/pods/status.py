"""A pod's status as the API shall show it, and what of it has changed. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from podwire.kubelet.pods.container_status import State, View, container_status, uninitialized
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.plan import outcome
from podwire.objects.pods import Pod


def pod_status(pod: Pod, observed: ObservedPod, view: View) -> State:
    """The whole status, as far as a kubelet has a say in it."""
    spec = pod.spec
    init = [container_status(pod, each, observed, view) for each in spec.init_containers]
    apps = [container_status(pod, each, observed, view) for each in spec.containers]
    phase = _phase(pod, observed, view, apps)
    status: State = {
        "phase": phase,
        "conditions": _conditions(pod, observed, view, phase, apps),
        "hostIP": view.host_ips[0] if view.host_ips else None,
        "hostIPs": [{"ip": each} for each in view.host_ips] or None,
        "startTime": pod.status.start_time or view.now,
        "initContainerStatuses": init or None,
        "containerStatuses": apps,
        "qosClass": view.qos,
    }
    if spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [
            container_status(pod, each, observed, view) for each in spec.ephemeral_containers
        ]
    if (ips := pod_ips(pod, observed, view.host_ips)) or phase not in ("Succeeded", "Failed"):
        status["podIP"] = ips[0] if ips else None
        status["podIPs"] = [{"ip": each} for each in ips] or None
    if view.failure is not None:
        status["reason"], status["message"] = view.failure
    elif pod.finished:
        # Why a pod has failed as a whole was told once, maybe by an earlier kubelet, maybe by somebody else.
        status["reason"], status["message"] = pod.status.reason or None, pod.status.message or None
    return {name: value for name, value in status.items() if value is not None}


def rejected(pod: Pod, reason: str, message: str, now: str) -> State:
    """The status of a pod that this node does not take."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": pod.status.start_time or now}


def pod_ips(pod: Pod, observed: ObservedPod, host_ips: tuple[str, ...]) -> tuple[str, ...]:
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.ready:
        return ()
    return host_ips if pod.spec.host_network else sandbox.ips


def _phase(pod: Pod, observed: ObservedPod, view: View, apps: Sequence[State]) -> str:
    if view.failure is not None:
        return "Failed"
    ended = outcome(pod, observed)
    if ended is not None:
        return ended
    if pod.deleting and observed.containers and not observed.running:
        codes = [seen.exit_code if (seen := observed.latest(each.name)) else None for each in pod.spec.containers]
        return "Failed" if any(code != 0 for code in codes) else "Succeeded"
    if pod.spec.init_containers and uninitialized(pod, observed, view):
        return "Pending"
    never_ran = [each for each in apps if "waiting" in each["state"] and not each["lastState"]]
    return "Pending" if never_ran or not apps else "Running"


def _conditions(pod: Pod, observed: ObservedPod, view: View, phase: str, apps: Sequence[State]) -> list[State]:
    unready = [each["name"] for each in apps if not each["ready"]]
    unready += [
        each.name for each in pod.spec.init_containers if each.sidecar and not _ready(each.name, observed, view)
    ]
    waiting = uninitialized(pod, observed, view) if phase != "Succeeded" else []
    sandbox = observed.sandbox
    networked = sandbox is not None and sandbox.ready
    containers = _judged("ContainersReady", not unready, *_why_unready(unready, phase))
    ready = _judged("Ready", not unready, *_why_unready(unready, phase))
    closed = [each for each in pod.spec.readiness_gates if not _is_true(pod, each.condition_type)]
    if not unready and closed:
        gate = closed[0].condition_type
        why = f'the status of pod readiness gate "{gate}" is not "True", but {_status_of(pod, gate)}'
        ready = _judged("Ready", False, "ReadinessGatesNotReady", why)
    incomplete = f"containers with incomplete status: [{' '.join(waiting)}]"
    wanted = [
        _judged("PodReadyToStartContainers", networked),
        _judged("Initialized", not waiting, "ContainersNotInitialized", incomplete),
        ready,
        containers,
        _judged("PodScheduled", True),
    ]
    return [_since(each, pod, view.now) for each in wanted]


def _ready(name: str, observed: ObservedPod, view: View) -> bool:
    seen = observed.latest(name)
    return seen is not None and seen.running and seen.id in view.ready


def _why_unready(unready: Sequence[str], phase: str) -> tuple[str, str]:
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _judged(type_: str, met: bool, reason: str = "", message: str = "") -> State:
    told: State = {"type": type_, "status": "True" if met else "False"}
    if not met and reason:
        told["reason"] = reason
    if not met and message:
        told["message"] = message
    return told


def _since(condition: State, pod: Pod, now: str) -> State:
    """With the time of its last change."""
    before = _condition(pod, condition["type"])
    same = before is not None and before.get("status") == condition["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    return {**condition, "lastProbeTime": None, "lastTransitionTime": since or now}


def _condition(pod: Pod, type_: str) -> dict[str, Any] | None:
    return next((each for each in pod.status.conditions if each.get("type") == type_), None)


def _is_true(pod: Pod, type_: str) -> bool:
    condition = _condition(pod, type_)
    return condition is not None and condition.get("status") == "True"


def _status_of(pod: Pod, type_: str) -> str:
    condition = _condition(pod, type_)
    return f'"{condition["status"]}"' if condition is not None else "the condition does not exist"


def moved(before: Pod, after: Pod) -> bool:
    """Whether there is more to see than the echo of what was reported from here."""
    gates = {each.condition_type for each in after.spec.readiness_gates}
    return (
        after.spec != before.spec
        or after.status.phase != before.status.phase
        or after.status.resource_claim_statuses != before.status.resource_claim_statuses
        or msgspec.structs.replace(after.metadata, resource_version="")
        != msgspec.structs.replace(before.metadata, resource_version="")
        or [each for each in after.status.conditions if each.get("type") in gates]
        != [each for each in before.status.conditions if each.get("type") in gates]
    )


def changes(before: State, after: State) -> State:
    """What a strategic merge patch has to say to bring a status to what it should be; empty when it is that."""
    patch: State = {}
    for name, value in after.items():
        if name == "conditions":
            if moved := _moved(before.get(name) or (), value):
                patch[name] = moved
        elif before.get(name) != value:
            # Addresses would be merged with those of an earlier sandbox.
            patch[name] = [{"$patch": "replace"}, *value] if name in ("podIPs", "hostIPs") else value
    for name in _CLEARED:
        if name not in after and before.get(name):
            patch[name] = [{"$patch": "replace"}] if name == "podIPs" else None
    return patch


_CLEARED = ("podIP", "podIPs", "reason", "message")
"""What a status may lose again."""


def _moved(before: Iterable[State], after: Iterable[State]) -> list[State]:
    known = {each["type"]: each for each in before}
    moved = [each for each in after if not _equal(known.get(each["type"]), each)]
    # A merge keeps what it is not told of: the reason of what was wrong would stay when it is right again.
    return [{**dict.fromkeys(_REASONS & known.get(each["type"], {}).keys()), **each} for each in moved]


_REASONS = {"reason", "message"}


def _equal(one: State | None, other: State) -> bool:
    parts = ("status", "reason", "message", "lastTransitionTime")
    return one is not None and all((one.get(each) or "") == (other.get(each) or "") for each in parts)
