"""A story drawn with characters: a lane for each participant, time from top to bottom. Pure.

In a narrow terminal the lanes make way for one line per arrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from podwire.trace.mermaid import headline, lost
from podwire.trace.participants import placed
from podwire.trace.story import Arrow, Gap, Moment, Remark, Story, Turn, moments

NARROWEST = 10
"""Columns that a lane needs; with fewer there are no lanes."""
WIDEST = 22
MARGIN = 22
"""Columns on the left for the time and the duration."""


def text(story: Story, width: int = 120) -> str:
    """The whole story."""
    people = placed({name for each in story.arrows for name in (each.caller, each.callee)})
    drawing = Drawing(people, story.origin, width)
    lines = [headline(story), "", *drawing.head()]
    for each in moments(story):
        lines += drawing.lines(each)
    return "\n".join([*lines, *drawing.foot()]) + "\n"


class Drawing:
    """Draws arrows between these participants, as many columns wide as the terminal."""

    def __init__(self, people: Sequence[str], begin: float, width: int) -> None:
        self._people = list(people)
        self._begin = begin
        self._width = width
        self._step = min(WIDEST, (width - MARGIN) // max(1, len(people)))
        self._lanes = {each: MARGIN + self._step * number + self._step // 2 for number, each in enumerate(people)}
        self._flat = self._step < NARROWEST

    def head(self) -> list[str]:
        if self._flat:
            return []
        canvas = _Canvas(self._width)
        for each, column in self._lanes.items():
            shown = _cut(each, self._room(each))
            canvas.put(column - len(shown) // 2, shown)
        return [f"{'time':>10} {'took':>9}{str(canvas)[20:]}", str(self._rails())]

    def _room(self, name: str) -> int:
        """Columns for a name: it may run into the lanes beside it as far as their names leave it room."""
        place = self._people.index(name)
        beside = [*self._people[max(0, place - 1) : place], *self._people[place + 1 : place + 2]]
        longest = max((min(len(each), self._step - 1) for each in beside), default=0)
        return max(self._step - 1, 2 * (self._step - 1) - longest)

    def foot(self) -> list[str]:
        return [] if self._flat else [str(self._rails())]

    def lines(self, told: Moment) -> list[str]:
        if isinstance(told, Gap):
            return [_cut(f"{'':{MARGIN}}~~~ {lost(told)} ~~~", self._width)]
        if isinstance(told, Remark):
            return ["", _cut(f"  {told.text}", self._width)] if self._flat else self._remark(told)
        if self._flat or not {told.caller, told.callee} <= set(self._lanes):
            return [self._one_line(told)]
        return [str(self._labelled(told)), str(self._stroke(told))]

    def _remark(self, remark: Remark) -> list[str]:
        canvas = self._rails()
        canvas.put(2, _cut(f"{remark.text} ", self._width - 2))
        return [str(self._rails()), str(canvas)]

    def _rails(self) -> "_Canvas":
        canvas = _Canvas(self._width)
        for column in self._lanes.values():
            canvas.put(column, "│")
        return canvas

    def _labelled(self, arrow: Arrow) -> "_Canvas":
        """The label stands over its arrow and may run on to the right; at the edge it moves to the left."""
        canvas = self._rails()
        canvas.put(0, _times(arrow, self._begin))
        left = min(self._lanes[arrow.caller], self._lanes[arrow.callee]) + 2
        label = arrow.label
        if left + len(label) > self._width:
            left = max(MARGIN, self._width - len(label))
        canvas.put(left, _cut(label, self._width - left))
        return canvas

    def _stroke(self, arrow: Arrow) -> "_Canvas":
        canvas = self._rails()
        begin, end = self._lanes[arrow.caller], self._lanes[arrow.callee]
        line = "─" if arrow.turn is Turn.CALL else "╌"
        if begin == end:
            canvas.put(begin, f"├{line}{'◀' if arrow.turn is Turn.CALL else '╯'}")
            return canvas
        tip = "✕" if arrow.failed else "▶" if begin < end else "◀"
        low, high = min(begin, end), max(begin, end)
        body = line * (high - low - 1)
        canvas.put(low + 1, f"{body[:-1]}{tip}" if begin < end else f"{tip}{body[1:]}")
        if arrow.turn is Turn.CALL and arrow.took is None:
            canvas.put(high + 2 if begin < end else low - 2, "…")
        return canvas

    def _one_line(self, arrow: Arrow) -> str:
        sign = "→" if arrow.turn is Turn.CALL else "✕" if arrow.failed else "⇢"
        line = f"{_times(arrow, self._begin)} {arrow.caller} {sign} {arrow.callee}: {arrow.label}"
        return _cut(line, self._width)


class _Canvas:
    """One line of characters."""

    def __init__(self, width: int) -> None:
        self._cells = [" "] * width

    def put(self, column: int, text_: str) -> None:
        for offset, each in enumerate(text_):
            if 0 <= column + offset < len(self._cells):
                self._cells[column + offset] = each

    def __str__(self) -> str:
        return "".join(self._cells).rstrip()


def _times(arrow: Arrow, begin: float) -> str:
    """When, and on the reply how long it took; what began before anybody asked for the pod has no time in its story."""
    when = "before" if arrow.time < begin else f"{(arrow.time - begin) * 1000:+.1f} ms"
    took = f"{arrow.took * 1000:.1f} ms" if arrow.turn is Turn.REPLY and arrow.took is not None else ""
    return f"{when:>10} {took:>9}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(0, width - 1)]}…"


def table(stories: Iterable[Story]) -> str:
    """The pods that were seen, a line each."""
    rows = [("POD", "STARTED", "RUNNING AFTER", "ARROWS", "TRACE"), *_rows(stories)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _rows(stories: Iterable[Story]) -> Iterator[tuple[str, ...]]:
    for each in stories:
        took = f"{each.took * 1000:.1f} ms" if each.took is not None else "-"
        yield f"{each.namespace}/{each.name}", _clock(each.begin), took, str(len(each.arrows)), each.pod


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3] + "Z"
