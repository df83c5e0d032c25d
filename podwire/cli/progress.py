"""What happens to a cluster's components, for people: plain lines, or on a terminal a line for each that changes."""

import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from podwire.cluster.up import launch
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Event

UP = "\033[{}A"
CLEAR = "\033[2K"
WIDTH = 10
"""Of the column of names, at least."""


def shown(event: Event, width: int = WIDTH) -> str:
    """An event in words; empty for what is shown on a terminal only."""
    name, taken = (event.component or "cluster").ljust(width), f"{event.seconds * 1000:6.0f} ms"
    match event.what:
        case "ready" | "stopped":
            return f"{name} {event.what:8} {taken}"
        case "up":
            return f"{name} {'ready':8} {taken}"
        case "died":
            return f"{name} {'died':8} {event.detail}; it is started again"
    return ""


class Lines:
    """A line for each thing that happens."""

    def __init__(self, layout: Layout, out: TextIO = sys.stdout, width: int = WIDTH) -> None:
        self._layout = layout
        self._out = out
        self._width = width

    def __call__(self, event: Event) -> None:
        if line := shown(event, self._width):
            print(f"  {line}", file=self._out, flush=True)
        if event.what == "failed":
            _tell_failure(self._layout, event.detail)


class Live:
    """A line for each component, written over as it gets on, until the cluster is up; then a line for each thing."""

    def __init__(self, layout: Layout, out: TextIO = sys.stdout, width: int = WIDTH) -> None:
        self._lines = Lines(layout, out, width)
        self._out = out
        self._width = width
        self._rows: dict[str, str] = {}
        self._settled = False

    def __call__(self, event: Event) -> None:
        if self._settled or not event.component or event.what == "stopped":
            self._settled = self._settled or event.what in ("up", "failed", "stopping")
            self._lines(event)
            return
        row = shown(event, self._width) or f"{event.component.ljust(self._width)} {event.what:8}"
        drawn = len(self._rows)
        self._rows[event.component] = row
        if drawn:
            self._out.write(UP.format(drawn))
        for line in self._rows.values():
            self._out.write(f"{CLEAR}  {line}\n")
        self._out.flush()


def progress(layout: Layout, names: Iterable[str] = ()) -> Callable[[Event], None]:
    """What fits where the output goes; names are those of the components."""
    width = max((WIDTH, *map(len, names)))
    return Live(layout, width=width) if sys.stdout.isatty() else Lines(layout, width=width)


def _tell_failure(layout: Layout, component: str) -> None:
    """A component that failed for good, with the end of its log."""
    print(f"podwire up: {component} does not come up; the end of {layout.log(component)}:", file=sys.stderr)
    for line in launch.tail(layout, component):
        print(f"  {line}", file=sys.stderr)
