"""Conditions of the node, from the status of the runtime and the resources of the machine. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from podwire.kubelet.eviction.thresholds import DISK, MEMORY, PIDS
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.watch import Object

READY = "Ready"


class Readiness(NamedTuple):
    """Whether containers can be run here, and why not."""

    ready: bool
    reason: str = ""
    message: str = ""


UNASKED = Readiness(False, "KubeletNotReady", "container runtime status check may not have completed yet")


def readiness(status: pb.RuntimeStatus) -> Readiness:
    """Readiness of the node by the conditions of its runtime; a condition that is not reported is false."""
    reported = {condition.type: condition for condition in status.conditions}
    wrong = [
        f"{what}: {_describe(name, reported)}"
        for name, what in (
            ("RuntimeReady", "container runtime not ready"),
            ("NetworkReady", "container runtime network not ready"),
        )
        if name not in reported or not reported[name].status
    ]
    if not wrong:
        return Readiness(True)
    return Readiness(False, "KubeletNotReady", wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _describe(name: str, reported: Mapping[str, pb.RuntimeCondition]) -> str:
    condition = reported.get(name)
    if condition is None:
        return f"no {name}"
    return f"{name}=false reason:{condition.reason} message:{condition.message}"


class _Words(NamedTuple):
    """Reason and message of a pressure condition, and the event when it changes."""

    reason: str
    message: str
    event: str


_WORDS = {
    (MEMORY, False): _Words(
        "KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"
    ),
    (MEMORY, True): _Words(
        "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"
    ),
    (DISK, False): _Words("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    (DISK, True): _Words("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    (PIDS, False): _Words("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    (PIDS, True): _Words(
        "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"
    ),
}


def conditions(runtime: Readiness, pressed: Collection[str]) -> list[Object]:
    """Conditions without times."""
    pressures_ = [
        _condition(type_, type_ in pressed, *_WORDS[type_, type_ in pressed][:2]) for type_ in (MEMORY, DISK, PIDS)
    ]
    if runtime.ready:
        return [*pressures_, _condition(READY, True, "KubeletReady", "kubelet is posting ready status")]
    return [*pressures_, _condition(READY, False, runtime.reason or "KubeletNotReady", runtime.message)]


def _condition(type_: str, status: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(status), "reason": reason, "message": message}


def dated(conditions_: Sequence[Object], before: Sequence[Object], now: str) -> list[Object]:
    """Conditions with the times of this heartbeat and of their last transition."""
    known = {condition.get("type"): condition for condition in before}
    return [
        {**new, "lastHeartbeatTime": now, "lastTransitionTime": _since(new, known.get(new["type"]), now)}
        for new in conditions_
    ]


def _since(condition: Object, before: Object | None, now: str) -> str:
    if before is None or before.get("status") != condition["status"]:
        return now
    return str(before.get("lastTransitionTime") or now)


def events(conditions_: Sequence[Object], before: Sequence[Object]) -> list[str]:
    """Event reasons: one for each condition that is new or has changed."""
    known = {condition.get("type"): condition.get("status") for condition in before}
    return [_event(new) for new in conditions_ if known.get(new["type"]) != new["status"]]


def _event(condition: Object) -> str:
    status = condition["status"] == "True"
    if condition["type"] == READY:
        return "NodeReady" if status else "NodeNotReady"
    return _WORDS[condition["type"], status].event
