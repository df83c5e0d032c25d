"""The critical path of a start: the chain of calls and events that decided when the pod ran. Pure.

The path is followed backwards from the reply that made the pod Running. At each participant, the arrow that arrived
last before it acted is the one that it had waited for. A participant that answers a call waited for that call, or for
calls that it made itself meanwhile. Events are written beside the work, and nobody waits for them.
"""

from collections import defaultdict
from dataclasses import dataclass

from podwire.trace.pod_trace import Arrow, PodTrace, Turn


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the path: the time that a participant took until it sent an arrow."""

    participant: str
    begin: float
    end: float
    arrow: Arrow
    """The arrow that ends the segment."""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def critical_path(trace: PodTrace) -> list[Segment]:
    """Returns the segments in order of time; they are consecutive. None for a pod that is not Running yet."""
    if trace.running is None:
        return []
    arrows = [
        arrow for arrow in trace.arrows if trace.begin <= arrow.time <= trace.running and "/events" not in arrow.method
    ]
    last = next((place for place in reversed(range(len(arrows))) if _reports_running(arrows[place], trace)), None)
    begun = {arrow.id: place for place, arrow in enumerate(arrows) if arrow.turn is Turn.CALL}
    arrivals: dict[str, list[int]] = defaultdict(list)
    for place, arrow in enumerate(arrows):
        arrivals[arrow.callee].append(place)
    path: list[Segment] = []
    while last is not None:
        arrow = arrows[last]
        last = _cause(last, arrows, arrivals[arrow.caller], begun)
        begin = trace.begin if last is None else arrows[last].time
        path.append(Segment(arrow.caller, begin, arrow.time, arrow))
    return path[::-1]


def _reports_running(arrow: Arrow, trace: PodTrace) -> bool:
    return arrow.turn is Turn.REPLY and arrow.time == trace.running


def _cause(number: int, arrows: list[Arrow], arrivals: list[int], begun: dict[str, int]) -> int | None:
    """Returns the arrow that the sender of an arrow had waited for."""
    arrow = arrows[number]
    earliest = begun.get(arrow.id, -1) if arrow.turn is Turn.REPLY else -1
    for candidate in reversed(arrivals):
        if candidate >= number or candidate < earliest:
            continue
        arrived = arrows[candidate]
        if earliest < 0 or candidate == earliest:
            return candidate
        # Inside a call: only replies to calls that were made during it count.
        if arrived.turn is Turn.REPLY and begun.get(arrived.id, -1) > earliest:
            return candidate
    return None
