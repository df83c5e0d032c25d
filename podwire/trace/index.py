"""An index of stored records: which lines belong to which pod, without the records in memory.

A program that runs for long, such as the live page, reads each line once and keeps its position. The lines of one pod
are read again when its trace is asked for. The rules by which a call gets its pod are those of `pod_trace.assigned`,
applied as the records come.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwire.trace.labels import label_of
from podwire.trace.pod_trace import Gap, PodTrace, PodTraces, is_failure, is_request, is_running
from podwire.trace.prelude import is_prelude
from podwire.trace.record import Record
from podwire.trace.segments import Position, Reader, parsed, segment_files

MOST_GAPS = 1000
MOST_WATCHES, MOST_PRELUDES, MOST_WAITING = 4000, 300, 1000
"""Calls without a pod that are remembered: watches, how devices became known, and requests before their pod."""


@dataclass(slots=True)
class Start:
    """A pod in the index, and what the list of starts shows of it."""

    pod: str
    namespace: str = ""
    name: str = ""
    first: float = 0.0
    """Time of its first record."""
    last: float = 0.0
    begin: float | None = None
    """Time of the request that created the pod."""
    running: float | None = None
    calls: int = 0
    failures: int = 0
    failure: str = ""
    """The last failed call, in the words of the trace."""
    ids: dict[str, None] = field(default_factory=dict)
    """Its calls, in order."""
    events: list[Position] = field(default_factory=list)
    watches: dict[str, None] = field(default_factory=dict)
    """The watches that delivered its events."""

    @property
    def took(self) -> float | None:
        return None if self.running is None else self.running - (self.begin if self.begin is not None else self.first)


@dataclass(slots=True)
class _Call:
    lines: list[Position] = field(default_factory=list)
    pod: str | None = None
    namespace: str = ""
    name: str = ""
    session: str = ""
    absent: bool = False
    begun: float = 0.0
    creates: bool = False
    """It is the request that creates a pod."""


class TraceIndex:
    """Follows the segments of a directory. Not thread-safe: one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reader = Reader(directory)
        self._starts: dict[str, Start] = {}
        self._calls: dict[str, _Call] = {}
        self._watches: dict[str, Position] = {}
        self._preludes: dict[str, Position] = {}
        self._sequences: dict[str, int] = {}
        self._gaps: deque[Gap] = deque(maxlen=MOST_GAPS)
        self._last: dict[tuple[str, str], str] = {}
        self._made: dict[tuple[str, str, str], str] = {}
        self._waiting: dict[tuple[str, str, str], list[str]] = {}
        """Requests for a pod that its command has not created yet, by session, namespace and name."""
        self._oldest = ""

    @property
    def starts(self) -> Mapping[str, Start]:
        return self._starts

    def troubles(self) -> list[str]:
        return self._reader.troubles()

    def update(self) -> set[str]:
        """Reads what was written since the last call; returns the pods whose traces changed. Raises OSError."""
        changed: set[str] = set()
        for position, record in self._reader.positioned():
            changed.update(self._learn(position, record))
        self._forget_dropped()
        return changed & self._starts.keys()

    def trace(self, pod: str) -> tuple[PodTrace, list[Record]] | None:
        """Builds the trace of a pod and its records from the stored lines; None for an unknown pod."""
        if pod not in self._starts:
            return None
        traces = PodTraces(self._gaps)
        traces.learn(self._records(self._positions(self._starts[pod])))
        trace = traces.find_id(pod)
        return None if trace is None else (trace, traces.records(trace))

    def call(self, id_: str) -> list[Record]:
        """Returns the records of one call, without the events that it delivered."""
        call = self._calls.get(id_)
        watch = self._watches.get(id_)
        positions = call.lines if call is not None else [watch] if watch is not None else []
        return list(self._records(positions))

    def _learn(self, position: Position, record: Record) -> Iterator[str]:
        self._count(record)
        if record.is_event:
            if record.pod is not None:
                start = self._start(record.pod, record)
                start.events.append(position)
                start.watches[record.id] = None
                yield record.pod
            return
        call = self._calls.setdefault(record.id, _Call(begun=record.time))
        call.lines.append(position)
        call.pod, known = call.pod or record.pod, call.pod
        call.namespace = call.namespace or _text(record, "namespace")
        call.name = call.name or _text(record, "name")
        call.session = call.session or _text(record, "kubectl_session")
        call.absent = call.absent or record.outcome == "404"
        call.creates = call.creates or is_request(record)
        if (call.absent or call.pod is None) and record.ends:
            self._resolve(record.id, call)
        if call.pod is None:
            self._keep_other(position, record, call)
            return
        yield from self._attach(record.id, call, record, is_new=known is None)

    def _attach(self, id_: str, call: _Call, record: Record, *, is_new: bool) -> Iterator[str]:
        pod = call.pod or ""
        start = self._start(pod, record)
        if is_new:
            start.ids[id_] = None
            start.calls += 1
            start.first = min(start.first, call.begun)
        if call.creates:
            start.begin = call.begun if start.begin is None else min(start.begin, call.begun)
        if call.name and not call.absent:
            start.namespace, start.name = start.namespace or call.namespace, start.name or call.name
            self._last[call.namespace, call.name] = pod
            key = (call.session, call.namespace, call.name)
            if call.session and key not in self._made:
                self._made[key] = pod
                for waiting in self._waiting.pop(key, ()):
                    if (earlier := self._calls.get(waiting)) is not None:
                        earlier.pod = pod
                        start.ids[waiting] = None
        if record.ends and is_failure(record):
            start.failures += 1
            start.failure = f"{record.callee} → {record.caller} {record.method.partition('?')[0]}: {label_of(record)}"
        if start.running is None and is_running(record):
            start.running = record.time
        yield pod

    def _start(self, pod: str, record: Record) -> Start:
        start = self._starts.get(pod)
        if start is None:
            start = self._starts[pod] = Start(pod, first=record.time)
        start.first, start.last = min(start.first, record.time), max(start.last, record.time)
        if record.is_event and not start.name:
            start.namespace, start.name = _text(record, "namespace"), _text(record, "name")
        return start

    def _resolve(self, id_: str, call: _Call) -> None:
        """Assigns a request for a pod that did not exist: to the pod of the same command, else to the last of its
        name."""
        if not call.name:
            return
        key = (call.session, call.namespace, call.name)
        call.pod = self._made.get(key) if call.session else None
        if call.pod is None and call.session:
            self._waiting.setdefault(key, []).append(id_)
            _bound(self._waiting, MOST_WAITING)
        call.pod = call.pod or self._last.get((call.namespace, call.name))

    def _keep_other(self, position: Position, record: Record, call: _Call) -> None:
        """Keeps what a later trace may depend on; a finished call without a pod is forgotten."""
        if record.begins and "watch=" in record.method:
            self._watches[record.id] = position
            _bound(self._watches, MOST_WATCHES)
        elif record.begins and is_prelude(record):
            self._preludes[record.id] = position
            _bound(self._preludes, MOST_PRELUDES)
        if record.ends and not (call.name and call.session):
            del self._calls[record.id]

    def _count(self, record: Record) -> None:
        before = self._sequences.get(record.sender)
        if before is not None and record.seq > before + 1:
            self._gaps.append(Gap(record.time, record.sender.rpartition("-")[0], record.seq - before - 1))
        self._sequences[record.sender] = max(record.seq, before or 0)

    def _positions(self, start: Start) -> set[Position]:
        calls = (self._calls[id_] for id_ in start.ids if id_ in self._calls)
        positions = {position for call in calls for position in call.lines}
        watches = [self._watches[watch] for watch in start.watches if watch in self._watches]
        return {*positions, *start.events, *watches, *self._preludes.values()}

    def _records(self, positions: Iterable[Position]) -> Iterator[Record]:
        by_segment: dict[str, list[Position]] = {}
        for position in sorted(positions):
            by_segment.setdefault(position.segment, []).append(position)
        for segment, own in by_segment.items():
            try:
                file = os.open(self._directory / segment, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            except OSError:
                continue  # the writer dropped it just now
            try:
                for position in own:
                    record = parsed(os.pread(file, position.length, position.offset))
                    if record is not None:
                        yield record
            finally:
                os.close(file)

    def _forget_dropped(self) -> None:
        """Forgets pods and calls whose lines are all in segments that the writer has dropped."""
        names = [path.name for path in segment_files(self._directory)]
        oldest = names[0] if names else ""
        if oldest == self._oldest:
            return
        self._oldest = oldest
        for id_ in [id_ for id_, call in self._calls.items() if call.lines[-1].segment < oldest]:
            del self._calls[id_]
        for others in (self._watches, self._preludes):
            for id_ in [id_ for id_, position in others.items() if position.segment < oldest]:
                del others[id_]
        for pod, start in list(self._starts.items()):
            start.events = [position for position in start.events if position.segment >= oldest]
            if not start.events and not any(id_ in self._calls for id_ in start.ids):
                del self._starts[pod]


def _text(record: Record, name: str) -> str:
    value = record.detail.get(name, "") if isinstance(record.detail, dict) else ""
    return value if isinstance(value, str) else ""


def _bound(entries: dict[Any, Any], most: int) -> None:
    """Drops the oldest entries."""
    while len(entries) > most:
        del entries[next(iter(entries))]
