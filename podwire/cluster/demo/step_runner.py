"""What a demo tells while it is played, and how its steps are played."""

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
    """A step that is about to be played; `command` is what a person would type."""

    name: str
    sentence: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """How it went; of the output, these lines are worth showing."""

    scene: StepStarted
    exit_code: int
    output: str
    shown: Sequence[str]
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How it went, all in all."""

    seconds: float
    memory_bytes: int
    kubeconfig: Path
    visits: Sequence[str]
    """Commands for who keeps it up."""
    end: str
    """The command that removes it."""
    table: Sequence[str] = ()
    """How the acts compare."""


DemoEvent = ActStarted | StepStarted | StepFinished | Summary


class Failed(Exception):
    """A step did not do what it promises; carries the end of the logs."""

    def __init__(self, scene: StepStarted, log: str) -> None:
        super().__init__(f"the step {scene.name!r} did not do what it promises")
        self.log = log


def played(
    shell: Shell, steps: Sequence[Step], log: Callable[[], str], running: contextlib.ExitStack
) -> Iterator[StepStarted | StepFinished]:
    """Each step before and after; those that need what nobody could learn are left out. What stays in the background
    ends with `running`. Raises Failed."""
    known: dict[str, str] = {}
    for step in steps:
        if not step.possible(known):
            continue
        command = step.typed(known)
        scene = StepStarted(step.name, step.sentence, _shown(step, command))
        yield scene
        begun = time.perf_counter()
        ran = _ran(shell, step, command, running)
        taken = (time.perf_counter() - begun) * 1e3
        kept = step.kept(ran.code, ran.output)
        shown = _worth_showing(step, ran.output) if kept else ran.output.splitlines()
        yield StepFinished(scene=scene, exit_code=ran.code, output=ran.output, shown=shown, milliseconds=taken)
        if not kept:
            raise Failed(scene, log())
        known |= dict(zip(step.learns, ran.output.split(), strict=False))


def _ran(shell: Shell, step: Step, command: str, running: contextlib.ExitStack) -> Ran:
    if step.meanwhile:
        return _watch(shell, step)
    return _stay(shell, step, command, running) if step.stays else shell.run(command)


def _stay(shell: Shell, step: Step, command: str, running: contextlib.ExitStack) -> Ran:
    """Start it, and wait until it has shown what it promises."""
    process = running.enter_context(shell.start(command))
    running.callback(process.terminate)
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    seen = []
    try:
        with shell.stops.waiting():
            for line in process.stdout or ():
                seen.append(line)
                if step.shows in line:
                    threading.Thread(target=_drain, args=(process,), daemon=True).start()
                    return Ran(0, "".join(seen))
    finally:
        timer.cancel()
    return Ran(process.wait(), "".join(seen))


def _drain(process: subprocess.Popen[str]) -> None:
    """Nobody reads what it says from now on, and it must not wait for anybody."""
    with contextlib.suppress(ValueError, OSError):  # the pipe is closed at the end
        for _ in process.stdout or ():
            pass


def _worth_showing(step: Step, output: str) -> list[str]:
    if not step.saves:
        return worth_showing(output, step.since, step.lines)
    Path(step.saves).write_text(output, encoding="utf-8")
    return [f"{step.saves}: {len(output.encode())} bytes"]


def worth_showing(output: str, since: str, count: int) -> list[str]:
    """The lines from the one that begins with `since`; of what is too much, how much it is."""
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
    """Start the watch; when it shows the present, give the other command; end it when it shows the change."""
    with shell.start(step.command) as watching, _ended(watching, SECONDS):
        lines = iter(watching.stdout or ())
        with shell.stops.waiting():
            seen = [next(lines, ""), next(lines, "")]  # the columns, and the pod as it is
        ran = shell.run(step.meanwhile)
        seen.append(ran.output)
        with shell.stops.waiting():
            for line in lines:
                seen.append(line)
                if step.shows in line:
                    break
    return Ran(ran.code, "".join(seen))


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """The process ends with the context, or when it takes too long."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.terminate()
