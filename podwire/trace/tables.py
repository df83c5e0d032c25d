"""Tables of pod traces: all, the slowest, and two compared. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from podwire.trace import canvas
from podwire.trace.canvas import coloured
from podwire.trace.diff import Diff, Hop, Row, Sum
from podwire.trace.phases import phases
from podwire.trace.plain_text import plain, width
from podwire.trace.pod_trace import PodTrace
from podwire.trace.wording import clock, day, duration, milliseconds

NOTICEABLE = 0.001
"""Seconds by which a hop must be slower or quicker to be marked."""


def seen(traces: Sequence[PodTrace]) -> str:
    """Lists the recorded pods, a line each; with the date if they are of several days."""
    when = _dated if len({day(trace.begin) for trace in traces}) > 1 else clock
    rows = [
        (_ref(trace), when(trace.begin), milliseconds(trace.took), str(len(trace.arrows)), trace.pod)
        for trace in traces
    ]
    return _aligned([("POD", "STARTED", "RUNNING AFTER", "ARROWS", "TRACE"), *rows])


def _dated(seconds: float) -> str:
    return f"{day(seconds)}T{clock(seconds)}"


def slowest(traces: Iterable[PodTrace]) -> str:
    """Lists starts with the time of each phase; a phase that none of them has gets no column."""
    starts = [(trace, {phase.name: phase.seconds for phase in phases(trace)}) for trace in traces]
    names = list(dict.fromkeys(name for _, own in starts for name in own))
    head = ("POD", "RUNNING AFTER", *(name.upper() for name in names))
    rows = [
        (_ref(trace), milliseconds(trace.took), *(milliseconds(own.get(name)) for name in names))
        for trace, own in starts
    ]
    return _aligned([head, *rows])


def compared(comparison: Diff, *, colours: bool = False) -> str:
    """Shows phases first, then hop by hop."""
    first, second = _ref(comparison.first), _ref(comparison.second)
    took = milliseconds(comparison.first.took), milliseconds(comparison.second.took)
    whole = Sum("until Running", comparison.first.took, comparison.second.took)
    lines = [f"A  {first}  {took[0]}  {comparison.first.pod}", f"B  {second}  {took[1]}  {comparison.second.pod}", ""]
    sums = [("PHASE", "A", "B", "B - A"), *map(_sum, comparison.phases), _sum(whole)]
    lines += _aligned(sums).splitlines()
    if comparison.parts:
        lines += ["", *_aligned([("OF WHICH", "A", "B", "B - A"), *map(_sum, comparison.parts)]).splitlines()]
    rows: list[Sequence[str]] = [("HOP", "CALL", "AT A", "AT B", "A", "B", "B - A", ""), *map(_row, comparison.rows)]
    head, *drawn = _aligned(rows).splitlines()
    styles = [_style(row) if colours else canvas.NORMAL for row in comparison.rows]
    lines += ["", head, *(coloured(line, style) for line, style in zip(drawn, styles, strict=True)), ""]
    return "\n".join([*lines, *verdict(comparison)]) + "\n"


def _sum(sum_: Sum) -> tuple[str, ...]:
    return sum_.name, milliseconds(sum_.first), milliseconds(sum_.second), _signed(sum_.slower)


def _row(row: Row) -> tuple[str, ...]:
    slower = "" if row.slower is None else _signed(row.slower)
    return (
        f"{row.caller} → {row.callee}",
        row.call,
        _at(row.first),
        _at(row.second),
        _took(row.first),
        _took(row.second),
        slower,
        _mark(row),
    )


def _mark(row: Row) -> str:
    if row.slower is None:
        return f"{row.kind} in B" if row.kind == "missing" else "only in B"
    return "slower" if row.slower >= NOTICEABLE else "quicker" if row.slower <= -NOTICEABLE else ""


def _style(row: Row) -> str:
    if row.slower is None:
        return canvas.LOST
    return canvas.FAILED if row.slower >= NOTICEABLE else canvas.ANSWER if row.slower <= -NOTICEABLE else canvas.NORMAL


def verdict(comparison: Diff) -> Iterator[str]:
    """Yields what to look at first: failed calls and the back-off after them, then what was slow."""
    for failure in comparison.failures:
        times = f"{failure.times} times" if failure.times > 1 else "once"
        yield plain(f"failed in B {times}: {failure.caller} → {failure.callee} {failure.call}: {failure.error}")
    if comparison.backoff:
        yield f"B waited {duration(comparison.backoff)} after failed calls (back-off)"
    if comparison.phases:
        worst = max(comparison.phases, key=lambda phase: phase.slower)
        if worst.slower >= NOTICEABLE:
            yield f"B is slowest in {worst.name}: {_signed(worst.slower)}"
    slower = [row for row in comparison.rows if row.slower is not None and row.slower >= NOTICEABLE]
    if slower:
        row = max(slower, key=lambda candidate: candidate.slower or 0.0)
        yield plain(f"slowest hop: {row.caller} → {row.callee} {row.call}: {_signed(row.slower or 0)}")
    missing, extra = (sum(row.kind == kind for row in comparison.rows) for kind in ("missing", "extra"))
    yield f"{len(slower)} hops are slower, {missing} are missing in B, {extra} are only in B"


def _took(hop: Hop | None) -> str:
    return "" if hop is None else f"{milliseconds(hop.took)}{' ✕' if hop.failed else ''}"


def _at(hop: Hop | None) -> str:
    return "" if hop is None else f"{hop.at * 1000:+.1f} ms"


def _signed(seconds: float) -> str:
    return f"{seconds * 1000:+.1f} ms"


def _ref(trace: PodTrace) -> str:
    return plain(f"{trace.namespace}/{trace.name}")


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*shown, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in shown
    )
