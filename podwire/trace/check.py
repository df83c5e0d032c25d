"""Compares a pod trace with a flow: missing, swapped and unexpected arrows. Pure.

The ordered steps are matched with the arrows so that as many as possible fit (a longest common subsequence). A step
without a match is reported as swapped if such an arrow exists elsewhere, and as missing otherwise.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from podwire.trace.flow import NOTHING, Flow, Note, Step
from podwire.trace.participants import role
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
    """Returns the trace with the notes of the flow, each before the arrow that it describes.

    A note describes the ordered step that follows it. It is left out where that step did not happen: a pod with
    `nodeName` is not scheduled.
    """
    positions = _positions(flow, trace.arrows)
    remarks, waiting = [], []
    for line in flow.lines:
        if isinstance(line, Note):
            waiting.append(line)
        elif id(line) in positions:
            if (position := positions[id(line)]) is not None:
                remarks += [Remark(trace.arrows[position].time, _drawn(note, trace), note.note) for note in waiting]
            waiting = []
    return replace(trace, remarks=tuple(remarks))


def _drawn(note: Note, trace: PodTrace) -> tuple[str, ...]:
    """Returns the participants of a note by the names that they have in the trace."""
    names = {role(name): name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)}
    return tuple(names.get(participant, participant) for participant in note.over)


def _positions(flow: Flow, arrows: Sequence[Arrow]) -> dict[int, int | None]:
    """Returns the positions of the ordered steps, by step identity."""
    ordered = [step for step in flow.steps if not step.after]
    return dict(zip(map(id, ordered), _laid(ordered, arrows), strict=True))


def check(trace: PodTrace, flow: Flow) -> list[Finding]:
    """Returns all deviations of the trace from the flow."""
    findings = []
    before: Step | None = None
    for step, place, elsewhere in matched(flow, trace.arrows):
        if place is not None:
            before = step if step.after != NOTHING else before
        elif elsewhere:
            findings.append(_swapped(step, min(elsewhere), before, trace))
        elif step.need != "optional":
            findings.append(_missing(step, trace.arrows))
    return findings + _extras(trace, flow)


def brief(trace: PodTrace, flow: Flow) -> PodTrace:
    """Returns the trace with only the arrows that the flow draws; of several watches, those that delivered the pod."""
    arrows = trace.arrows
    kept = {position for step, position, _ in matched(flow, arrows) if position is not None and step.after != NOTHING}
    watches = {arrows[position].id for position in kept if arrows[position].turn is Turn.EVENT}
    kept |= {position for position, arrow in enumerate(arrows) if arrow.turn is Turn.CALL and arrow.id in watches}
    return replace(trace, arrows=tuple(arrow for position, arrow in enumerate(arrows) if position in kept))


def matched(flow: Flow, arrows: Sequence[Arrow]) -> Iterator[tuple[Step, int | None, set[int]]]:
    """Yields each step, its position, and other positions of matching arrows that no step uses."""
    positions = _positions(flow, arrows)
    named = {step.id: positions.get(id(step)) for step in flow.steps if step.id}
    used = {position for position in positions.values() if position is not None}
    for step in flow.steps:
        before = named.get(step.after) if step.after not in ("", NOTHING) else None
        fitting = _fitting(step, arrows, before) - used
        if not step.after:
            yield step, positions[id(step)], fitting
            continue
        position = min((position for position in fitting if before is None or position > before), default=None)
        if position is not None:
            used.add(position)
        named[step.id] = position
        yield step, position, fitting


def _fitting(step: Step, arrows: Sequence[Arrow], before: int | None) -> set[int]:
    """Returns possible positions of a step; for a reply, only those that answer the call of the step before it."""
    positions = {place for place, arrow in enumerate(arrows) if step.satisfied(arrow)}
    if step.turn is not Turn.REPLY or before is None:
        return positions
    return {place for place in positions if arrows[place].id == arrows[before].id}


def _laid(steps: Sequence[Step], arrows: Sequence[Arrow]) -> list[int | None]:
    """Returns the position of each step, in order, so that as many as possible match."""
    best = [[0] * (len(arrows) + 1) for _ in range(len(steps) + 1)]
    fits = [[step.satisfied(arrow) for arrow in arrows] for step in steps]
    for row in range(len(steps) - 1, -1, -1):
        for column in range(len(arrows) - 1, -1, -1):
            taken = best[row + 1][column + 1] + 1 if fits[row][column] else 0
            best[row][column] = max(taken, best[row + 1][column], best[row][column + 1])
    return _walked(best, fits)


def _walked(best: list[list[int]], fits: list[list[bool]]) -> list[int | None]:
    positions: list[int | None] = []
    column = 0
    for row, possible in enumerate(fits):
        remaining = best[row][column] - 1
        later = range(column, len(possible))
        matched = next(
            (position for position in later if possible[position] and best[row + 1][position + 1] == remaining), None
        )
        column = column if matched is None else matched + 1
        positions.append(matched)
    return positions


def _swapped(step: Step, where: int, before: Step | None, trace: PodTrace) -> Finding:
    """The arrow exists, but not at its position; the step before it tells where it belongs."""
    at = (trace.arrows[where].time - trace.origin) * 1000
    found_at = f"it is at {at:+.1f} ms, not in its place"
    return Finding("swapped", str(step), f"{found_at}, which is after {before}" if before else found_at)


def _missing(step: Step, arrows: Sequence[Arrow]) -> Finding:
    expected = step.call or step.reply or step.event
    reason = f"no {step.turn.value} {expected} from {step.caller} to {step.callee}"
    alike = [arrow for arrow in arrows if step.describes(arrow)]
    if failed := next((arrow for arrow in alike if arrow.failed), None):
        reason = f"it failed: {failed.label}"
    elif alike and step.facts:
        facts = dict(alike[-1].facts)
        differences = ", ".join(
            f"{name} {facts.get(name) or 'nothing'} instead of {value}" for name, value in step.facts.items()
        )
        reason = f"{reason} with the expected values: the last one has {differences}"
    return Finding("missing", str(step), reason)


def _extras(trace: PodTrace, flow: Flow) -> list[Finding]:
    """Reports each kind of unexpected call once, with its count."""
    counted: Counter[str] = Counter()
    for call in trace.arrows:
        if _is_extra(call, flow):
            stroke = "->>" if call.turn is Turn.CALL else "-->>"
            counted[f"{call.caller}{stroke}{call.callee}: {call.method}"] += 1
    return [
        Finding("extra", arrow, "not part of the flow" + (f"; {times} times" if times > 1 else ""))
        for arrow, times in counted.items()
    ]


def _is_extra(arrow: Arrow, flow: Flow) -> bool:
    """A reply is as expected as its call; arrows between others than the participants of the flow are ignored."""
    if arrow.turn is Turn.REPLY or not {role(arrow.caller), role(arrow.callee)} <= set(flow.participants):
        return False
    return not any(step.describes(arrow) for step in (*flow.steps, *flow.also))
