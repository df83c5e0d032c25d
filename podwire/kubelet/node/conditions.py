"""How the node is: its four conditions, from what the runtime and the machine say. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podwire.kubelet.node.settings import Thresholds
from podwire.linux.machine import FreeResources
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.watch import Object

READY, MEMORY, DISK, PIDS = "Ready", "MemoryPressure", "DiskPressure", "PIDPressure"


class Readiness(NamedTuple):
    """Whether containers can be run here, and why not."""

    ready: bool
    reason: str = ""
    message: str = ""


UNASKED = Readiness(False, "KubeletNotReady", "container runtime status check may not have completed yet")


def readiness(status: pb.RuntimeStatus) -> Readiness:
    """What the conditions of a runtime mean for the node; those that it does not report are not true."""
    told = {each.type: each for each in status.conditions}
    wrong = [
        f"{what}: {_shown(name, told)}"
        for name, what in (
            ("RuntimeReady", "container runtime not ready"),
            ("NetworkReady", "container runtime network not ready"),
        )
        if name not in told or not told[name].status
    ]
    if not wrong:
        return Readiness(True)
    return Readiness(False, "KubeletNotReady", wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _shown(name: str, told: Mapping[str, pb.RuntimeCondition]) -> str:
    found = told.get(name)
    return f"{name}=false reason:{found.reason} message:{found.message}" if found is not None else f"no {name}"


class _Words(NamedTuple):
    """What is said of a pressure, and the event when it changes."""

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


def pressures(left: FreeResources, limits: Thresholds) -> dict[str, bool]:
    """By condition. Where a file system makes inodes as they are needed, they do not run out."""
    short_of_inodes = left.inodes_size > 0 and left.inodes < limits.inodes * left.inodes_size
    return {
        MEMORY: left.memory < limits.memory,
        DISK: left.disk < limits.disk * left.disk_size or short_of_inodes,
        PIDS: left.pids < limits.pids * left.pids_size,
    }


def conditions(runtime: Readiness, pressed: Mapping[str, bool]) -> list[Object]:
    """Without times: what is to be said, whenever it is said."""
    said = [_condition(each, pressed[each], *_WORDS[each, pressed[each]][:2]) for each in (MEMORY, DISK, PIDS)]
    if runtime.ready:
        return [*said, _condition(READY, True, "KubeletReady", "kubelet is posting ready status")]
    return [*said, _condition(READY, False, runtime.reason or "KubeletNotReady", runtime.message)]


def _condition(type_: str, status: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(status), "reason": reason, "message": message}


def dated(said: Sequence[Object], before: Sequence[Object], now: str) -> list[Object]:
    """With the time of this report, and that since which each has been as it is."""
    known = {each.get("type"): each for each in before}
    return [
        {**each, "lastHeartbeatTime": now, "lastTransitionTime": _since(each, known.get(each["type"]), now)}
        for each in said
    ]


def _since(condition: Object, before: Object | None, now: str) -> str:
    if before is None or before.get("status") != condition["status"]:
        return now
    return str(before.get("lastTransitionTime") or now)


def events(said: Sequence[Object], before: Sequence[Object]) -> list[str]:
    """The reasons to tell: one for each condition that is new or has changed."""
    known = {each.get("type"): each.get("status") for each in before}
    return [_event(each) for each in said if known.get(each["type"]) != each["status"]]


def _event(condition: Object) -> str:
    status = condition["status"] == "True"
    if condition["type"] == READY:
        return "NodeReady" if status else "NodeNotReady"
    return _WORDS[condition["type"], status].event
