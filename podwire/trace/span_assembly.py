"""Assembles spans from records as they arrive. Pure.

A span is emitted some time after its call ended, because the enclosing call and the pod may be learned a moment later.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.trace.record import Record
from podwire.trace.spans import Call, Span, Start, call_span, parents, root_span


@dataclass(frozen=True, slots=True)
class Limits:
    linger: float = 1.0
    """Seconds between the end of a call and its span."""
    silence: float = 30.0
    """Seconds after which the root span of a pod that is not Running is emitted as it is."""
    kept: float = 10.0
    """Seconds for which a call whose span was emitted may still be the parent of others."""
    most: int = 20_000
    """Calls and pods in memory; the oldest are dropped."""


class Assembler:
    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._ended: deque[tuple[float, str]] = deque()
        self._emitted: deque[tuple[float, str]] = deque()
        self._starts: OrderedDict[str, Start] = OrderedDict()
        self._awaited: OrderedDict[str, float] = OrderedDict()
        """When the root span of each pod is emitted."""
        self._rooted: OrderedDict[str, None] = OrderedDict()
        self.forgotten = 0
        """Calls whose spans were dropped because there were too many."""

    def learn(self, records: Iterable[Record], now: float) -> None:
        for record in records:
            if record.begins:
                self._calls[record.id] = Call(record)
            elif record.ends and (call := self._calls.get(record.id)) is not None:
                call.end = record
                self._ended.append((now + self._limits.linger, record.id))
                if record.pod is not None and call.begin.pod is None:
                    self._start(record.pod, call.begin, now)
            if record.pod is not None:
                self._start(record.pod, record, now)
        self._bound()

    def due(self, now: float) -> list[Span]:
        """Returns the spans that can be emitted now, each once; all of them when now is infinite."""
        ready = _until(self._ended, now)
        around = parents(self._calls.values()) if ready else {}
        spans = [
            call_span(call, around.get(id_, ""))
            for id_ in ready
            if (call := self._calls.get(id_)) is not None and call.end is not None and call.pod is not None
        ]
        self._emitted.extend((now + self._limits.kept, id_) for id_ in ready)
        for id_ in _until(self._emitted, now):
            self._calls.pop(id_, None)
        return spans + self._roots(now)

    def next(self) -> float | None:
        """Returns when the next span can be emitted; None when nothing waits."""
        waiting = [self._ended[0][0]] if self._ended else []
        return min([*waiting, *self._awaited.values()], default=None)

    def _start(self, pod: str, record: Record, now: float) -> None:
        if pod in self._rooted:
            return
        start = self._starts.setdefault(pod, Start())
        waits = start.running is None
        start.learn(record)
        if waits:
            self._awaited[pod] = now + (self._limits.silence if start.running is None else self._limits.linger)

    def _roots(self, now: float) -> list[Span]:
        ready = [pod for pod, due in self._awaited.items() if due <= now]
        for pod in ready:
            del self._awaited[pod]
            self._rooted[pod] = None
        return [root_span(pod, start) for pod in ready if (start := self._starts.pop(pod, None)) is not None]

    def _bound(self) -> None:
        while len(self._calls) > self._limits.most:
            _, call = self._calls.popitem(last=False)
            self.forgotten += call.pod is not None
        while len(self._rooted) > self._limits.most:
            self._rooted.popitem(last=False)
        while len(self._starts) > self._limits.most:
            pod, _ = self._starts.popitem(last=False)
            self._awaited.pop(pod, None)


def _until(waiting: deque[tuple[float, str]], now: float) -> list[str]:
    ready = []
    while waiting and waiting[0][0] <= now:
        ready.append(waiting.popleft()[1])
    return ready
