"""Shows events of components: plain lines, or on a terminal one line per component that is updated."""

import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from podwire.cli.terminal import is_terminal, paint
from podwire.cluster.up import launch
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Event

UP = "\033[{}A"
CLEAR = "\033[2K"
WIDTH = 10
"""Minimum width of the column of names."""


def shown(event: Event, width: int = WIDTH, out: TextIO | None = None) -> str:
    """Formats an event; empty for events that are shown on a terminal only."""
    name, taken = (event.component or "cluster").ljust(width), f"{event.seconds * 1000:6.0f} ms"
    match event.what:
        case "ready" | "stopped":
            return f"{name} {paint(f'{event.what:8}', 'green', out)} {taken}"
        case "up":
            return f"{name} {paint('ready   ', 'green', out)} {taken}"
        case "died":
            return f"{name} {paint('died    ', 'red', out)} {event.detail}; restarting"
    return ""


class Lines:
    """Prints a line for each event."""

    def __init__(self, layout: Layout, out: TextIO = sys.stdout, width: int = WIDTH) -> None:
        self._layout = layout
        self._out = out
        self._width = width

    def __call__(self, event: Event) -> None:
        if line := shown(event, self._width, self._out):
            print(f"  {line}", file=self._out, flush=True)
        if event.what == "failed":
            _print_failure(self._layout, event.detail)


class Live:
    """Updates a line per component until the cluster is up; then prints a line for each event."""

    def __init__(self, layout: Layout, out: TextIO = sys.stdout, width: int = WIDTH) -> None:
        self._lines = Lines(layout, out, width)
        self._out = out
        self._width = width
        self._rows: dict[str, str] = {}
        self._is_over = False

    def __call__(self, event: Event) -> None:
        if self._is_over or not event.component or event.what == "stopped":
            self._is_over = self._is_over or event.what in ("up", "failed", "stopping")
            self._lines(event)
            return
        row = shown(event, self._width, self._out) or f"{event.component.ljust(self._width)} {event.what:8}"
        drawn = len(self._rows)
        self._rows[event.component] = row
        if drawn:
            self._out.write(UP.format(drawn))
        for line in self._rows.values():
            self._out.write(f"{CLEAR}  {line}\n")
        self._out.flush()


def progress(layout: Layout, names: Iterable[str] = (), out: TextIO | None = None) -> Callable[[Event], None]:
    """Returns the reporter that fits the output; `names` are those of the components."""
    width = max((WIDTH, *map(len, names)))
    out = sys.stdout if out is None else out
    return Live(layout, out, width) if is_terminal(out) else Lines(layout, out, width)


def _print_failure(layout: Layout, component: str) -> None:
    """Prints a component that failed, with the end of its log."""
    print(f"podwire up: {component} did not start; the end of {layout.log(component)}:", file=sys.stderr)
    for line in launch.tail(layout, component):
        print(f"  {line}", file=sys.stderr)
