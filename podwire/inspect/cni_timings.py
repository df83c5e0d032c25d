"""How long the plugins of a call take, and what ours spend it on: they tell when they are asked to.

Ours tell the same way through the daemon and without it. Of somebody else's, only the whole is known.
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
"""Until a program of ours began, and from its end; all of it."""


@dataclass(frozen=True, slots=True)
class Step:
    plugin: str
    verb: str
    name: str
    seconds: float
    times: int = 1


class Timings:
    """Stands where `podwire.linux.proc.processes.run` stands, and keeps what each program took."""

    def __init__(self, program: Callable[..., Finished] = run) -> None:
        self._program = program
        self.steps: list[Step] = []

    def run(self, argv: Sequence[str], *, env: dict[str, str], **more: Any) -> Finished:
        begun = time.perf_counter()
        done = self._program(argv, env={**env, TIMINGS: "1"}, **more)
        whole = time.perf_counter() - begun
        told, said = _parted(done.stderr)
        plugin, verb = Path(argv[0]).name, env.get("CNI_COMMAND", "")
        inside = [Step(plugin, verb, name, seconds, times) for name, (seconds, times) in told.items()]
        if inside:
            self.steps.append(Step(plugin, verb, START, max(0.0, whole - sum(step.seconds for step in inside))))
        self.steps += [*sorted(inside, key=lambda step: -step.seconds), Step(plugin, verb, WHOLE, whole)]
        return done._replace(stderr=said)


def _parted(stderr: bytes) -> tuple[dict[str, tuple[float, int]], bytes]:
    """What a plugin told of its time, and what else it said."""
    mark = f"{TIMINGS} ".encode()
    lines = stderr.splitlines(keepends=True)
    told = [json.loads(line.removeprefix(mark)) for line in lines if line.startswith(mark)]
    return (told[-1] if told else {}), b"".join(line for line in lines if not line.startswith(mark))


def rows(steps: Iterable[Step]) -> list[tuple[str, ...]]:
    """A table's, with its head."""
    body = [(step.plugin, step.verb, step.name, str(step.times), f"{step.seconds * 1e3:.2f}") for step in steps]
    return [("PLUGIN", "VERB", "STEP", "TIMES", "MS"), *body]
