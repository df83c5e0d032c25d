"""`podwire demo`: see it work."""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from podwire.cli.main import UserError
from podwire.cluster.demo import Closing, Failed, NoKubectl, NotUp, Played, Scene, play


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave the API server up; says how to reach and stop it")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    show = _json if arguments.output == "json" else _text
    with _stoppable(), contextlib.closing(play(keep=arguments.keep)) as told:
        try:
            show(told, keep=arguments.keep)
        except Failed as error:
            print(f"\npodwire demo: {error}; the end of the server's log:\n{error.log}", file=sys.stderr)
            return 1
        except (NoKubectl, NotUp) as error:
            raise UserError(str(error)) from error
    return 0


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Whoever ends the demo politely gets it to clean up first, as Ctrl-C does."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _text(told: Iterator[Scene | Played | Closing], *, keep: bool) -> None:
    number = 0
    for each in told:
        match each:
            case Scene():
                number += 1
                print(f"\n{number:2}  {each.sentence}")
                for line in each.command.splitlines():
                    print(f"    $ {line}", flush=True)
            case Played():
                for line in _shortened(each.output, each.lines):
                    print(f"      {line}")
                print(f"    {each.milliseconds:.0f} ms", flush=True)
            case Closing():
                _closing(each, number, keep=keep)


def _shortened(output: str, count: int) -> list[str]:
    """The first lines, sentences wrapped, tokens cut."""
    width = shutil.get_terminal_size(fallback=(120, 24)).columns - 6
    lines = output.rstrip("\n").splitlines()
    shown = [part for line in lines[:count] for part in _fitted(line, width)]
    return [*shown, f"… {len(lines) - count} more lines"] if len(lines) > count else shown


def _fitted(line: str, width: int) -> list[str]:
    if len(line) > width and " " not in line:
        return [f"{line[: width - 1]}…"]
    return textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _closing(closing: Closing, steps: int, *, keep: bool) -> None:
    memory, store = f"{closing.memory_bytes / 1e6:.0f} MB", f"{closing.store_bytes / 1e3:.0f} KB"
    print(f"\n{steps} steps in {closing.seconds:.1f} s; the server took {memory} of memory, its store {store}.")
    if keep:
        print(f"It is still up. Next:  kubectl --kubeconfig {closing.kubeconfig} get pods")
        print(f"To stop it:            kill {closing.process} && rm -r {closing.folder}")
    else:
        print("Everything is gone again. Next:  podwire demo --keep")


def _json(told: Iterator[Scene | Played | Closing], *, keep: bool) -> None:
    """Also when a step fails: the steps until then."""
    steps: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    try:
        for each in told:
            match each:
                case Played(scene=scene):
                    steps.append(
                        {
                            "name": scene.name,
                            "sentence": scene.sentence,
                            "command": scene.command,
                            "exitCode": each.exit_code,
                            "milliseconds": round(each.milliseconds, 1),
                            "output": each.output,
                        }
                    )
                case Closing():
                    summary = {
                        "seconds": round(each.seconds, 3),
                        "memoryBytes": each.memory_bytes,
                        "storeBytes": each.store_bytes,
                    }
                    if keep:
                        summary |= {"kubeconfig": str(each.kubeconfig), "process": each.process}
    finally:
        print(json.dumps({"ok": bool(summary), "steps": steps, **summary}, indent=2))
