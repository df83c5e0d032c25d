"""`podwire demo`: see it work."""

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
from podwire.cluster.demo import ActStarted, DemoOptions, StepFinished, StepStarted, Summary, play, play_api
from podwire.cluster.demo.api_server import NotUp
from podwire.cluster.demo.demo_cluster import NotCleared
from podwire.cluster.demo.shell import NoKubectl
from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.demo.step_runner import DemoEvent, Failed

INDENT = 6
ACTS = 5
CLUSTER, API = "cluster", "api"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=(CLUSTER, API),
        default=CLUSTER,
        help="a whole cluster in five acts, one for each flow, or a tour of the API server alone (%(default)s)",
    )
    parser.add_argument(
        "--act", type=int, choices=range(1, ACTS + 1), default=0, metavar="N", help="only this act of the five"
    )
    parser.add_argument("--keep", action="store_true", help="leave it up; says how to go on and how to remove it")
    parser.add_argument(
        "--format",
        choices=("text", "mermaid", "html"),
        default="text",
        help="how diagrams are drawn (%(default)s); html goes into files here, one for each act",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json: every step at the end (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.what == CLUSTER and os.geteuid() != 0:
        raise UserError("needs root, for namespaces, links and mounts; `podwire demo api` does not")
    if arguments.what == API and arguments.act:
        raise UserError("--act is about the cluster: the tour of the API server has no acts")
    wish = DemoOptions(only=arguments.act, keep=arguments.keep, form=arguments.format, columns=_columns())
    show = _json if arguments.output == "json" else _text
    with SignalGuard() as stops, contextlib.closing((play_api if arguments.what == API else play)(wish, stops)) as told:
        try:
            show(told, keep=arguments.keep)
        except Failed as error:
            print(f"\npodwire demo: {error}; the end of the logs:\n{error.log}", file=sys.stderr)
            return 1
        except (NoKubectl, NotUp, NotCleared) as error:
            raise UserError(str(error)) from error
    return stops.code


def _columns() -> int:
    return shutil.get_terminal_size(fallback=(140, 24)).columns - INDENT


def _text(told: Iterator[DemoEvent], *, keep: bool) -> None:
    number = 0
    for event in told:
        match event:
            case ActStarted():
                print(f"\n{'':=<{_columns() + INDENT}}\nAct {event.number}: {event.title}\n{event.sentence}")
            case StepStarted():
                number += 1
                print(f"\n{number:2}  {event.sentence}")
                for line in event.command.splitlines():
                    print(f"    $ {line}", flush=True)
            case StepFinished():
                for line in event.shown:
                    print("\n".join(f"{'':{INDENT}}{part}".rstrip() for part in _fitted(line, _columns())))
                print(f"    {event.milliseconds:.0f} ms", flush=True)
            case Summary():
                _closing(event, number, keep=keep)


def _fitted(line: str, width: int) -> list[str]:
    """Sentences are wrapped, tables and tokens cut."""
    if len(line) > width and (" " not in line or "   " in line.strip()):
        return [f"{line[: width - 1]}…"]
    return textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _closing(closing: Summary, steps: int, *, keep: bool) -> None:
    if closing.table:
        print(f"\n{'':=<{_columns() + INDENT}}\nThe acts side by side, as they went just now:\n")
        print("\n".join(closing.table))
    memory = f"{closing.memory_bytes / 1e6:.0f} MB"
    print(f"\n{steps} steps in {closing.seconds:.1f} s; all processes together took {memory} of memory.")
    if keep:
        print("It is still up. Next:")
        for visit in closing.visits:
            print(f"  {_here(visit)}")
        print(f"To remove it:\n  {_here(closing.end)}")
    else:
        print("Everything is gone again. Next:  podwire demo --keep")


def _here(command: str) -> str:
    """As it can be typed in this very shell, which may not know where podwire is."""
    if command.startswith("podwire ") and shutil.which("podwire") is None:
        return f"{os.path.relpath(sys.argv[0])} {command.removeprefix('podwire ')}"
    return command


def _json(told: Iterator[DemoEvent], *, keep: bool) -> None:
    """Also when a step fails: the steps until then."""
    steps: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    try:
        for event in told:
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
