"""Figures: measured values, peers and budgets, and their table."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

RECORDED = "recorded"
"""A peer that was measured once, on a quiet machine with two processors, since it cannot be installed by `make`."""

MEASURED = "measured"
"""A peer that was measured in the same run."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The value of a peer for the same work, and how to compare."""

    name: str
    value: float
    budget: float | None = None
    """Ours divided by theirs should be at least this where more is better, at most this where less is."""
    source: str = RECORDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table. Rates (per second) are better when higher, times and sizes when lower."""

    group: str
    what: str
    value: float
    unit: str
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_us: float | None = None
    """Processor time of the server for one request."""
    peer: Peer | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer.value if self.peer else None

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        if self.peer is None or self.peer.budget is None or self.ratio is None:
            return None
        return self.ratio >= self.peer.budget if self.unit == "/s" else self.ratio <= self.peer.budget


def as_json(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [{**asdict(figure), "ratio": figure.ratio, "met": figure.met} for figure in figures]


HEAD = ("", "ours", "p50", "p99", "cpu", "peer", "ratio", "budget", "")


def table(figures: Sequence[Figure]) -> str:
    """All figures for a person to read: a paragraph for each group, the numbers under each other."""
    rows = [_cells(figure) for figure in figures]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    lines = [_line(HEAD, widths)]
    for group, members in groupby(zip(figures, rows, strict=True), key=lambda pair: pair[0].group):
        lines += ["", group, *(_line(row, widths) for _, row in members)]
    return "\n".join([*lines, "", *_notes(figures)])


def _cells(figure: Figure) -> tuple[str, ...]:
    peer, sign = figure.peer, "≥" if figure.unit == "/s" else "≤"
    budget = f"{sign} {peer.budget:.2g}x" if peer and peer.budget else ""
    return (
        f"  {figure.what}",
        _number(figure.value, figure.unit),
        _number(figure.p50_ms, " ms"),
        _number(figure.p99_ms, " ms"),
        _number(figure.cpu_us, " µs"),
        _number(peer.value, figure.unit) + (" " if peer.source == MEASURED else "*") if peer else "",
        f"{figure.ratio:.2f}x" if figure.ratio is not None else "",
        budget,
        {True: "met", False: "NOT MET", None: ""}[figure.met],
    )


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}".replace(",", " ")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *numbers, verdict = cells
    aligned = "  ".join(f"{number:>{width}}" for number, width in zip(numbers, widths[1:-1], strict=True))
    return f"{first:{widths[0]}}  {aligned}  {verdict}".rstrip()


def _notes(figures: Sequence[Figure]) -> Iterable[str]:
    names = sorted({figure.peer.name for figure in figures if figure.peer and figure.peer.source == RECORDED})
    if names:
        yield f"* {', '.join(names)}: recorded earlier on a quiet machine with 2 processors; not installed here"
    verdicts = [figure.met for figure in figures if figure.met is not None]
    if verdicts:
        yield f"budgets: {verdicts.count(True)} of {len(verdicts)} met"
