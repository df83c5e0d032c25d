"""The row of a pod. Its status is not the phase but what holds it up or ended it."""

from dataclasses import dataclass
from typing import Any

from podwire.kinds.tables import (
    NONE,
    Json,
    age_of,
    condition,
    count,
    elements,
    is_deleted,
    moment,
    name_of,
    number,
    part,
    text,
)
from podwire.objects.times import human_duration

_TERMINAL = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Restarts:
    """The number of container restarts, and the end of the last container that was restarted."""

    number: int = 0
    last: float = 0.0

    def add(self, container: Json) -> None:
        self.number += number(container, "restartCount")
        if "lastState" in container:
            ended = moment(part(container, "lastState", "terminated"), "finishedAt")
            self.last = max(self.last, ended or 0.0)

    def shown(self, now: float) -> str:
        if not (self.number and self.last):
            return str(self.number)
        return f"{self.number} ({human_duration(now - self.last)} ago)"


@dataclass(slots=True)
class _Start:
    """The progress of the init containers. `blocked` is the status while one of them delays the pod."""

    blocked: str
    ready: int
    restarts: _Restarts
    sidecars: _Restarts


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    sidecars = {
        text(container, "name")
        for container in elements(spec, "initContainers")
        if container.get("restartPolicy") == "Always"
    }
    start = _start(spec, status, sidecars)
    reason, ready, restarts = text(status, "reason") or text(status, "phase"), start.ready, start.restarts
    if start.blocked:
        reason = start.blocked
    elif condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    if not start.blocked or condition(status, "Initialized").get("status") == "True":
        restarts = start.sidecars
        reason, running = _containers(status, reason, restarts)
        ready += running
    if is_deleted(obj):
        reason = _ending(status, reason)
    addresses = elements(status, "podIPs")
    return [
        name_of(obj),
        f"{ready}/{count(spec, 'containers') + len(sidecars)}",
        reason,
        restarts.shown(now),
        age_of(obj, now),
        (text(addresses[0], "ip") if addresses else text(status, "podIP")) or NONE,
        text(spec, "nodeName", NONE),
        text(status, "nominatedNodeName", NONE),
        _gates(spec, status),
    ]


def _start(spec: Json, status: Json, sidecars: set[str]) -> _Start:
    start = _Start("", 0, _Restarts(), _Restarts())
    for index, container in enumerate(elements(status, "initContainerStatuses")):
        sidecar = text(container, "name") in sidecars
        start.restarts.add(container)
        if sidecar:
            start.sidecars.add(container)
        terminated = part(container, "state").get("terminated")
        if isinstance(terminated, dict) and number(terminated, "exitCode") == 0:
            continue
        if sidecar and container.get("started") is True:
            start.ready += container.get("ready") is True
            continue
        held = _held(container) or f"{index}/{count(spec, 'initContainers')}"
        start.blocked = f"Init:{held}"
        break
    return start


def _held(container: Json) -> str:
    """Why an init container is not done; nothing when it simply runs or has not begun."""
    state = part(container, "state")
    if isinstance(terminated := state.get("terminated"), dict):
        return _ended(terminated)
    reason = text(part(state, "waiting"), "reason")
    return "" if reason == "PodInitializing" else reason


def _ended(terminated: Json) -> str:
    if reason := text(terminated, "reason"):
        return reason
    if signal := number(terminated, "signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{number(terminated, 'exitCode')}"


def _containers(status: Json, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """Returns the status that the containers give (the first one decides) and the number of ready ones."""
    ready = 0
    for container in reversed(elements(status, "containerStatuses")):
        restarts.add(container)
        state = part(container, "state")
        if waiting := text(part(state, "waiting"), "reason"):
            reason = waiting
        elif isinstance(terminated := state.get("terminated"), dict):
            reason = _ended(terminated)
        elif container.get("ready") is True and isinstance(state.get("running"), dict):
            ready += 1
    if reason == "Completed" and ready:
        reason = "Running" if condition(status, "Ready").get("status") == "True" else "NotReady"
    return reason, ready


def _ending(status: Json, reason: str) -> str:
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _TERMINAL else "Terminating"


def _gates(spec: Json, status: Json) -> str:
    gates = elements(spec, "readinessGates")
    if not gates:
        return NONE
    met = sum(condition(status, text(gate, "conditionType")).get("status") == "True" for gate in gates)
    return f"{met}/{len(gates)}"
