"""Measures the plugins of a call, and the steps of ours: they report them when TIMINGS is set in their environment.

Ours report the same way with and without the daemon. For other plugins, only the total is known.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.cniplugins.skeleton import TIMINGS
from podwire.linux.proc.processes import Finished, run

START, WHOLE = "start", "whole"
"""Time until a program of ours began and after its end; the total."""


@dataclass(frozen=True, slots=True)
class Step:
    plugin: str
    verb: str
    name: str
    seconds: float
    times: int = 1


class Timings:
    """Replaces `podwire.linux.proc.processes.run`, and measures each program."""

    def __init__(self, program: Callable[..., Finished] = run) -> None:
        self._program = program
        self.steps: list[Step] = []

    def run(self, argv: Sequence[str], *, env: dict[str, str], **more: Any) -> Finished:
        begun = time.perf_counter()
        done = self._program(argv, env={**env, TIMINGS: "1"}, **more)
        whole = time.perf_counter() - begun
        reported, stderr = _parted(done.stderr)
        plugin, verb = Path(argv[0]).name, env.get("CNI_COMMAND", "")
        inside = [Step(plugin, verb, name, seconds, times) for name, (seconds, times) in reported.items()]
        if inside:
            self.steps.append(Step(plugin, verb, START, max(0.0, whole - sum(step.seconds for step in inside))))
        self.steps += [*sorted(inside, key=lambda step: -step.seconds), Step(plugin, verb, WHOLE, whole)]
        return done._replace(stderr=stderr)


def _parted(stderr: bytes) -> tuple[dict[str, tuple[float, int]], bytes]:
    """Separates the timings of a plugin from its other output."""
    mark = f"{TIMINGS} ".encode()
    lines = stderr.splitlines(keepends=True)
    timings = [json.loads(line.removeprefix(mark)) for line in lines if line.startswith(mark)]
    return (timings[-1] if timings else {}), b"".join(line for line in lines if not line.startswith(mark))


def rows(steps: Iterable[Step]) -> list[tuple[str, ...]]:
    """Returns a table with its header."""
    body = [(step.plugin, step.verb, step.name, str(step.times), f"{step.seconds * 1e3:.2f}") for step in steps]
    return [("PLUGIN", "VERB", "STEP", "TIMES", "MS"), *body]
