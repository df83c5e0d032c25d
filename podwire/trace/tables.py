"""Stories in rows: those that were seen, the slowest of them, and two side by side. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from podwire.trace import canvas
from podwire.trace.canvas import coloured
from podwire.trace.diff import Diff, Hop, Row, Sum
from podwire.trace.phases import phases
from podwire.trace.plain_text import plain, width
from podwire.trace.pod_trace import PodTrace
from podwire.trace.wording import clock, day, milliseconds

NOTICEABLE = 0.001
"""Seconds by which a hop must be slower, or quicker, to be called so."""


def seen(traces: Sequence[PodTrace]) -> str:
    """The pods that were seen, a line each; with the date, where they are not of one day."""
    when = _dated if len({day(trace.begin) for trace in traces}) > 1 else clock
    rows = [
        (_ref(trace), when(trace.begin), milliseconds(trace.took), str(len(trace.arrows)), trace.pod)
        for trace in traces
    ]
    return _aligned([("POD", "STARTED", "RUNNING AFTER", "ARROWS", "TRACE"), *rows])


def _dated(seconds: float) -> str:
    return f"{day(seconds)}T{clock(seconds)}"


def slowest(traces: Iterable[PodTrace]) -> str:
    """Starts with the time of each of their phases; a column only for those that one of them has."""
    told = [(trace, {phase.name: phase.seconds for phase in phases(trace)}) for trace in traces]
    names = list(dict.fromkeys(name for _, own in told for name in own))
    head = ("POD", "RUNNING AFTER", *(name.upper() for name in names))
    rows = [(_ref(trace), milliseconds(trace.took), *(_phase(own, name) for name in names)) for trace, own in told]
    return _aligned([head, *rows])


def _phase(own: dict[str, float], name: str) -> str:
    return milliseconds(own.get(name))


def compared(told: Diff, *, colours: bool = False) -> str:
    """Phases first, then hop by hop."""
    first, second = _ref(told.first), _ref(told.second)
    took = milliseconds(told.first.took), milliseconds(told.second.took)
    whole = Sum("until Running", told.first.took, told.second.took)
    lines = [f"A  {first}  {took[0]}  {told.first.pod}", f"B  {second}  {took[1]}  {told.second.pod}", ""]
    sums = [("PHASE", "A", "B", "B - A"), *map(_sum, told.phases), _sum(whole)]
    lines += _aligned(sums).splitlines()
    if told.parts:
        lines += ["", *_aligned([("OF WHICH", "A", "B", "B - A"), *map(_sum, told.parts)]).splitlines()]
    rows: list[Sequence[str]] = [("HOP", "CALL", "AT A", "AT B", "A", "B", "B - A", ""), *map(_row, told.rows)]
    head, *drawn = _aligned(rows).splitlines()
    styles = [_style(row) if colours else canvas.NORMAL for row in told.rows]
    lines += ["", head, *(coloured(line, style) for line, style in zip(drawn, styles, strict=True)), ""]
    return "\n".join([*lines, *_verdict(told)]) + "\n"


def _sum(each: Sum) -> tuple[str, ...]:
    return each.name, milliseconds(each.first), milliseconds(each.second), _signed(each.slower)


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


def _verdict(told: Diff) -> Iterator[str]:
    """What is to be looked at first."""
    if told.phases:
        worst = max(told.phases, key=lambda phase: phase.slower)
        if worst.slower >= NOTICEABLE:
            yield f"B is slowest in {worst.name}: {_signed(worst.slower)}"
    slower = [row for row in told.rows if row.slower is not None and row.slower >= NOTICEABLE]
    if slower:
        row = max(slower, key=lambda row_: row_.slower or 0.0)
        yield plain(
            f"the hop that is slower by most: {row.caller} → {row.callee} {row.call}: {_signed(row.slower or 0)}"
        )
    missing, extra = (sum(row.kind == kind for row in told.rows) for kind in ("missing", "extra"))
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
