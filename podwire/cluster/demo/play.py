"""Plays the tour: tells each step before it is played, and how it went."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.demo import kubectl
from podwire.cluster.demo.kubectl import SECONDS, Kubectl, Ran
from podwire.cluster.demo.stage import staged
from podwire.cluster.demo.tour import Step, steps
from podwire.cluster.processes import memory_of


@dataclass(frozen=True, slots=True)
class Scene:
    """A step that is about to be played; `command` is what a person would type."""

    name: str
    sentence: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How it went; `lines` of the output are worth showing."""

    scene: Scene
    exit_code: int
    output: str
    lines: int
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How it went, all in all."""

    seconds: float
    memory_bytes: int
    store_bytes: int
    kubeconfig: Path
    folder: Path
    process: int


class Failed(Exception):
    """A step did not do what it promises; carries the end of the server's log."""

    def __init__(self, scene: Scene, log: str) -> None:
        super().__init__(f"the step {scene.name!r} did not do what it promises")
        self.log = log


def play(*, keep: bool) -> Generator[Scene | Played | Closing, None, None]:
    """Each step before and after, then the closing. Raises Failed, NoKubectl, NotUp; the stage is gone by then."""
    begin = time.perf_counter()
    with staged(keep=keep) as stage:
        tool = kubectl.find(stage.folder)
        start = Scene(
            "start",
            "An API server starts, with a new certificate authority and an empty SQLite store.",
            f"{stage.command} &\nexport KUBECONFIG={stage.kubeconfig}",
        )
        yield start
        stage.wait_until_up(begin)
        output = f"{stage.url} is ready after {stage.ready_ms:.0f} ms"
        yield Played(scene=start, exit_code=0, output=output, lines=1, milliseconds=stage.ready_ms)
        for step in steps(tool.minor):
            scene = Scene(step.name, step.sentence, _typed(step))
            yield scene
            begun = time.perf_counter()
            ran = _watch(tool, step) if step.meanwhile else tool.run(*step.command)
            taken = (time.perf_counter() - begun) * 1e3
            yield Played(scene=scene, exit_code=ran.code, output=ran.output, lines=step.lines, milliseconds=taken)
            if (ran.code != 0) is not step.refused or step.shows not in ran.output:
                raise Failed(scene, stage.log_tail())
        yield Closing(
            seconds=time.perf_counter() - begin,
            memory_bytes=memory_of(stage.process.pid),
            store_bytes=stage.store_bytes(),
            kubeconfig=stage.kubeconfig,
            folder=stage.folder,
            process=stage.process.pid,
        )


def _typed(step: Step) -> str:
    first = "kubectl " + " ".join(step.command)
    return f"{first} &\nkubectl {' '.join(step.meanwhile)}" if step.meanwhile else first


def _watch(tool: Kubectl, step: Step) -> Ran:
    """Start the watch; when it shows the present, give the other command; end it when it shows the change."""
    with tool.start(*step.command) as watching, _ended(watching, SECONDS):
        lines = iter(watching.stdout or ())
        seen = [next(lines, ""), next(lines, "")]  # the columns, and the pod as it is
        ran = tool.run(*step.meanwhile)
        seen.append(ran.output)
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
