"""Splits the time of a start into consecutive phases and overlapping parts. Pure.

Phases follow each other from the request until Running, so they add up to the whole. Parts are kinds of calls, counted
wherever they occur; they overlap with phases and with each other.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from podwire.trace.participants import (
    API_SERVER,
    CNI_PLUGIN,
    DEVICE_PLUGIN,
    KUBELET,
    RUNTIME,
    SCHEDULER,
    STORES,
)
from podwire.trace.pod_trace import Arrow, PodTrace, Turn


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Part:
    """Calls of one kind: their number, and the time during which at least one of them was open."""

    name: str
    seconds: float
    calls: int


Predicate = Callable[[Arrow], bool]


def _reply(callee: str, pattern: str) -> Predicate:
    """Matches the successful reply to such a call."""
    method = re.compile(pattern)

    def matches(arrow: Arrow) -> bool:
        return (
            arrow.turn is Turn.REPLY
            and arrow.caller == callee
            and not arrow.failed
            and bool(method.fullmatch(_bare(arrow)))
        )

    return matches


def _call(callee: str, pattern: str) -> Predicate:
    method = re.compile(pattern)

    def matches(arrow: Arrow) -> bool:
        return arrow.turn is Turn.CALL and arrow.callee == callee and bool(method.fullmatch(_bare(arrow)))

    return matches


def _watched(callee: str) -> Predicate:
    """Matches the watch event that delivers the pod with its node."""
    return lambda arrow: arrow.turn is Turn.EVENT and arrow.callee == callee and "nodeName" in dict(arrow.facts)


def _first(times: Sequence[float]) -> float:
    return times[0]


def _last(times: Sequence[float]) -> float:
    return times[-1]


_MILESTONES: tuple[tuple[str, Predicate, Callable[[Sequence[float]], float]], ...] = (
    ("request", _reply(API_SERVER, r"POST /api/v1/namespaces/[^/]+/pods"), _first),
    ("scheduling", _reply(API_SERVER, r"POST .*/(pods/[^/]+/binding|bindings)"), _last),
    ("delivery", _watched(KUBELET), _first),
    ("preparing", _call(RUNTIME, "RunPodSandbox"), _first),
    ("sandbox", _reply(RUNTIME, "RunPodSandbox"), _last),
    ("creating", _reply(RUNTIME, "CreateContainer"), _last),
    ("starting", _reply(RUNTIME, "StartContainer"), _last),
)
"""A phase ends at its milestone. A milestone that was not recorded has no phase; its time counts for the next one."""
REPORTING = "reporting"
PHASES = (*(name for name, _, _ in _MILESTONES), REPORTING)

_PARTS: tuple[tuple[str, Predicate], ...] = (
    ("store", lambda arrow: arrow.callee in STORES),
    ("scheduler", lambda arrow: arrow.caller == SCHEDULER),
    ("claims", lambda arrow: arrow.method in ("NodePrepareResources", "NodeUnprepareResources")),
    ("devices", lambda arrow: arrow.callee == DEVICE_PLUGIN),
    ("CNI", lambda arrow: arrow.caller == RUNTIME and arrow.callee == CNI_PLUGIN),
    ("NRI", lambda arrow: arrow.method.startswith("NRI ")),
    ("images", lambda arrow: arrow.method in ("PullImage", "ImageStatus")),
    ("OCI runtime", lambda arrow: arrow.method.startswith(("crun ", "runc "))),
)
PARTS = tuple(name for name, _ in _PARTS)


def phases(trace: PodTrace) -> list[Phase]:
    """Returns the phases in order; none for a pod that is not Running yet."""
    if trace.running is None:
        return []
    result, before = [], trace.begin
    own = [arrow for arrow in trace.arrows if trace.begin <= arrow.time <= trace.running]
    for name, matches, pick in _MILESTONES:
        times = [arrow.time for arrow in own if matches(arrow)]
        if times:
            end = max(before, pick(times))
            result.append(Phase(name, end - before))
            before = end
    return [*result, Phase(REPORTING, trace.running - before)]


def parts(trace: PodTrace) -> list[Part]:
    """Returns the parts that occurred, until the pod ran or until now."""
    until = trace.running if trace.running is not None else float("inf")
    calls = [
        arrow
        for arrow in trace.arrows
        if arrow.turn is Turn.CALL and arrow.took is not None and trace.begin <= arrow.time <= until
    ]
    result = []
    for name, matches in _PARTS:
        own = [(call.time, call.time + (call.took or 0.0)) for call in calls if matches(call)]
        if own:
            result.append(Part(name, _union(own), len(own)))
    return result


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the seconds covered by at least one of the intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _bare(arrow: Arrow) -> str:
    return arrow.method.partition("?")[0]
