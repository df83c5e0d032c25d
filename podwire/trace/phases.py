"""Where the time of a start went: its phases one after the other, and what took part in them. Pure.

Phases follow each other from the request until Running, so they sum up to the whole. Parts are kinds of calls, counted
wherever they are; they overlap with phases and with each other.
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
    STORE,
)
from podwire.trace.pod_trace import Arrow, PodTrace, Turn


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Part:
    """Calls of one kind: how many, and how long at least one of them was under way."""

    name: str
    seconds: float
    calls: int


Wanted = Callable[[Arrow], bool]


def _reply(callee: str, pattern: str) -> Wanted:
    """The good answer to such a call."""
    method = re.compile(pattern)

    def wanted(arrow: Arrow) -> bool:
        return (
            arrow.turn is Turn.REPLY
            and arrow.caller == callee
            and not arrow.failed
            and bool(method.fullmatch(_bare(arrow)))
        )

    return wanted


def _call(callee: str, pattern: str) -> Wanted:
    method = re.compile(pattern)

    def wanted(arrow: Arrow) -> bool:
        return arrow.turn is Turn.CALL and arrow.callee == callee and bool(method.fullmatch(_bare(arrow)))

    return wanted


def _told(callee: str) -> Wanted:
    """A watch delivers the pod with its node."""
    return lambda arrow: arrow.turn is Turn.EVENT and arrow.callee == callee and "nodeName" in dict(arrow.facts)


def _first(times: Sequence[float]) -> float:
    return times[0]


def _last(times: Sequence[float]) -> float:
    return times[-1]


_MILESTONES: tuple[tuple[str, Wanted, Callable[[Sequence[float]], float]], ...] = (
    ("request", _reply(API_SERVER, r"POST /api/v1/namespaces/[^/]+/pods"), _first),
    ("scheduling", _reply(API_SERVER, r"POST .*/(pods/[^/]+/binding|bindings)"), _last),
    ("kubelet told", _told(KUBELET), _first),
    ("preparing", _call(RUNTIME, "RunPodSandbox"), _first),
    ("sandbox", _reply(RUNTIME, "RunPodSandbox"), _last),
    ("creating", _reply(RUNTIME, "CreateContainer"), _last),
    ("starting", _reply(RUNTIME, "StartContainer"), _last),
)
"""A phase ends at its milestone. One that is not told has no phase; its time is the next one's."""
REPORTING = "reporting"
PHASES = (*(name for name, _, _ in _MILESTONES), REPORTING)

_PARTS: tuple[tuple[str, Wanted], ...] = (
    ("store", lambda arrow: arrow.callee == STORE),
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
    """In order; none for a pod that does not run yet."""
    if trace.running is None:
        return []
    found, before = [], trace.begin
    own = [arrow for arrow in trace.arrows if trace.begin <= arrow.time <= trace.running]
    for name, wanted, pick in _MILESTONES:
        times = [arrow.time for arrow in own if wanted(arrow)]
        if times:
            end = max(before, pick(times))
            found.append(Phase(name, end - before))
            before = end
    return [*found, Phase(REPORTING, trace.running - before)]


def parts(trace: PodTrace) -> list[Part]:
    """Those that there were, until the pod ran or until now."""
    until = trace.running if trace.running is not None else float("inf")
    calls = [
        arrow
        for arrow in trace.arrows
        if arrow.turn is Turn.CALL and arrow.took is not None and trace.begin <= arrow.time <= until
    ]
    found = []
    for name, wanted in _PARTS:
        own = [(call.time, call.time + (call.took or 0.0)) for call in calls if wanted(call)]
        if own:
            found.append(Part(name, _union(own), len(own)))
    return found


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of them is."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _bare(arrow: Arrow) -> str:
    return arrow.method.partition("?")[0]
