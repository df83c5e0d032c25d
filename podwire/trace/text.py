"""Draws a pod trace with characters: a lane for each participant, time from top to bottom. Pure.

In a narrow terminal there are no lanes: an arrow takes one line, or more where it does not fit.
"""

from collections.abc import Sequence

from podwire.trace import canvas
from podwire.trace.canvas import Canvas, coloured
from podwire.trace.participants import in_order
from podwire.trace.plain_text import cut, folded, plain, width
from podwire.trace.pod_trace import Arrow, Cut, Gap, Moment, Pause, PodTrace, Remark, Turn, moments
from podwire.trace.wording import headline, lost, times

NARROWEST = 10
"""Columns of a lane at least; with fewer there are no lanes."""
WIDEST = 22
LABEL = 4
"""Indentation of a label below its arrow."""
MARGIN = 22
"""Columns on the left for the time and the duration."""


def text(trace: PodTrace, columns: int = 120, *, colours: bool = False) -> str:
    """Returns the whole diagram."""
    participants = in_order({name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)})
    drawing = Drawing(participants, trace.origin, columns, colours=colours)
    lines = [*folded(plain(headline(trace)), max(NARROWEST, columns)), "", *drawing.head()]
    for moment in moments(trace):
        lines += drawing.lines(moment)
    return "\n".join([*lines, *drawing.foot()]) + "\n"


class Drawing:
    """Draws arrows between these participants, as wide as the terminal."""

    def __init__(self, participants: Sequence[str], begin: float, columns: int, *, colours: bool = False) -> None:
        self._participants = list(participants)
        self._begin = begin
        self._width = columns
        self._colours = colours
        self._step = min(WIDEST, (columns - MARGIN) // max(1, len(participants)))
        self._lanes = {
            participant: MARGIN + self._step * number + self._step // 2
            for number, participant in enumerate(participants)
        }
        self._flat = self._step < NARROWEST

    def head(self) -> list[str]:
        if self._flat:
            return []
        drawn = self._canvas()
        drawn.put(0, f"{'time':>10} {'took':>9}")
        for participant, column in self._lanes.items():
            shown = cut(plain(participant), self._room(participant))
            drawn.put(column - width(shown) // 2, shown, canvas.STRONG)
        return [str(drawn), str(self._rails())]

    def _room(self, name: str) -> int:
        """Returns the columns for a name: it may extend into the adjacent lanes as far as their names leave space."""
        place = self._participants.index(name)
        beside = [*self._participants[max(0, place - 1) : place], *self._participants[place + 1 : place + 2]]
        longest = max((min(width(plain(participant)), self._step - 1) for participant in beside), default=0)
        return max(self._step - 1, 2 * (self._step - 1) - longest)

    def foot(self) -> list[str]:
        return [] if self._flat else [str(self._rails())]

    def lines(self, moment: Moment) -> list[str]:
        if isinstance(moment, Gap | Cut | Pause):
            return [self._styled(cut(f"{'':{MARGIN}}~~~ {plain(lost(moment))} ~~~", self._width), canvas.LOST)]
        if isinstance(moment, Remark):
            return self._remark(moment)
        if self._flat or not {moment.caller, moment.callee} <= set(self._lanes):
            return self._flattened(moment)
        return [str(self._labelled(moment)), str(self._stroke(moment))]

    def _remark(self, remark: Remark) -> list[str]:
        if self._flat:
            return ["", *self._folded(plain(remark.text), 2, canvas.NOTE)]
        drawn = self._rails()
        drawn.put(2, cut(f"{plain(remark.text)} ", self._width - 2), canvas.NOTE)
        return [str(self._rails()), str(drawn)]

    def _canvas(self) -> Canvas:
        return Canvas(self._width, colours=self._colours)

    def _styled(self, line: str, style: str) -> str:
        return coloured(line, style) if self._colours else line

    def _rails(self) -> Canvas:
        drawn = self._canvas()
        for column in self._lanes.values():
            drawn.put(column, "│", canvas.FAINT)
        return drawn

    def _labelled(self, arrow: Arrow) -> Canvas:
        """Draws the label above its arrow, extending to the right; at the edge it moves to the left."""
        drawn = self._rails()
        drawn.put(0, times(arrow, self._begin), canvas.FAINT)
        left = min(self._lanes[arrow.caller], self._lanes[arrow.callee]) + 2
        label = plain(arrow.label)
        if left + width(label) > self._width:
            left = max(MARGIN, self._width - width(label))
        drawn.put(left, cut(label, self._width - left), canvas.FAILED if arrow.failed else canvas.NORMAL)
        return drawn

    def _stroke(self, arrow: Arrow) -> Canvas:
        drawn, style = self._rails(), style_of(arrow)
        begin, end = self._lanes[arrow.caller], self._lanes[arrow.callee]
        line = "─" if arrow.turn is Turn.CALL else "╌"
        if begin == end:
            drawn.put(begin, f"├{line}{'◀' if arrow.turn is Turn.CALL else '╯'}", style)
            return drawn
        tip = "✕" if arrow.failed else "▶" if begin < end else "◀"
        low, high = min(begin, end), max(begin, end)
        body = line * (high - low - 1)
        drawn.put(low + 1, f"{body[:-1]}{tip}" if begin < end else f"{tip}{body[1:]}", style)
        if arrow.turn is Turn.CALL and arrow.took is None:
            drawn.put(high + 2 if begin < end else low - 2, "…", style)
        return drawn

    def _flattened(self, arrow: Arrow) -> list[str]:
        """Draws an arrow on one line if it fits, else with the label below."""
        style, when = style_of(arrow), times(arrow, self._begin)
        sign = "→" if arrow.turn is Turn.CALL else "✕" if arrow.failed else "⇢"
        ends, label = plain(f"{arrow.caller} {sign} {arrow.callee}"), plain(arrow.label)
        line = f"{when} {ends}: {label}"
        if width(line) <= self._width:
            return [self._styled(line, style)]
        first, *others = self._folded(ends, width(when) + 1, style)
        return [first.replace(" " * width(when), when, 1), *others, *self._folded(label, LABEL, style)]

    def _folded(self, line: str, indent: int, style: str) -> list[str]:
        """Wraps to the width of the terminal."""
        return [
            self._styled(f"{'':{indent}}{part}", style) for part in folded(line, max(NARROWEST, self._width - indent))
        ]


def style_of(arrow: Arrow) -> str:
    if arrow.failed:
        return canvas.FAILED
    return {Turn.CALL: canvas.CALL, Turn.REPLY: canvas.ANSWER, Turn.EVENT: canvas.EVENT}[arrow.turn]
