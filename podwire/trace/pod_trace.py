"""Builds the trace of one pod from records: its arrows in order, after the watches that it depended on. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

import msgspec

from podwire.trace.labels import label_of
from podwire.trace.participants import KUBECTL, USER
from podwire.trace.prelude import prelude
from podwire.trace.record import Record, pod_id, succeeded

MOST_ARROWS = 2000
"""Arrows that are drawn at most; a start has about a hundred."""
PAUSE = 1.0
"""Seconds without an arrow that are drawn."""


class Turn(Enum):
    """The kind of an arrow: the beginning of a call, its end, or an event that a stream delivers."""

    CALL = "call"
    REPLY = "reply"
    EVENT = "event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """One arrow of a diagram."""

    time: float
    caller: str
    callee: str
    method: str
    turn: Turn
    label: str
    id: str = ""
    failed: bool = False
    took: float | None = None
    """Seconds from the call to its reply, on both arrows; None while the call is open."""
    facts: tuple[tuple[str, str], ...] = ()
    """Values that a flow can check: the phase and the node of the pod at this moment."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that were sent and did not arrive."""

    time: float
    sender: str
    lost: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Arrows that are left out because there are too many."""

    time: float
    arrows: int


@dataclass(frozen=True, slots=True)
class Pause:
    """More than a second without any arrow; after a failed call, the back-off until the next attempt."""

    time: float
    """Its end."""
    seconds: float
    after_failure: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A note between arrows, over some participants."""

    time: float
    over: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrace:
    """The start and life of one pod."""

    pod: str
    namespace: str
    name: str
    begin: float
    """Time of the request that created the pod."""
    origin: float
    """Time of the first record of the pod itself, after the watches that existed before."""
    running: float | None = None
    """Time at which the API server knew that the pod runs."""
    arrows: tuple[Arrow, ...] = ()
    gaps: tuple[Gap, ...] = ()
    cuts: tuple[Cut, ...] = ()
    remarks: tuple[Remark, ...] = ()
    pauses: tuple[Pause, ...] = ()

    @property
    def took(self) -> float | None:
        """Seconds from the request to Running."""
        return None if self.running is None else self.running - self.begin


Moment = Arrow | Gap | Cut | Pause | Remark


def moments(trace: PodTrace) -> list[Moment]:
    """Returns everything in order of time; a remark comes before the arrow at the same time."""
    all_moments: list[Moment] = [*trace.pauses, *trace.remarks, *trace.gaps, *trace.cuts, *trace.arrows]
    return sorted(all_moments, key=lambda moment: moment.time)


@dataclass(slots=True)
class PodTraces:
    """Builds the traces of all pods in some records."""

    gaps: Collection[Gap] | None = None
    """Where records were lost, if these are not all of the records; None: it is found out from their numbers."""
    _records: list[Record] = field(default_factory=list)

    def learn(self, records: Iterable[Record]) -> None:
        self._records.extend(records)

    def all(self) -> list[PodTrace]:
        """Returns the traces of all pods, the oldest first."""
        return self._build(lambda _: True)

    def _build(self, matches: Callable[[tuple[str, str]], bool], only: str = "") -> list[PodTrace]:
        records = assigned(self._records)
        gaps = _gaps(records) if self.gaps is None else self.gaps
        pods: dict[str, list[Record]] = defaultdict(list)
        others = _Others()
        for record in records:
            if record.pod is not None:
                pods[record.pod].append(record)
            else:
                others.learn(record)
        traces = [
            _pod_trace(pod, name, own, others, gaps)
            for pod, own in pods.items()
            if only in ("", pod) and (name := _name(own)) is not None and matches(name)
        ]
        return sorted(traces, key=lambda trace: trace.begin)

    def find(self, namespace: str, name: str) -> PodTrace | None:
        """Returns the trace of the newest pod of that name."""
        traces = self._build(lambda pod: pod == (namespace, name))
        return traces[-1] if traces else None

    def find_id(self, uid: str) -> PodTrace | None:
        """Returns the trace of the pod with that UID or trace id."""
        traces = self._build(lambda _: True, pod_id(uid))
        return traces[0] if traces else None

    def records(self, trace: PodTrace) -> list[Record]:
        """Returns the records that a trace was built from, in order."""
        ids = {arrow.id for arrow in trace.arrows}
        own = [
            record
            for record in assigned(self._records)
            if record.pod == trace.pod or (record.pod is None and record.id in ids)
        ]
        return [
            record for record in own if record.pod or record.begins or (record.ends and "watch=" not in record.method)
        ]


@dataclass(slots=True)
class _Call:
    """Facts from all records of one call."""

    pod: str | None = None
    namespace: str = ""
    name: str = ""
    session: str = ""
    """The session of kubectl: one for each command that a user typed."""
    absent: bool = False
    """The pod did not exist: the next pod of that name is another one."""

    def learn(self, record: Record) -> None:
        self.pod = self.pod or record.pod
        self.namespace = self.namespace or _text(record, "namespace")
        self.name = self.name or _text(record, "name")
        self.session = self.session or _text(record, "kubectl_session")
        self.absent = self.absent or record.outcome == "404"


def assigned(records: Iterable[Record]) -> list[Record]:
    """Returns the records in order, each with its pod as far as all records together tell it.

    A beginning gets the pod of its end, and a name gets the UID that any record of the same name has.
    """
    ordered = sorted(records, key=lambda record: (record.time, record.seq))
    calls: dict[str, _Call] = defaultdict(_Call)
    for record in ordered:
        if not record.is_event:
            calls[record.id].learn(record)
    _resolve_absent(calls.values())
    pods = [record.pod if record.is_event else calls[record.id].pod for record in ordered]
    return [
        record if record.pod == pod else msgspec.structs.replace(record, pod=pod)
        for record, pod in zip(ordered, pods, strict=True)
    ]


def _resolve_absent(calls: Collection[_Call]) -> None:
    """Assigns requests for a pod that did not exist yet: to the pod that the same command created, else to the last
    one."""
    made = {(call.session, call.namespace, call.name): call.pod for call in calls if call.pod and not call.absent}
    last: dict[tuple[str, str], str] = {}
    for call in calls:
        if not call.name:
            continue
        if call.pod is None or call.absent:
            call.pod = made.get((call.session, call.namespace, call.name)) if call.session else None
            call.pod = call.pod or last.get((call.namespace, call.name))
        else:
            last[call.namespace, call.name] = call.pod


def _text(record: Record, name: str) -> str:
    value = record.detail.get(name, "") if isinstance(record.detail, dict) else ""
    return value if isinstance(value, str) else ""


def _gaps(records: Sequence[Record]) -> list[Gap]:
    """Returns the jumps in the sequence numbers of each sender."""
    senders: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        senders[record.sender].append(record)
    gaps = []
    for sender, own in senders.items():
        own.sort(key=lambda record: record.seq)
        for before, after in pairwise(own):
            if after.seq > before.seq + 1:
                gaps.append(Gap(after.time, sender.rpartition("-")[0], after.seq - before.seq - 1))
    return gaps


def _name(records: Iterable[Record]) -> tuple[str, str] | None:
    """Returns namespace and name of the pod, once a record has them."""
    names = ((_text(record, "namespace"), _text(record, "name")) for record in records)
    return next((name for name in names if name[1]), None)


@dataclass(slots=True)
class _Others:
    """Calls that belong to no pod: watches, and calls about a node."""

    begun: dict[str, Record] = field(default_factory=dict)
    ended: dict[str, Record] = field(default_factory=dict)

    def learn(self, record: Record) -> None:
        if record.begins:
            self.begun[record.id] = record
        elif record.ends:
            self.ended[record.id] = record


def _pod_trace(pod: str, name: tuple[str, str], own: list[Record], others: _Others, gaps: Collection[Gap]) -> PodTrace:
    begun = others.begun
    first = [begun[record] for record in dict.fromkeys(call.id for call in own if call.is_event) if record in begun]
    before = [record for record in prelude(own, begun.values()) if record not in first]
    ended = {record.id: others.ended[record.id] for record in before if record.id in others.ended}
    ordered = sorted(first + before + own, key=lambda record: (record.time, record.seq))
    arrows = tuple(_attempts(_arrows(ordered, ended)))
    begin = min((record.time for record in own if is_request(record)), default=own[0].time)
    running = next((record.time for record in own if is_running(record)), None)
    last = own[-1].time
    return PodTrace(
        pod=pod,
        namespace=name[0],
        name=name[1],
        begin=begin,
        origin=min((record.time for record in own if not record.is_event), default=begin),
        running=running,
        arrows=arrows,
        gaps=tuple(gap for gap in gaps if begin <= gap.time <= last),
        pauses=tuple(_pauses(arrows, begin)),
    )


def _pauses(arrows: Sequence[Arrow], begin: float) -> Iterator[Pause]:
    """Yields the pauses of a pod, from its creation on."""
    failed = False
    for before, after in pairwise(arrow for arrow in arrows if arrow.time >= begin):
        if before.turn is Turn.REPLY:
            failed = before.failed or (failed and before.callee != KUBECTL and "/events" in before.method)
        if after.time - before.time > PAUSE:
            yield Pause(after.time, after.time - before.time, after_failure=failed)


def _attempts(arrows: Iterable[Arrow]) -> Iterator[Arrow]:
    """Marks retries: a call that follows a failed one of the same kind has the number of the attempt in its label."""
    failed: dict[tuple[str, str, str], int] = defaultdict(int)
    for arrow in arrows:
        bare = arrow.method.partition("?")[0]
        if arrow.turn is Turn.REPLY:
            key = (arrow.callee, arrow.caller, bare)
            failed[key] = failed[key] + 1 if arrow.failed else 0
        attempts = failed[arrow.caller, arrow.callee, bare] if arrow.turn is Turn.CALL else 0
        yield replace(arrow, label=f"{arrow.label} (attempt {attempts + 1})") if attempts else arrow


def is_failure(record: Record) -> bool:
    """Whether a record ends a call that failed. kubectl looks for an object before it creates it: 404 is an answer."""
    if not record.ends or succeeded(record.outcome):
        return False
    return not (record.outcome == "404" and record.callee == KUBECTL and record.method.startswith("GET "))


def is_request(record: Record) -> bool:
    """Whether a record begins the request that creates a pod."""
    return record.begins and record.method.startswith("POST ") and record.method.partition("?")[0].endswith("/pods")


def is_running(record: Record) -> bool:
    """Whether a record ends the request that reported the pod as Running."""
    return record.ends and succeeded(record.outcome) and record.method.partition("?")[0].endswith("/status") and (
        _text(record, "phase") == "Running"
    )  # fmt: skip


def _arrows(records: Sequence[Record], elsewhere: Mapping[str, Record]) -> Iterator[Arrow]:
    """Yields the arrows of the records. `elsewhere` holds the ends of calls that began before the trace; these ends are
    not drawn."""
    begun = {record.id: record for record in records if record.begins}
    ended = {**elsewhere, **{record.id: record for record in records if record.ends}}
    sessions: set[str] = set()
    for record in records:
        session = _text(record, "kubectl_session")
        if session and session not in sessions and record.caller == KUBECTL:
            sessions.add(session)
            yield _user_arrow(record)
        both = begun.get(record.id), ended.get(record.id)
        took = both[1].time - both[0].time if both[0] and both[1] and not record.is_event else None
        yield replace(_arrow(record), took=took, facts=_facts(record, both[1] if record.begins else None))


def _user_arrow(record: Record) -> Arrow:
    """Returns the arrow from the user to kubectl, which kubectl reports in its headers."""
    words = (_text(record, "kubectl_command"), _text(record, "kubectl_flags"))
    typed = " ".join(word for word in words if word)
    return Arrow(time=record.time, caller=USER, callee=KUBECTL, method=typed, turn=Turn.CALL, label=typed, took=0.0)


def _arrow(record: Record) -> Arrow:
    turn = Turn.CALL if record.begins else Turn.EVENT if record.is_event else Turn.REPLY
    return Arrow(
        time=record.time,
        caller=record.caller,
        callee=record.callee,
        method=record.method,
        turn=turn,
        label=label_of(record),
        id=record.id,
        failed=is_failure(record),
    )


def _facts(record: Record, end: Record | None) -> tuple[tuple[str, str], ...]:
    """Returns the pod's state in a record; for a call, also the state in its end."""
    names = ("phase", "nodeName", "type")
    return tuple((name, value) for name in names if (value := _text(record, name) or (_text(end, name) if end else "")))


def shorten(trace: PodTrace, most: int = MOST_ARROWS) -> PodTrace:
    """Returns the trace with at most so many arrows: its beginning, which has the start, and its end."""
    left_out = len(trace.arrows) - most
    if left_out <= 0:
        return trace
    first = most * 3 // 4
    kept = (*trace.arrows[:first], *trace.arrows[first + left_out :])
    return replace(trace, arrows=kept, cuts=(Cut(trace.arrows[first].time, left_out),))
