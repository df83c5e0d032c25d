"""`podwire demo`: plays the demo."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from podwire.cli.main import UserError
from podwire.cli.terminal import ProgressLine, paint
from podwire.cluster.demo import ActStarted, DemoOptions, StepFinished, StepStarted, Summary, play, play_api
from podwire.cluster.demo.api_server import NotUp
from podwire.cluster.demo.demo_cluster import NotCleared
from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.demo.step_runner import DemoEvent, Failed
from podwire.cluster.kubectl import NoKubectl

INDENT = 6
ACTS = 5
CLUSTER, API = "cluster", "api"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=(CLUSTER, API),
        default=CLUSTER,
        help="a whole cluster in five acts, or a tour of the API server (default: %(default)s)",
    )
    parser.add_argument(
        "--act", type=int, choices=range(1, ACTS + 1), default=0, metavar="N", help="play only this act (1 to 5)"
    )
    parser.add_argument("--step", action="store_true", help="wait for the Enter key before each step")
    parser.add_argument("--keep", action="store_true", help="keep it running, and print how to remove it")
    parser.add_argument(
        "--format",
        choices=("text", "mermaid", "html"),
        default="text",
        help="format of diagrams; html is written to files in this directory (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="json: all steps at the end (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.what == CLUSTER and os.geteuid() != 0:
        raise UserError("needs root, for namespaces, links and mounts; `podwire demo api` does not")
    if arguments.step and (arguments.output == "json" or not sys.stdin.isatty()):
        raise UserError("--step waits for the Enter key: it needs a terminal, and text as output")
    if arguments.what == API and arguments.act:
        raise UserError("--act is for the cluster demo: the tour of the API server has no acts")
    options = DemoOptions(only=arguments.act, keep=arguments.keep, form=arguments.format, columns=_columns())
    show = _json if arguments.output == "json" else _text
    with (
        SignalGuard() as signals,
        contextlib.closing((play_api if arguments.what == API else play)(options, signals)) as events,
    ):
        try:
            if arguments.step:
                _text(_paused(events, signals), keep=arguments.keep, step=True)
            else:
                show(events, keep=arguments.keep)
        except Failed as error:
            print(f"\npodwire demo: {error}; the end of the logs:\n{error.log}", file=sys.stderr)
            return 1
        except (NoKubectl, NotUp, NotCleared) as error:
            raise UserError(str(error)) from error
    return signals.code


def _columns() -> int:
    return shutil.get_terminal_size(fallback=(140, 24)).columns - INDENT


def _text(events: Iterator[DemoEvent], *, keep: bool, step: bool = False) -> None:
    number, progress = 0, ProgressLine(sys.stdout)
    for event in events:
        match event:
            case ActStarted():
                title = paint(f"Act {event.number}: {event.title}", "bold")
                print(f"\n{'':=<{_columns() + INDENT}}\n{title}\n{event.sentence}")
            case StepStarted():
                number += 1
                print(f"\n{number:2}  {event.sentence}")
                for line in event.command.splitlines():
                    print(f"    {paint(f'$ {line}', 'cyan')}", flush=True)
                if not step:
                    progress.show(f"    running step {number} …", at_once=True)
            case StepFinished():
                progress.clear()
                for line in event.shown:
                    print("\n".join(f"{'':{INDENT}}{part}".rstrip() for part in _fitted(line, _columns())))
                print(f"    {paint(f'{event.milliseconds:.0f} ms', 'dim')}", flush=True)
            case Summary():
                _closing(event, number, keep=keep)


def _paused(events: Iterator[DemoEvent], signals: SignalGuard) -> Iterator[DemoEvent]:
    """Waits for the Enter key after each step is announced, and before it runs; end of input continues without."""
    waits = True
    for event in events:
        yield event
        if waits and isinstance(event, StepStarted):
            print(f"    {paint('Enter runs it, Ctrl-C ends the demo', 'dim')}", end=" ", flush=True)
            with signals.waiting():
                waits = bool(sys.stdin.readline())


def _fitted(line: str, width: int) -> list[str]:
    """Wraps sentences, and cuts tables and tokens."""
    if len(line) > width and (" " not in line or "   " in line.strip()):
        return [f"{line[: width - 1]}…"]
    return textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _closing(closing: Summary, steps: int, *, keep: bool) -> None:
    if closing.table:
        print(f"\n{'':=<{_columns() + INDENT}}\nComparison of the acts in this run:\n")
        print("\n".join(closing.table))
    memory = f"{closing.memory_bytes / 1e6:.0f} MB"
    print(f"\n{steps} steps in {closing.seconds:.1f} s; all processes used {memory} of memory.")
    if keep:
        print("It is still running. Next:")
        for visit in closing.visits:
            print(f"  {_here(visit)}")
        print(f"To remove it:\n  {_here(closing.end)}")
    else:
        print("Everything was removed. Next:  podwire demo --keep")


def _here(command: str) -> str:
    """Returns the command as it can be typed in this shell, where podwire may not be on PATH."""
    if command.startswith("podwire ") and shutil.which("podwire") is None:
        return f"{os.path.relpath(sys.argv[0])} {command.removeprefix('podwire ')}"
    return command


def _json(events: Iterator[DemoEvent], *, keep: bool) -> None:
    """Prints JSON also after a failed step, with the steps until then."""
    steps: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    try:
        for event in events:
            match event:
                case StepFinished():
                    steps.append(_step(event))
                case Summary():
                    summary = {"seconds": round(event.seconds, 3), "memoryBytes": event.memory_bytes}
                    summary |= {"table": list(event.table)} if event.table else {}
                    if keep:
                        summary |= {"kubeconfig": str(event.kubeconfig), "next": event.visits, "remove": event.end}
    finally:
        print(json.dumps({"ok": bool(summary), "steps": steps, **summary}, indent=2))


def _step(played: StepFinished) -> dict[str, Any]:
    scene = played.scene
    return {
        "name": scene.name,
        "sentence": scene.sentence,
        "command": scene.command,
        "exitCode": played.exit_code,
        "milliseconds": round(played.milliseconds, 1),
        "output": played.output,
    }
