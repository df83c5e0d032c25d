"""`podwire trace`: draws the start of a pod as it was recorded."""

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
from podwire.cli.options import add_prefix
from podwire.cli.trace_output import as_json, diff_as_json, listed, send
from podwire.cluster.tracing import CollectorOptions, catch_up
from podwire.linux.fs.trust import check_directory
from podwire.trace import tables
from podwire.trace.check import annotated, brief, check
from podwire.trace.diff import diff
from podwire.trace.flow import FLOWS, load
from podwire.trace.follow import follow
from podwire.trace.html import html
from podwire.trace.mermaid import mermaid
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import PodTrace, PodTraces, shorten
from podwire.trace.segments import Reader
from podwire.trace.text import text

FORMATS = ("text", "mermaid", "json", "html")
SLOWEST = 5
FOLLOW_NICENESS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which pod (default: list all recorded pods)")
    which.add_argument("pod", nargs="?", metavar="[NAMESPACE/]POD", help="newest pod of that name, or UID of a pod")
    which.add_argument("-n", "--namespace", default="default", help="namespace of POD (default: %(default)s)")
    which.add_argument("--last", action="store_true", help="the pod that was created last")
    which.add_argument("--slow", action="store_true", help="the slowest start, after a table of the slowest")
    which.add_argument(
        "--top", type=_count, default=SLOWEST, metavar="N", help="rows of that table (default: %(default)s)"
    )
    what = parser.add_argument_group("action (default: draw it)")
    what.add_argument("--follow", action="store_true", help="wait for the pod, and draw calls as they happen")
    what.add_argument(
        "--check", choices=FLOWS, metavar="FLOW", help=f"compare with an expected flow: {', '.join(FLOWS)}"
    )
    what.add_argument("--diff", nargs=2, metavar=("A", "B"), help="compare two pods: why is the start of B slower?")
    what.add_argument("--otlp", metavar="URL", help="send it to an OpenTelemetry collector: http://HOST:4318")
    how = parser.add_argument_group("format")
    how.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="output format; html is one self-contained file (default: %(default)s)",
    )
    how.add_argument("-o", "--output", dest="format", choices=FORMATS, help="same as --format")
    how.add_argument("--brief", action="store_true", help="only the arrows of the flow, not all calls")
    how.add_argument(
        "--flow",
        choices=FLOWS,
        default="pod",
        metavar="FLOW",
        help="flow for --brief and for notes (default: %(default)s)",
    )
    how.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours of text (default: %(default)s)"
    )
    add_prefix(how)


def _count(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given!r} is not a number of rows")
    return int(given)


def run(arguments: argparse.Namespace) -> int:
    _refuse(arguments)
    directory = _directory(arguments.prefix)
    if arguments.follow and arguments.pod:
        return _follow(directory, *_pod_name(arguments, arguments.pod), arguments)
    catch_up(CollectorOptions.below(arguments.prefix))
    traces = _read(directory)
    if arguments.diff:
        first, second = (_found(traces, arguments, pod) for pod in arguments.diff)
        comparison = diff(first, second)
        if arguments.format == "json":
            print(diff_as_json(comparison))
        else:
            print(tables.compared(comparison, colours=_colours(arguments)), end="")
        return 0
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
    """Rejects options that cannot be combined."""
    chosen = [bool(value) for value in (arguments.pod, arguments.last, arguments.slow, arguments.diff)]
    todo = [bool(value) for value in (arguments.follow, arguments.check, arguments.diff, arguments.otlp)]
    if sum(chosen) > 1:
        raise UserError("use only one of POD, --last, --slow and --diff")
    if sum(todo) > 1:
        raise UserError("use only one of --follow, --check, --diff and --otlp")
    if any(todo) and not any(chosen):
        raise UserError("--follow, --check and --otlp need a POD, --last or --slow")
    if arguments.brief and (arguments.format == "json" or any(todo)):
        raise UserError("--brief is for diagrams: it cannot be combined with --follow, --check, --diff, --otlp or json")
    if arguments.follow and arguments.format != "text":
        raise UserError("--follow draws text")
    if (arguments.check or arguments.diff) and arguments.format not in ("text", "json"):
        raise UserError("--check and --diff print text or json")


def _directory(prefix: Path) -> Path:
    """Returns the directory of the records, if it can be read."""
    try:
        directory = Path(check_directory(CollectorOptions.below(prefix).directory))
    except OSError as error:
        raise UserError(str(error)) from error
    try:
        os.listdir(directory)  # noqa: PTH208 - whether it can be listed is the question
    except FileNotFoundError as error:
        raise UserError(f"nothing was recorded below {prefix}: {directory} does not exist") from error
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}") from error
    return directory


def _read(directory: Path) -> PodTraces:
    """Reads all records; broken files are reported."""
    traces, reader = PodTraces(), Reader(directory)
    try:
        traces.learn(reader.more())
    except OSError as error:
        raise UserError(str(error)) from error
    for trouble in reader.troubles():
        print(f"podwire trace: {plain(trouble)}", file=sys.stderr)
    return traces


def _pod_name(arguments: argparse.Namespace, pod: str) -> tuple[str, str]:
    namespace, _, name = pod.rpartition("/")
    return namespace or arguments.namespace, name


def _chosen(traces: PodTraces, arguments: argparse.Namespace) -> PodTrace:
    if arguments.pod:
        return _found(traces, arguments, arguments.pod)
    if arguments.slow:
        if not (starts := _slowest(traces)):
            raise UserError("no recorded pod is Running yet")
        return starts[0]
    if not (all_traces := traces.all()):
        raise UserError("no pods recorded yet")
    return all_traces[-1]


def _found(traces: PodTraces, arguments: argparse.Namespace, pod: str) -> PodTrace:
    namespace, name = _pod_name(arguments, pod)
    trace = traces.find(namespace, name) or traces.find_id(pod)
    if trace is None:
        raise UserError(plain(f"no pod {namespace}/{name} was recorded; `podwire trace` lists all"))
    return trace


def _slowest(traces: PodTraces) -> list[PodTrace]:
    return sorted((trace for trace in traces.all() if trace.took is not None), key=lambda trace: -(trace.took or 0.0))


def _shown(traces: PodTraces, trace: PodTrace, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        return as_json(traces.records(trace))
    flow = load(arguments.flow)
    drawn = shorten(annotated(brief(trace, flow) if arguments.brief else trace, flow))
    renderers: dict[str, Callable[[], str]] = {
        "text": lambda: text(drawn, _width(), colours=_colours(arguments)),
        "mermaid": lambda: mermaid(drawn),
        "html": lambda: html(drawn, traces.records(trace), trace),
    }
    return renderers[arguments.format]()


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
    all_traces = traces.all()
    if form == "json":
        print(json.dumps([listed(pod_trace) for pod_trace in all_traces], indent=2))
    elif form == "text":
        print(tables.seen(all_traces) if all_traces else "no pods recorded yet")
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


def _follow(directory: Path, namespace: str, name: str, arguments: argparse.Namespace) -> int:
    """Runs until interrupted, with low priority, so that it does not slow down what it watches."""
    os.nice(FOLLOW_NICENESS)

    async def draw() -> None:
        async for line in follow(directory, namespace, name, _width(), colours=_colours(arguments)):
            print(line, flush=True)

    asyncio.run(draw())
    raise UserError(f"{directory} was removed")
