"""The acts side by side: how long each phase took, what had to be written, what the scheduler knew, what if it dies."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from podwire.cluster.demo.acts import Act
from podwire.trace.phases import parts, phases
from podwire.trace.segments import Reader
from podwire.trace.story import Stories, Story

GAP = "  "
NARROWEST = 12
NAMESPACE = "default"


def comparison(acts: Sequence[Act], traces: Path, width: int) -> list[str]:
    """Lines of a table, one column for each act; times are those of this very run."""
    stories = Stories()
    stories.learn(Reader(traces).more())
    told = {each.number: stories.find(NAMESPACE, each.pod) for each in acts}
    head = ["", *(f"{each.number}. {each.title}" for each in acts)]
    rows = [*_times(acts, told), *_words(acts)]
    first = max(len(row[0]) for row in rows)
    column = max(NARROWEST, (width - first) // max(1, len(acts)) - len(GAP))
    return [line for row in (head, *rows) for line in _wrapped(row, first, column)]


def _times(acts: Sequence[Act], told: dict[int, Story | None]) -> list[list[str]]:
    """Phases, which sum up to the start, then the parts in them."""
    found = [_seconds(told[each.number]) for each in acts]
    names = list(dict.fromkeys(name for each in found for name in each))
    return [[name, *(_milliseconds(each.get(name)) for each in found)] for name in names]


def _seconds(story: Story | None) -> dict[str, float]:
    if story is None or story.took is None:
        return {}
    whole = {"POST to Running": story.took}
    whole |= {each.name: each.seconds for each in phases(story)}
    return whole | {f"  {each.name}": each.seconds for each in parts(story)}


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _words(acts: Sequence[Act]) -> list[list[str]]:
    return [
        ["a user wrote", *(each.wrote for each in acts)],
        ["the scheduler knew", *(each.scheduler for each in acts)],
        ["while the plugin is dead", *(each.dies for each in acts)],
    ]


def _wrapped(row: Sequence[str], first: int, column: int) -> list[str]:
    cells = [[row[0]], *(textwrap.wrap(each, column) or [""] for each in row[1:])]
    height = max(map(len, cells))
    lines = []
    for number in range(height):
        parts_ = [each[number] if number < len(each) else "" for each in cells]
        lines.append(GAP.join([parts_[0].ljust(first), *(each.ljust(column) for each in parts_[1:])]).rstrip())
    return lines
