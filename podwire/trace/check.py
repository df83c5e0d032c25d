"""A story against a flow: which arrows are missing, which stand in another order, which nobody expects. Pure.

The steps that have an order are laid over the story so that as many as possible fit; what then does not fit is swapped
if it is there at all, and missing otherwise.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from podwire.trace.flow import NOTHING, Flow, Note, Step
from podwire.trace.pod_trace import Arrow, PodTrace, Remark, Turn


class Finding(msgspec.Struct, frozen=True):
    """One deviation."""

    kind: str
    """missing, swapped or extra."""
    arrow: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.arrow} ({self.reason})"


def annotated(trace: PodTrace, flow: Flow) -> PodTrace:
    """The story with the flow's notes, each before the arrow that it speaks of."""
    places = _places(flow, trace.arrows)
    remarks, waiting = [], []
    for line in flow.lines:
        if isinstance(line, Note):
            waiting.append(line)
        elif (place := places.get(id(line))) is not None:
            time = trace.arrows[place].time
            remarks += [Remark(time, tuple(note.over), note.note) for note in waiting]
            waiting = []
    return replace(trace, remarks=tuple(remarks))


def _places(flow: Flow, arrows: Sequence[Arrow]) -> dict[int, int | None]:
    """Where the steps are that have an order, by their identity."""
    ordered = [step for step in flow.steps if not step.after]
    return dict(zip(map(id, ordered), _laid(ordered, arrows), strict=True))


def check(trace: PodTrace, flow: Flow) -> list[Finding]:
    """All deviations; none when the story is the flow."""
    findings = []
    before: Step | None = None
    for step, place, there in _settled(flow, trace.arrows):
        if place is not None:
            before = step if step.after != NOTHING else before
        elif there:
            findings.append(_swapped(step, min(there), before, trace))
        elif step.need != "optional":
            findings.append(_missing(step, trace.arrows))
    return findings + _extras(trace, flow)


def brief(trace: PodTrace, flow: Flow) -> PodTrace:
    """Only the arrows that the flow draws; of several watches, those that delivered the pod."""
    arrows = trace.arrows
    kept = {place for step, place, _ in _settled(flow, arrows) if place is not None and step.after != NOTHING}
    told = {arrows[place].id for place in kept if arrows[place].turn is Turn.EVENT}
    kept |= {place for place, arrow in enumerate(arrows) if arrow.turn is Turn.CALL and arrow.id in told}
    return replace(trace, arrows=tuple(arrow for place, arrow in enumerate(arrows) if place in kept))


def _settled(flow: Flow, arrows: Sequence[Arrow]) -> Iterator[tuple[Step, int | None, set[int]]]:
    """Each step, its place, and where else arrows like it are that no other step has."""
    places = _places(flow, arrows)
    named = {step.id: places.get(id(step)) for step in flow.steps if step.id}
    used = {place for place in places.values() if place is not None}
    for step in flow.steps:
        before = named.get(step.after) if step.after not in ("", NOTHING) else None
        fitting = _fitting(step, arrows, before) - used
        if not step.after:
            yield step, places[id(step)], fitting
            continue
        place = min((position for position in fitting if before is None or position > before), default=None)
        if place is not None:
            used.add(place)
        named[step.id] = place
        yield step, place, fitting


def _fitting(step: Step, arrows: Sequence[Arrow], before: int | None) -> set[int]:
    """Where the step could be; as a reply, only where the call of the step before it is answered."""
    found = {place for place, arrow in enumerate(arrows) if step.satisfied(arrow)}
    if step.turn is not Turn.REPLY or before is None:
        return found
    return {place for place in found if arrows[place].id == arrows[before].id}


def _laid(steps: Sequence[Step], arrows: Sequence[Arrow]) -> list[int | None]:
    """The place of each step, in order, so that as many as possible have one: a longest common subsequence."""
    best = [[0] * (len(arrows) + 1) for _ in range(len(steps) + 1)]
    fits = [[step.satisfied(arrow) for arrow in arrows] for step in steps]
    for row in range(len(steps) - 1, -1, -1):
        for column in range(len(arrows) - 1, -1, -1):
            taken = best[row + 1][column + 1] + 1 if fits[row][column] else 0
            best[row][column] = max(taken, best[row + 1][column], best[row][column + 1])
    return _walked(best, fits)


def _walked(best: list[list[int]], fits: list[list[bool]]) -> list[int | None]:
    places: list[int | None] = []
    column = 0
    for row, possible in enumerate(fits):
        wanted = best[row][column] - 1
        later = range(column, len(possible))
        place = next(
            (position for position in later if possible[position] and best[row + 1][position + 1] == wanted), None
        )
        column = column if place is None else place + 1
        places.append(place)
    return places


def _swapped(step: Step, where: int, before: Step | None, trace: PodTrace) -> Finding:
    """It is there, where it does not belong; the step before it tells where it does."""
    at = (trace.arrows[where].time - trace.origin) * 1000
    told = f"it is there at {at:+.1f} ms, but not in its place"
    return Finding("swapped", str(step), f"{told}, which is after {before}" if before else told)


def _missing(step: Step, arrows: Sequence[Arrow]) -> Finding:
    expected = step.call or step.reply or step.event
    reason = f"no {step.turn.value} {expected} from {step.caller} to {step.callee}"
    alike = [arrow for arrow in arrows if step.describes(arrow)]
    if failed := next((arrow for arrow in alike if arrow.failed), None):
        reason = f"it is there, but failed: {failed.label}"
    elif alike and step.facts:
        told = dict(alike[-1].facts)
        wanted = ", ".join(
            f"{name} {told.get(name) or 'nothing'} instead of {value}" for name, value in step.facts.items()
        )
        reason = f"{reason} as wanted: the last one has {wanted}"
    return Finding("missing", str(step), reason)


def _extras(trace: PodTrace, flow: Flow) -> list[Finding]:
    """Each kind of call once, with how often it is there."""
    counted: Counter[str] = Counter()
    for arrow_ in trace.arrows:
        if _is_extra(arrow_, flow):
            stroke = "->>" if arrow_.turn is Turn.CALL else "-->>"
            counted[f"{arrow_.caller}{stroke}{arrow_.callee}: {arrow_.method}"] += 1
    return [
        Finding("extra", arrow, "the flow does not know this call" + (f"; {times} times" if times > 1 else ""))
        for arrow, times in counted.items()
    ]


def _is_extra(arrow: Arrow, flow: Flow) -> bool:
    """A reply is as expected as its call; whoever is no participant of the flow is none of its business."""
    if arrow.turn is Turn.REPLY or not {arrow.caller, arrow.callee} <= set(flow.participants):
        return False
    return not any(step.describes(arrow) for step in (*flow.steps, *flow.also))
