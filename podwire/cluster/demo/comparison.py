"""The acts side by side: how long each phase took and what was written, in this very run; then what holds in any."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from podwire.cluster.demo.acts import Act
from podwire.cluster.demo.manifests import CLUSTER
from podwire.trace.phases import parts, phases
from podwire.trace.pod_trace import PodTrace, PodTraces
from podwire.trace.segments import Reader

GAP = "  "
NARROWEST = 12
NAMESPACE = "default"
ALWAYS = "And what one run does not show; tests do:"


def comparison(acts: Sequence[Act], traces: Path, width: int) -> list[str]:
    """Lines of a table, one column for each act; times are those of this very run, files those that it applied."""
    stories = PodTraces()
    stories.learn(Reader(traces).more())
    told = {each.number: stories.find(NAMESPACE, each.pod) for each in acts}
    head = ["", *(f"{each.number}. {each.title}" for each in acts)]
    measured = [head, *_times(acts, told), ["was written", *(", ".join(written(each)) for each in acts)]]
    always = _words(acts)
    first = max(len(row[0]) for row in (*measured, *always))
    column = max(NARROWEST, (width - first) // max(1, len(acts)) - len(GAP))
    lines = [[line for row in rows for line in _wrapped(row, first, column)] for rows in (measured, always)]
    return [*lines[0], "", ALWAYS, "", *lines[1]]


def written(act: Act) -> list[str]:
    """The kinds of objects in the files that an act uses; a file that has none is named itself."""
    used = {word.rpartition("/")[2] for step in act.steps for word in step.command.split()}
    return list(dict.fromkeys(kind for name in CLUSTER if name in used for kind in _kinds(name)))


def _kinds(name: str) -> Iterator[str]:
    for each in yaml.safe_load_all(CLUSTER[name]):
        yield each.get("kind", name)


def _times(acts: Sequence[Act], told: dict[int, PodTrace | None]) -> list[list[str]]:
    """Phases, which sum up to the start, then the parts in them."""
    found = [_seconds(told[each.number]) for each in acts]
    names = list(dict.fromkeys(name for each in found for name in each))
    return [[name, *(_milliseconds(each.get(name)) for each in found)] for name in names]


def _seconds(story: PodTrace | None) -> dict[str, float]:
    if story is None or story.took is None:
        return {}
    whole = {"POST to Running": story.took}
    whole |= {each.name: each.seconds for each in phases(story)}
    return whole | {f"  {each.name}": each.seconds for each in parts(story)}


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _words(acts: Sequence[Act]) -> list[list[str]]:
    return [
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
