"""The events of a demo, and how its steps are run."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.demo.shell import SECONDS, Ran, Shell
from podwire.cluster.demo.step import Step


@dataclass(frozen=True, slots=True)
class ActStarted:
    """An act begins."""

    number: int
    title: str
    sentence: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step is about to run; `command` is what a user would type."""

    name: str
    sentence: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The result of a step; `shown` are the lines to print."""

    scene: StepStarted
    exit_code: int
    output: str
    shown: Sequence[str]
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of the demo."""

    seconds: float
    memory_bytes: int
    kubeconfig: Path
    visits: Sequence[str]
    """Commands to try, if the cluster is kept."""
    end: str
    """The command that removes it."""
    table: Sequence[str] = ()
    """The comparison of the acts."""


DemoEvent = ActStarted | StepStarted | StepFinished | Summary


class Failed(Exception):
    """The output of a step was not as expected; has the end of the logs."""

    def __init__(self, scene: StepStarted, log: str) -> None:
        super().__init__(f"the step {scene.name!r} did not show what was expected")
        self.log = log


def run_steps(
    shell: Shell, steps: Sequence[Step], log: Callable[[], str], running: contextlib.ExitStack
) -> Iterator[StepStarted | StepFinished]:
    """Yields each step before and after it ran; steps whose variables are unknown are skipped. Raises Failed.

    Background processes end with `running`.
    """
    known: dict[str, str] = {}
    for step in steps:
        if not step.possible(known):
            continue
        command = step.typed(known)
        scene = StepStarted(step.name, step.sentence, _shown(step, command))
        yield scene
        begun = time.perf_counter()
        ran = _run_step(shell, step, command, running)
        taken = (time.perf_counter() - begun) * 1e3
        succeeded = step.succeeded(ran.code, ran.output)
        shown = _worth_showing(step, ran.output) if succeeded else ran.output.splitlines()
        yield StepFinished(scene=scene, exit_code=ran.code, output=ran.output, shown=shown, milliseconds=taken)
        if not succeeded:
            raise Failed(scene, log())
        known |= dict(zip(step.learns, ran.output.split(), strict=False))


def _run_step(shell: Shell, step: Step, command: str, running: contextlib.ExitStack) -> Ran:
    if step.meanwhile:
        return _watch(shell, step)
    return _start_background(shell, step, command, running) if step.stays else shell.run(command)


def _start_background(shell: Shell, step: Step, command: str, running: contextlib.ExitStack) -> Ran:
    """Starts a process, and waits until it has printed the expected text."""
    process = running.enter_context(shell.start(command))
    running.callback(process.terminate)
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    seen = []
    try:
        with shell.signals.waiting():
            for line in process.stdout or ():
                seen.append(line)
                if step.shows in line:
                    threading.Thread(target=_drain, args=(process,), daemon=True).start()
                    return Ran(0, "".join(seen))
    finally:
        timer.cancel()
    return Ran(process.wait(), "".join(seen))


def _drain(process: subprocess.Popen[str]) -> None:
    """Reads and drops further output, so that the process never blocks."""
    with contextlib.suppress(ValueError, OSError):  # the pipe is closed at the end
        for _ in process.stdout or ():
            pass


def _worth_showing(step: Step, output: str) -> list[str]:
    if not step.saves:
        return worth_showing(output, step.since, step.lines)
    Path(step.saves).write_text(output, encoding="utf-8")
    return [f"{step.saves}: {len(output.encode())} bytes"]


def worth_showing(output: str, since: str, count: int) -> list[str]:
    """Returns the lines from the one that begins with `since`; for long output, a count of the rest."""
    lines = output.rstrip("\n").splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(since)), 0)
    rest = lines[first:]
    head = [f"… {first} lines before"] if first else []
    tail = [f"… {len(rest) - count} more lines"] if len(rest) > count else []
    return [*head, *rest[:count], *tail]


def _shown(step: Step, command: str) -> str:
    if step.meanwhile:
        return f"{command} &\n{step.meanwhile}"
    if step.stays:
        return f"{command} &"
    if step.saves:
        return f"{command} > {step.saves}"
    return f"{command}\n{step.then}" if step.then else command


def _watch(shell: Shell, step: Step) -> Ran:
    """Starts a watch; when it has shown the present state, runs the other command; ends when the change is shown."""
    with shell.start(step.command) as watching, _terminated(watching, SECONDS):
        lines = iter(watching.stdout or ())
        with shell.signals.waiting():
            seen = [next(lines, ""), next(lines, "")]  # the header, and the pod as it is
        ran = shell.run(step.meanwhile)
        seen.append(ran.output)
        with shell.signals.waiting():
            for line in lines:
                seen.append(line)
                if step.shows in line:
                    break
    return Ran(ran.code, "".join(seen))


@contextlib.contextmanager
def _terminated(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Terminates the process at the end of the context, or when it takes too long."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.terminate()
