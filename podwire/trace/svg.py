"""Draws a pod trace as SVG: lanes, arrows with their times, notes. Pure; all text is escaped.

The drawing is split into pieces of a fixed number of rows, joined without a gap, so that a printer can break pages.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from podwire.trace.participants import in_order
from podwire.trace.plain_text import cut, plain, width
from podwire.trace.pod_trace import Arrow, Cut, Gap, Moment, Pause, PodTrace, Remark, Turn, moments
from podwire.trace.wording import lost, milliseconds, moment

MARGIN, WIDEST, NARROWEST, EDGE = 190, 150, 124, 70
"""Pixels: left of the lanes, of a lane, and right of the last lane for labels."""
PAGE = 1560
"""Pixels of a usual window: lanes get narrower so that all of them are visible in it."""
ROW, HEAD, NOTE = 32, 44, 30
PIECE = 25
"""Rows of a piece; about a printed page."""
LETTER = 6.6
"""Average pixels of a letter of a label."""
LONGEST = 110
"""Letters of a label; the tooltip has the whole text."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The time during which a participant works on a call: from its row to the row of the reply."""

    lane: str
    top: float
    bottom: float
    depth: int


class Picture:
    """A pod trace with the positions of lanes and rows."""

    def __init__(self, trace: PodTrace) -> None:
        self._begin = trace.origin
        self._moments = moments(trace)
        participants = in_order({name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)})
        share = (PAGE - MARGIN - EDGE) // max(1, len(participants))
        self._lane = lane = min(WIDEST, max(NARROWEST, share))
        self._lanes = {
            participant: MARGIN + lane * number + lane / 2 for number, participant in enumerate(participants)
        }
        self.width = MARGIN + lane * len(participants) + EDGE
        self._tops: list[float] = []
        top = 0.0
        for row in self._moments:
            self._tops.append(top)
            top += ROW if isinstance(row, Arrow) else NOTE
        self._height = top
        self._bars = _bars(self._moments, self._tops, self._height)

    def head(self) -> str:
        """Returns the participants, for the top of the window."""
        return self._svg("head", 0, HEAD, self._heads())

    def _heads(self) -> str:
        lane = self._lane
        names = "".join(
            f'<g class="who"><title>{_text(name)}</title>'
            f'<rect x="{x - lane / 2 + 3:g}" y="8" width="{lane - 6}" height="28" rx="6"/>'
            f'<text x="{x:g}" y="27" text-anchor="middle">{_text(name, 19)}</text></g>'
            for name, x in self._lanes.items()
        )
        columns = '<text class="time" x="88" y="27">time</text><text class="time" x="170" y="27">took</text>'
        return columns + names

    def pieces(self) -> Iterator[str]:
        """Yields the pieces from top to bottom."""
        for first in range(0, len(self._moments), PIECE):
            rows = range(first, min(first + PIECE, len(self._moments)))
            top = self._tops[first]
            bottom = self._tops[rows.stop] if rows.stop < len(self._tops) else self._height
            drawn = [*self._rails(top, bottom), *(self._bar(bar) for bar in self._bars if _meets(bar, top, bottom))]
            drawn += [self._row(number) for number in rows]
            yield self._svg("piece", top, bottom - top, "".join(drawn))

    def whole(self, style: str) -> str:
        """Returns one drawing of everything, with its style inside: a file that needs nothing else."""
        height = HEAD + self._height
        drawn = "".join(self._row(number) for number in range(len(self._moments)))
        bars = "".join(map(self._bar, self._bars))
        rows = f'<g transform="translate(0 {HEAD})">{"".join(self._rails(0, self._height))}{bars}{drawn}</g>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:g}" '
            f'viewBox="0 0 {self.width} {height:g}"><style>{escape(style)}</style>'
            f'<rect class="paper" width="100%" height="100%"/>{self._heads()}{rows}</svg>\n'
        )

    def _svg(self, kind: str, top: float, height: float, drawn: str) -> str:
        return (
            f'<svg class="{kind}" xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:g}" '
            f'viewBox="0 {top:g} {self.width} {height:g}">{drawn}</svg>\n'
        )

    def _rails(self, top: float, bottom: float) -> Iterator[str]:
        for x in self._lanes.values():
            yield f'<line class="rail" x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}"/>'

    def _bar(self, bar: Bar) -> str:
        x = self._lanes[bar.lane] - 4 + 3 * bar.depth
        height = max(2.0, bar.bottom - bar.top)
        return f'<rect class="bar" x="{x:g}" y="{bar.top:g}" width="8" height="{height:g}" rx="2"/>'

    def _row(self, number: int) -> str:
        moment, top = self._moments[number], self._tops[number]
        if isinstance(moment, Gap | Cut | Pause):
            kind = "gap pause" if isinstance(moment, Pause) else "gap"
            return (
                f'<g class="{kind}"><rect x="0" y="{top + 4:g}" width="{self.width}" height="{NOTE - 8}"/>'
                f'<text x="{MARGIN}" y="{top + 19:g}">{_text(lost(moment))}</text></g>'
            )
        return self._note(moment, top) if isinstance(moment, Remark) else self._arrow(moment, number, top)

    def _note(self, remark: Remark, top: float) -> str:
        """A box over its participants; as wide as its text if they are close together."""
        over = [self._lanes[participant] for participant in remark.over if participant in self._lanes] or [
            MARGIN + self._lane / 2
        ]
        shown = plain(remark.text)
        size = max(max(over) - min(over) + self._lane - 24, width(shown) * LETTER + 24)
        left = max(MARGIN - 20, min((min(over) + max(over) - size) / 2, self.width - size - 4))
        return (
            f'<g class="note"><rect x="{left:g}" y="{top + 4:g}" width="{size:g}" height="{NOTE - 8}" rx="4"/>'
            f'<text x="{left + 12:g}" y="{top + 19:g}">{escape(shown)}</text></g>'
        )

    def _arrow(self, arrow: Arrow, number: int, top: float) -> str:
        kinds = [arrow.turn.value, *(["failed"] if arrow.failed else []), *(["open"] if _is_open(arrow) else [])]
        took = milliseconds(arrow.took) if arrow.turn is Turn.REPLY and arrow.took is not None else ""
        return (
            f'<g class="row {" ".join(kinds)}" data-n="{number}" data-id="{escape(arrow.id)}" tabindex="0">'
            f"<title>{_hover(arrow, self._begin)}</title>"
            f'<rect class="hit" x="0" y="{top:g}" width="{self.width}" height="{ROW}"/>'
            f'<text class="time" x="88" y="{top + 25:g}">{moment(arrow, self._begin)}</text>'
            f'<text class="time" x="170" y="{top + 25:g}">{took}</text>'
            f"{self._stroke(arrow, top + 22)}{self._label(arrow, top + 14)}</g>"
        )

    def _stroke(self, arrow: Arrow, y: float) -> str:
        begin, end = self._lanes[arrow.caller], self._lanes[arrow.callee]
        if begin == end:
            return f'<path class="line" d="M{begin:g} {y - 4:g}h26v8h-20"/>' + _tip(begin + 5, y + 4, -1, arrow)
        way = 1 if begin < end else -1
        begin, end = begin + 5 * way, end - 5 * way
        return f'<line class="line" x1="{begin:g}" x2="{end:g}" y1="{y:g}" y2="{y:g}"/>' + _tip(end, y, way, arrow)

    def _label(self, arrow: Arrow, y: float) -> str:
        label = plain(arrow.label) + (" …" if _is_open(arrow) else "")
        left = min(self._lanes[arrow.caller], self._lanes[arrow.callee]) + 12
        shown = cut(label, LONGEST)
        left = max(MARGIN, min(left, self.width - 8 - width(shown) * LETTER))
        return f'<text class="label" x="{left:g}" y="{y:g}">{escape(shown)}</text>'


def _tip(x: float, y: float, way: int, arrow: Arrow) -> str:
    if arrow.failed:
        return f'<path class="cross" d="M{x - 4 - 4 * way:g} {y - 4:g}l8 8m0 -8l-8 8"/>'
    return f'<path class="tip" d="M{x:g} {y:g}l{-9 * way} -4v8z"/>'


def _bars(moments_: Sequence[Moment], tops: Sequence[float], height: float) -> list[Bar]:
    """Returns a bar for each call; bars of nested calls on the same lane are shifted."""
    rows = [(row, top + 22) for row, top in zip(moments_, tops, strict=True) if isinstance(row, Arrow)]
    ends = {arrow.id: y for arrow, y in rows if arrow.turn is Turn.REPLY}
    watches = {arrow.id for arrow, _ in rows if arrow.turn is Turn.EVENT}
    bars: dict[str, list[Bar]] = defaultdict(list)
    for arrow, y in rows:
        if (
            arrow.turn is not Turn.CALL
            or not arrow.id
            or arrow.id in watches
            or (_is_open(arrow) and "watch=" in arrow.method)
        ):
            continue
        depth = sum(bar.bottom > y for bar in bars[arrow.callee])
        end = ends[arrow.id] if arrow.id in ends else _end_of(arrow, rows, height)
        bars[arrow.callee].append(Bar(arrow.callee, y, end, depth))
    return [bar for own in bars.values() for bar in own]


def _end_of(call: Arrow, rows: Sequence[tuple[Arrow, float]], height: float) -> float:
    """Returns the end of a call whose reply is not drawn: the last row that it lasts to, or the bottom while it is
    open."""
    if call.took is None:
        return height
    return max(y for arrow, y in rows if arrow.time <= call.time + call.took)


def _meets(bar: Bar, top: float, bottom: float) -> bool:
    return bar.top < bottom and bar.bottom > top


def _is_open(arrow: Arrow) -> bool:
    return arrow.turn is Turn.CALL and arrow.took is None


def _hover(arrow: Arrow, begin: float) -> str:
    lines = [f"{arrow.caller} → {arrow.callee}", arrow.method, arrow.label, moment(arrow, begin)]
    if arrow.took is not None:
        lines[-1] += f", took {milliseconds(arrow.took)}"
    return "\n".join(escape(plain(line)) for line in dict.fromkeys(lines))


def _text(text: str, most: int = LONGEST) -> str:
    return escape(cut(plain(text), most))
