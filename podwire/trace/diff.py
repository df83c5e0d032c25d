"""Compares two starts call by call: slower, missing and extra calls, and the sums of the phases. Pure.

A hop is a call between two participants. The n-th hop of a kind in one trace is compared with the n-th in the other,
in whatever order they came, because concurrent calls have no order.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from podwire.protocols.k8sapi import paths
from podwire.protocols.k8sapi.paths import BadPath
from podwire.trace.participants import USER
from podwire.trace.phases import PARTS, PHASES, parts, phases
from podwire.trace.pod_trace import Arrow, PodTrace, Turn

REGISTRY = "/registry/"
_VERSION = re.compile(r"\([^()]*rv [^()]*\)")
"""The resource version of an object that a client read."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One side of a row."""

    at: float
    """Seconds after the request for the pod."""
    took: float
    failed: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A hop in both traces; None where a trace does not have it."""

    caller: str
    callee: str
    call: str
    first: Hop | None
    second: Hop | None

    @property
    def slower(self) -> float | None:
        """Seconds by which the second hop is slower; None unless both exist."""
        return self.second.took - self.first.took if self.first and self.second else None

    @property
    def kind(self) -> str:
        return "both" if self.first and self.second else "missing" if self.first else "extra"


@dataclass(frozen=True, slots=True)
class Sum:
    """A phase or part in both traces; None where a trace does not have it."""

    name: str
    first: float | None
    second: float | None

    @property
    def slower(self) -> float:
        return (self.second or 0.0) - (self.first or 0.0)


@dataclass(frozen=True, slots=True)
class Failure:
    """A kind of call that failed."""

    caller: str
    callee: str
    call: str
    times: int
    error: str
    """The last error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    first: PodTrace
    second: PodTrace
    phases: tuple[Sum, ...]
    parts: tuple[Sum, ...]
    rows: tuple[Row, ...]
    """In the order of the first trace; then hops that only the second has, in its order."""
    failures: tuple[Failure, ...] = ()
    """Calls that failed in the second trace, each kind once, the most frequent first."""
    backoff: float = 0.0
    """Seconds that the second start waited after failed calls, without calling anybody."""


def diff(first: PodTrace, second: PodTrace) -> Diff:
    one, other = _hops(first), _hops(second)
    rows = [
        Row(*key[:3], hop, other.get(key)) for key, hop in one.items()
    ] + [Row(*key[:3], None, hop) for key, hop in other.items() if key not in one]  # fmt: skip
    return Diff(
        first=first,
        second=second,
        phases=_sums(PHASES, *({phase.name: phase.seconds for phase in phases(trace)} for trace in (first, second))),
        parts=_sums(PARTS, *({part.name: part.seconds for part in parts(trace)} for trace in (first, second))),
        rows=tuple(rows),
        failures=tuple(failures(second)),
        backoff=backoff(second),
    )


def failures(trace: PodTrace) -> list[Failure]:
    """Returns the calls of a start that failed, each kind once, the most frequent first."""
    kinds: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for arrow in trace.arrows:
        if arrow.failed and trace.begin <= arrow.time <= _until(trace):
            kinds[arrow.callee, arrow.caller, kind_of(arrow.method)].append(arrow.label)
    found = [Failure(*kind, len(errors), errors[-1]) for kind, errors in kinds.items()]
    return sorted(found, key=lambda failure: -failure.times)


def backoff(trace: PodTrace) -> float:
    """Returns the seconds of a start that were spent waiting after failed calls."""
    until = _until(trace)
    return sum(pause.seconds for pause in trace.pauses if pause.after_failure and pause.time <= until)


def _until(trace: PodTrace) -> float:
    return trace.running if trace.running is not None else float("inf")


def _sums(names: tuple[str, ...], first: dict[str, float], second: dict[str, float]) -> tuple[Sum, ...]:
    return tuple(Sum(name, first.get(name), second.get(name)) for name in names if name in first or name in second)


_Key = tuple[str, str, str, int]


def _hops(trace: PodTrace) -> dict[_Key, Hop]:
    """Returns the calls of a start by caller, callee, kind of call, and number."""
    hops: dict[_Key, Hop] = {}
    counted: dict[tuple[str, str, str], int] = defaultdict(int)
    failed = {arrow.id for arrow in trace.arrows if arrow.turn is Turn.REPLY and arrow.failed}
    for arrow in trace.arrows:
        if not _counts(arrow, trace):
            continue
        kind = (arrow.caller, arrow.callee, kind_of(arrow.method))
        hops[*kind, counted[kind]] = Hop(arrow.time - trace.begin, arrow.took or 0.0, arrow.id in failed)
        counted[kind] += 1
    return hops


def _counts(arrow: Arrow, trace: PodTrace) -> bool:
    """Whether an arrow is compared: until the pod ran, without older watches and without what a user typed."""
    finished = arrow.turn is Turn.CALL and arrow.took is not None
    return finished and arrow.caller != USER and trace.begin <= arrow.time <= _until(trace)


def kind_of(method: str) -> str:
    """Returns a call without names and versions: `PATCH pods/status`, `create pods`, `ADD bridge`."""
    verb, _, rest = method.partition(" ")
    if rest.startswith(REGISTRY):
        return f"{verb} {rest.removeprefix(REGISTRY).partition('/')[0]}"
    if not rest.startswith("/"):
        return _VERSION.sub("(…)", method)
    try:
        target = paths.parse(rest.partition("?")[0])
    except BadPath:
        target = None
    if target is None:
        return method
    return f"{verb} {target.resource}/{target.subresource}" if target.subresource else f"{verb} {target.resource}"
