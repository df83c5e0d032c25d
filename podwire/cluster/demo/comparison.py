"""Compares the acts of a run: the time of each phase, the objects applied; then properties that hold in any run."""

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
ALWAYS = "Not visible in one run, but tested:"


def comparison(acts: Sequence[Act], directory: Path, width: int) -> list[str]:
    """Returns the lines of a table with a column for each act."""
    pod_traces = PodTraces()
    pod_traces.learn(Reader(directory).more())
    traces = {act.number: pod_traces.find(NAMESPACE, act.pod) for act in acts}
    head = ["", *(f"{act.number}. {act.title}" for act in acts)]
    measured = [head, *_times(acts, traces), ["objects applied", *(", ".join(written(act)) for act in acts)]]
    always = _words(acts)
    first = max(len(row[0]) for row in (*measured, *always))
    column = max(NARROWEST, (width - first) // max(1, len(acts)) - len(GAP))
    lines = [[line for row in rows for line in _wrapped(row, first, column)] for rows in (measured, always)]
    return [*lines[0], "", ALWAYS, "", *lines[1]]


def written(act: Act) -> list[str]:
    """Returns the kinds of objects in the files of an act; a file without objects is named itself."""
    used = {word.rpartition("/")[2] for step in act.steps for word in step.command.split()}
    return list(dict.fromkeys(kind for name in CLUSTER if name in used for kind in _kinds(name)))


def _kinds(name: str) -> Iterator[str]:
    for document in yaml.safe_load_all(CLUSTER[name]):
        yield document.get("kind", name)


def _times(acts: Sequence[Act], traces: dict[int, PodTrace | None]) -> list[list[str]]:
    """Returns the phases, which add up to the start, then their parts."""
    columns = [_seconds(traces[act.number]) for act in acts]
    names = list(dict.fromkeys(name for times in columns for name in times))
    return [[name, *(_milliseconds(times.get(name)) for times in columns)] for name in names]


def _seconds(trace: PodTrace | None) -> dict[str, float]:
    if trace is None or trace.took is None:
        return {}
    whole = {"POST to Running": trace.took}
    whole |= {phase.name: phase.seconds for phase in phases(trace)}
    return whole | {f"  {part.name}": part.seconds for part in parts(trace)}


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _words(acts: Sequence[Act]) -> list[list[str]]:
    return [
        ["scheduler knows", *(act.scheduler for act in acts)],
        ["if the plugin is down", *(act.dies for act in acts)],
    ]


def _wrapped(row: Sequence[str], first: int, column: int) -> list[str]:
    cells = [[row[0]], *(textwrap.wrap(cell, column) or [""] for cell in row[1:])]
    height = max(map(len, cells))
    lines = []
    for number in range(height):
        parts_ = [cell[number] if number < len(cell) else "" for cell in cells]
        lines.append(GAP.join([parts_[0].ljust(first), *(part.ljust(column) for part in parts_[1:])]).rstrip())
    return lines
