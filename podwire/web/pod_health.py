"""Says how a pod is, in one row: its status as kubectl shows it, and why it is not what it should be. Pure."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from podwire.trace.plain_text import cut, plain

Object = Mapping[str, Any]
LONGEST = 400
"""Characters of a reason."""


class Level(IntEnum):
    """The order in which pods are shown."""

    FAILING = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class PodRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod in the list."""

    key: str
    """namespace/name."""
    uid: str
    level: int
    status: str
    ready: str
    node: str = ""
    ip: str = ""
    restarts: int = 0
    created: str = ""
    why: str = ""
    """The failure, in the words of the pod's status, its events or its trace."""
    took: float | None = None
    """Seconds until it was Running, if its start was recorded."""
    traced: bool = False


_FAILED = frozenset(
    ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "Error",
     "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "OOMKilled", "ContainerCannotRun",
     "PreCreateHookError", "PostStartHookError", "StartError")
)  # fmt: skip


def row(
    pod: Object, warning: str = "", failure: str = "", took: float | None = None, *, traced: bool = False
) -> PodRow:
    """Returns the row of a pod. `warning` is its last Warning event, `failure` its last failed call in the trace."""
    metadata, spec, status = (_map(pod.get(name)) for name in ("metadata", "spec", "status"))
    containers = [_map(entry) for entry in _list(status.get("containerStatuses"))]
    all_containers = [*(_map(entry) for entry in _list(status.get("initContainerStatuses"))), *containers]
    shown, why = _status(metadata, status, all_containers)
    level = _level(shown, status, containers, warning)
    why = _reason(shown, why, warning, failure) if level in (Level.FAILING, Level.WAITING) else ""
    return PodRow(
        key=plain(f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"),
        uid=str(metadata.get("uid", "")),
        level=level,
        status=plain(shown),
        ready=f"{sum(bool(entry.get('ready')) for entry in containers)}/{len(_list(spec.get('containers')))}",
        node=plain(str(spec.get("nodeName") or "")),
        ip=plain(str(status.get("podIP") or "")),
        restarts=sum(_number(entry.get("restartCount")) for entry in containers),
        created=plain(str(metadata.get("creationTimestamp") or "")),
        why=cut(plain(why), LONGEST),
        took=took,
        traced=traced,
    )


def _status(metadata: Object, status: Object, containers: Sequence[Object]) -> tuple[str, str]:
    """Returns the STATUS of kubectl, and the message that belongs to it."""
    if metadata.get("deletionTimestamp"):
        return "Terminating", ""
    for entry in containers:
        state = _map(entry.get("state"))
        waiting, ended = _map(state.get("waiting")), _map(state.get("terminated"))
        reason = str(waiting.get("reason") or "")
        if reason and reason not in ("PodInitializing", "ContainerCreating"):
            last = _map(_map(entry.get("lastState")).get("terminated"))
            message = str(waiting.get("message") or "")
            if last:
                message = f"{message}; last exit code {last.get('exitCode')} ({last.get('reason') or 'no reason'})"
            return reason, f"container {entry.get('name')}: {message}".removesuffix(": ")
        if ended and _number(ended.get("exitCode")):
            reason = str(ended.get("reason") or "Error")
            return reason, f"container {entry.get('name')}: exit code {ended.get('exitCode')}"
    phase = str(status.get("reason") or status.get("phase") or "Unknown")
    if phase == "Pending":
        for condition in map(_map, _list(status.get("conditions"))):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return phase, f"{condition.get('reason') or ''}: {condition.get('message') or ''}"
        if containers:
            return "ContainerCreating", ""
    return phase, str(status.get("message") or "")


def _level(shown: str, status: Object, containers: Sequence[Object], warning: str) -> Level:
    phase = status.get("phase")
    if shown in _FAILED or phase == "Failed" or shown.startswith("Init:"):
        return Level.FAILING
    if phase == "Succeeded":
        return Level.DONE
    if shown in ("Pending", "ContainerCreating", "PodInitializing"):
        return Level.FAILING if warning else Level.WAITING
    if shown == "Terminating":
        return Level.WAITING
    if phase == "Running":
        return Level.RUNNING if all(entry.get("ready") for entry in containers) else Level.WAITING
    return Level.WAITING


def _reason(shown: str, why: str, warning: str, failure: str) -> str:
    """Joins what is known, the event first: it is what the component itself said to the user."""
    if shown == "Running" and not (why or warning):
        return "not ready"
    parts = [part for part in (why, warning) if part]
    if failure and not any(failure.rpartition(": ")[2] in part for part in parts):
        parts.append(f"trace: {failure}")
    return " · ".join(parts)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def with_trace(row_: PodRow, took: float | None) -> PodRow:
    """Returns the row of a pod whose start was recorded."""
    return msgspec.structs.replace(row_, took=took, traced=True)
