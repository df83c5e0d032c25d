"""`podwire trace`: the way of a pod, drawn as it went."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from podwire.cli.main import UserError
from podwire.cli.trace_otlp import send
from podwire.cli.trace_shown import as_json, diff_as_json, listed
from podwire.cluster.tracing import CollectorOptions, catch_up
from podwire.trace import tables
from podwire.trace.check import annotated, brief, check
from podwire.trace.diff import diff
from podwire.trace.flow import FLOWS, load
from podwire.trace.follow import follow
from podwire.trace.html import html
from podwire.trace.mermaid import mermaid
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import PodTrace, PodTraces, shorten
from podwire.trace.record import Record
from podwire.trace.redact import redacted
from podwire.trace.segments import Reader
from podwire.trace.text import text

FORMATS = ("text", "mermaid", "json", "html")
SLOWEST = 5
WATCHERS = 10
"""Of 19: how much nicer to others."""


def configure(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which pod; without any, a list of those that were seen")
    which.add_argument("pod", nargs="?", metavar="[NAMESPACE/]POD", help="the newest pod of that name, or a pod's UID")
    which.add_argument("-n", "--namespace", default="default", help="where a POD without one is (%(default)s)")
    which.add_argument("--last", action="store_true", help="the pod that was started last")
    which.add_argument(
        "--slow", action="store_true", help="the slowest start of those kept, after a table of the slowest"
    )
    which.add_argument("--top", type=_count, default=SLOWEST, metavar="N", help="rows of that table (%(default)s)")
    what = parser.add_argument_group("what to do with it; without any, it is drawn")
    what.add_argument("--follow", action="store_true", help="wait for the pod and draw on while things happen")
    what.add_argument("--check", choices=FLOWS, metavar="FLOW", help=f"compare with a flow: {', '.join(FLOWS)}")
    what.add_argument(
        "--diff", nargs=2, metavar=("A", "B"), help="two pods side by side: why is the start of B slower?"
    )
    what.add_argument("--otlp", metavar="URL", help="send it to a collector of OpenTelemetry: http://HOST:4318")
    how = parser.add_argument_group("how")
    how.add_argument("--format", choices=FORMATS, default="text", help="html is one file with all in it (%(default)s)")
    how.add_argument("-o", "--output", dest="format", choices=FORMATS, help="the same as --format")
    how.add_argument("--brief", action="store_true", help="only the arrows of a flow, not all that happened")
    how.add_argument(
        "--flow", choices=FLOWS, default="pod", metavar="FLOW", help="which, and whose notes (%(default)s)"
    )
    how.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="of text (%(default)s)")
    how.add_argument("--raw", action="store_true", help="with secrets, if the collector kept them; only for root")
    how.add_argument("--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)")


def _count(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of rows")
    return int(given)


def run(arguments: argparse.Namespace) -> int:
    _refuse(arguments)
    directory = _directory(arguments.prefix)
    if arguments.follow and arguments.pod:
        return _follow(directory, *_named(arguments, arguments.pod), arguments)
    catch_up(CollectorOptions.below(arguments.prefix))
    traces = _read(directory)
    if arguments.diff:
        return _diff(traces, arguments)
    if not (arguments.pod or arguments.last or arguments.slow):
        return _list(traces, arguments.format)
    trace = _chosen(traces, arguments)
    if arguments.follow:
        return _follow(directory, trace.namespace, trace.name, arguments)
    if arguments.check:
        return _check(trace, arguments.check, arguments.format)
    if arguments.otlp:
        return send(arguments.otlp, trace, traces.records(trace))
    if arguments.slow and arguments.format == "text":
        print(tables.slowest(_slowest(traces)[: arguments.top]), end="\n\n")
    print(_shown(traces, trace, arguments), end="")
    return 0


def _refuse(arguments: argparse.Namespace) -> None:
    """What does not go together."""
    chosen = [bool(value) for value in (arguments.pod, arguments.last, arguments.slow, arguments.diff)]
    todo = [bool(value) for value in (arguments.follow, arguments.check, arguments.diff, arguments.otlp)]
    if arguments.raw and os.geteuid() != 0:
        raise UserError("--raw shows secrets, and only root may see them")
    if sum(chosen) > 1:
        raise UserError("POD, --last, --slow and --diff choose pods each in its own way: only one of them")
    if sum(todo) > 1:
        raise UserError("--follow, --check, --diff and --otlp do different things: only one of them")
    if any(todo) and not any(chosen):
        raise UserError("--follow, --check and --otlp need a POD, --last or --slow")
    if arguments.brief and (arguments.format == "json" or any(todo)):
        raise UserError("--brief is about drawing: it goes with none of --follow, --check, --diff, --otlp and json")
    if arguments.follow and arguments.format != "text":
        raise UserError("--follow draws text")
    if (arguments.check or arguments.diff) and arguments.format not in ("text", "json"):
        raise UserError("--check and --diff tell text or json")


def _directory(prefix: Path) -> Path:
    """Where the records are, if they may be read."""
    directory = CollectorOptions.below(prefix).directory
    try:
        os.listdir(directory)  # noqa: PTH208 - whether it can be listed is the question
    except FileNotFoundError as error:
        raise UserError(f"nothing was recorded below {prefix}: there is no {directory}") from error
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}") from error
    return directory


def _read(directory: Path) -> PodTraces:
    """All that was recorded; what of it is broken is named."""
    traces, reader = PodTraces(), Reader(directory)
    try:
        traces.learn(reader.more())
    except OSError as error:
        raise UserError(str(error)) from error
    for trouble in reader.troubles():
        print(f"podwire trace: {plain(trouble)}", file=sys.stderr)
    return traces


def _named(arguments: argparse.Namespace, pod: str) -> tuple[str, str]:
    namespace, _, name = pod.rpartition("/")
    return namespace or arguments.namespace, name


def _chosen(traces: PodTraces, arguments: argparse.Namespace) -> PodTrace:
    if arguments.pod:
        return _found(traces, arguments, arguments.pod)
    if arguments.slow:
        if not (starts := _slowest(traces)):
            raise UserError("no pod that was seen runs yet, so none was slow")
        return starts[0]
    if not (told := traces.all()):
        raise UserError("no pod was seen yet")
    return told[-1]


def _found(traces: PodTraces, arguments: argparse.Namespace, pod: str) -> PodTrace:
    namespace, name = _named(arguments, pod)
    trace = traces.find(namespace, name) or traces.find_id(pod)
    if trace is None:
        raise UserError(plain(f"no pod {namespace}/{name} was seen; `podwire trace` lists those that were"))
    return trace


def _slowest(traces: PodTraces) -> list[PodTrace]:
    return sorted((trace for trace in traces.all() if trace.took is not None), key=lambda trace: -(trace.took or 0.0))


def _shown(traces: PodTraces, trace: PodTrace, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        return as_json(_records(traces, trace, raw=arguments.raw))
    flow = load(arguments.flow)
    drawn = shorten(annotated(brief(trace, flow) if arguments.brief else trace, flow))
    ways: dict[str, Callable[[], str]] = {
        "text": lambda: text(drawn, _width(), colours=_colours(arguments)),
        "mermaid": lambda: mermaid(drawn),
        "html": lambda: html(drawn, _records(traces, trace, raw=arguments.raw), trace),
    }
    return ways[arguments.format]()


def _records(traces: PodTraces, trace: PodTrace, *, raw: bool) -> list[Record]:
    found = traces.records(trace)
    return found if raw else [msgspec.structs.replace(record, detail=redacted(record.detail)) for record in found]


def _width() -> int:
    return shutil.get_terminal_size((140, 50)).columns


def _colours(arguments: argparse.Namespace) -> bool:
    if arguments.color == "auto":
        return (
            bool(sys.stdout)
            and sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
    return bool(arguments.color == "always")


def _list(traces: PodTraces, form: str) -> int:
    told = traces.all()
    if form == "json":
        print(json.dumps([listed(pod_trace) for pod_trace in told], indent=2))
    elif form == "text":
        print(tables.seen(told) if told else "no pod was seen yet")
    else:
        raise UserError(f"--format {form} draws one pod: name a POD, --last or --slow")
    return 0


def _check(trace: PodTrace, name: str, form: str) -> int:
    findings = check(trace, load(name))
    if form == "json":
        print(json.dumps([msgspec.to_builtins(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(plain(str(finding)))
        about = plain(f"{trace.namespace}/{trace.name}")
        print(f"pod {about}: {len(findings) or 'no'} deviations from the {name} flow")
    return 1 if findings else 0


def _diff(traces: PodTraces, arguments: argparse.Namespace) -> int:
    first, second = (_found(traces, arguments, pod) for pod in arguments.diff)
    told = diff(first, second)
    if arguments.format == "json":
        print(diff_as_json(told))
    else:
        print(tables.compared(told, colours=_colours(arguments)), end="")
    return 0


def _follow(directory: Path, namespace: str, name: str, arguments: argparse.Namespace) -> int:
    """Until somebody ends it. Who watches makes way for those who are watched."""
    os.nice(WATCHERS)

    async def draw() -> None:
        async for line in follow(directory, namespace, name, _width(), colours=_colours(arguments)):
            print(line, flush=True)

    asyncio.run(draw())
    raise UserError(f"{directory} is gone, and with it what was to be followed")
