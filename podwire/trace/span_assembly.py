"""Spans out of records as they come: a call is told once it has ended and everything around it is known. Pure.

What a call was made inside of, and whose pod it is about, may be learned a moment after it ended. So it lingers.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from podwire.trace.record import Record
from podwire.trace.spans import Call, Span, Start, call_span, parents, root_span

LINGER = 1.0
"""Seconds between the end of a call and its span."""
SILENCE = 30.0
"""Seconds after which a pod that does not run is told of as it is."""
KEPT = 10.0
"""Seconds for which a call that was told may still be the parent of others."""
MOST = 20_000
"""Calls and pods that are known at a time; the oldest are forgotten."""


class Assembler:
    def __init__(self) -> None:
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._ended: deque[tuple[float, str]] = deque()
        self._told: deque[tuple[float, str]] = deque()
        self._starts: OrderedDict[str, Start] = OrderedDict()
        self._awaited: OrderedDict[str, float] = OrderedDict()
        """When the root of each pod is told."""
        self._rooted: OrderedDict[str, None] = OrderedDict()
        self.forgotten = 0
        """Calls that will never be told, for there were too many."""

    def learn(self, records: Iterable[Record], now: float) -> None:
        for record in records:
            if record.begins:
                self._calls[record.id] = Call(record)
            elif record.ends and (call := self._calls.get(record.id)) is not None:
                call.end = record
                self._ended.append((now + LINGER, record.id))
                if record.pod is not None and call.begin.pod is None:
                    self._start(record.pod, call.begin, now)
            if record.pod is not None:
                self._start(record.pod, record, now)
        self._bound()

    def due(self, now: float) -> list[Span]:
        """What can be told now, each once; all of it when now is the end of time."""
        ready = _until(self._ended, now)
        around = parents(self._calls.values()) if ready else {}
        found = [
            call_span(call, around.get(id_, ""))
            for id_ in ready
            if (call := self._calls.get(id_)) is not None and call.end is not None and call.pod is not None
        ]
        self._told.extend((now + KEPT, id_) for id_ in ready)
        for id_ in _until(self._told, now):
            self._calls.pop(id_, None)
        return found + self._roots(now)

    def next(self) -> float | None:
        """When there will be something to tell; None when nothing waits."""
        waiting = [self._ended[0][0]] if self._ended else []
        return min([*waiting, *self._awaited.values()], default=None)

    def _start(self, pod: str, record: Record, now: float) -> None:
        if pod in self._rooted:
            return
        start = self._starts.setdefault(pod, Start())
        waits = start.running is None
        start.learn(record)
        if waits:
            self._awaited[pod] = now + (SILENCE if start.running is None else LINGER)

    def _roots(self, now: float) -> list[Span]:
        ready = [pod for pod, due in self._awaited.items() if due <= now]
        for each in ready:
            del self._awaited[each]
            self._rooted[each] = None
        return [root_span(pod, start) for pod in ready if (start := self._starts.pop(pod, None)) is not None]

    def _bound(self) -> None:
        while len(self._calls) > MOST:
            _, call = self._calls.popitem(last=False)
            self.forgotten += call.pod is not None
        while len(self._rooted) > MOST:
            self._rooted.popitem(last=False)
        while len(self._starts) > MOST:
            pod, _ = self._starts.popitem(last=False)
            self._awaited.pop(pod, None)


def _until(waiting: deque[tuple[float, str]], now: float) -> list[str]:
    ready = []
    while waiting and waiting[0][0] <= now:
        ready.append(waiting.popleft()[1])
    return ready
