"""Draws the calls of a start as a waterfall: a bar for each call, on a scale of time, with the critical path. Pure."""

from html import escape

from podwire.trace.critical_path import critical_path
from podwire.trace.plain_text import cut, plain
from podwire.trace.pod_trace import Arrow, PodTrace, Turn
from podwire.trace.wording import milliseconds

NAMES, BARS, RIGHT = 420, 900, 90
"""Pixels: of the names at the left, of the scale, and right of it for durations."""
ROW, HEAD = 22, 34
MOST_BARS = 600
LEAST = 1.5
"""Pixels of the shortest bar."""
_STEPS = (1, 2, 5)


def waterfall(trace: PodTrace, most: int = MOST_BARS) -> str:
    """Returns an SVG with the calls until the pod ran, or until now."""
    until = trace.running if trace.running is not None else max((arrow.time for arrow in trace.arrows), default=0.0)
    calls = [
        arrow
        for arrow in trace.arrows
        if arrow.turn is Turn.CALL and arrow.id and trace.begin <= arrow.time <= until
    ]  # fmt: skip
    left_out, calls = max(0, len(calls) - most), calls[:most]
    failed = {arrow.id for arrow in trace.arrows if arrow.failed}
    critical = {segment.arrow.id for segment in critical_path(trace)}
    whole = max(until - trace.begin, 0.001)
    height = HEAD + ROW * (len(calls) + (left_out > 0)) + 8
    drawn = [_scale(whole, height)]
    for number, call in enumerate(calls):
        kinds = [name for name, ids in (("failed", failed), ("critical", critical)) if call.id in ids]
        drawn.append(_bar(call, HEAD + ROW * number, trace.begin, whole, kinds))
    if left_out:
        drawn.append(f'<text class="time" x="{NAMES}" y="{height - 14}">{left_out} later calls are not drawn</text>')
    width = NAMES + BARS + RIGHT
    return (
        f'<svg class="waterfall" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(drawn)}</svg>'
    )


def _scale(whole: float, height: int) -> str:
    step = _step(whole)
    lines, number = [], 0
    while number * step <= whole:
        x = NAMES + BARS * number * step / whole
        lines.append(f'<line class="rail" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 8}" y2="{height}"/>')
        lines.append(
            f'<text class="tick" x="{x:.1f}" y="{HEAD - 14}" text-anchor="middle">{_short(number * step)}</text>'
        )
        number += 1
    return "".join(lines)


def _step(whole: float) -> float:
    """Returns a round step that divides the whole into at most ten parts."""
    size = 1e-6
    while True:
        for factor in _STEPS:
            if whole / (size * factor) <= 10:
                return size * factor
        size *= 10


def _short(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def _bar(call: Arrow, top: int, begin: float, whole: float, kinds: list[str]) -> str:
    x = NAMES + BARS * (call.time - begin) / whole
    took = call.took if call.took is not None else whole - (call.time - begin)
    size = max(LEAST, BARS * min(took, whole - (call.time - begin)) / whole)
    kinds = [*kinds, *(["open"] if call.took is None else [])]
    name = cut(plain(f"{call.caller} → {call.callee}  {call.label}"), 62)
    duration = milliseconds(call.took) if call.took is not None else "…"
    title = escape(
        plain(f"{call.caller} → {call.callee} {call.method}: +{(call.time - begin) * 1000:.1f} ms, {duration}")
    )
    after = min(x + size + 6, NAMES + BARS + RIGHT - 70)
    return (
        f'<g class="call {" ".join(kinds)}" data-id="{escape(call.id)}" tabindex="0"><title>{title}</title>'
        f'<rect class="hit" x="0" y="{top}" width="{NAMES + BARS + RIGHT}" height="{ROW}"/>'
        f'<text class="name" x="8" y="{top + 15}">{escape(name)}</text>'
        f'<rect class="span" x="{x:.1f}" y="{top + 4}" width="{size:.1f}" height="{ROW - 8}" rx="2"/>'
        f'<text class="time" x="{after:.1f}" y="{top + 15}">{duration}</text></g>'
    )
