"""`podwire trace`: the way of a pod, drawn as it went."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import msgspec

from podwire.cli.main import UserError
from podwire.cluster.tracing import CollectorOptions
from podwire.trace.check import annotated, brief, check
from podwire.trace.flow import FLOWS, load
from podwire.trace.follow import follow
from podwire.trace.mermaid import mermaid
from podwire.trace.redact import redacted
from podwire.trace.segments import Reader
from podwire.trace.story import Stories, Story
from podwire.trace.text import table, text

FORMATS = ("text", "mermaid", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", nargs="?", metavar="[NAMESPACE/]POD", help="the newest pod of that name; all, if none")
    parser.add_argument("-n", "--namespace", default="default", help="where a POD without one is (%(default)s)")
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)"
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("-o", "--output", dest="format", choices=FORMATS, help="the same as --format")
    parser.add_argument("--brief", action="store_true", help="only the arrows of the pod flow, not all that happened")
    parser.add_argument("--follow", action="store_true", help="wait for the pod and draw on while things happen")
    parser.add_argument("--check", choices=FLOWS, metavar="FLOW", help=f"compare with a flow: {', '.join(FLOWS)}")
    parser.add_argument("--raw", action="store_true", help="with secrets, if the collector kept them; only for root")


def run(arguments: argparse.Namespace) -> int:
    directory = CollectorOptions.below(arguments.prefix).directory
    if arguments.raw and os.geteuid() != 0:
        raise UserError("--raw shows secrets, and only root may see them")
    if (arguments.follow or arguments.check) and not arguments.pod:
        raise UserError("--follow and --check need a POD")
    if arguments.brief and (arguments.format == "json" or arguments.follow or arguments.check):
        raise UserError("--brief is about drawing: it goes with neither --follow nor --check nor json")
    if not directory.is_dir():
        raise UserError(f"nothing was recorded below {arguments.prefix}: there is no {directory}")
    if arguments.follow:
        return _follow(directory, arguments)
    try:
        stories = Stories()
        stories.learn(Reader(directory).more())
    except OSError as error:
        raise UserError(str(error)) from error
    if not arguments.pod:
        return _list(stories, arguments.format)
    namespace, name = _named(arguments)
    story = stories.find(namespace, name)
    if story is None:
        raise UserError(f"no pod {namespace}/{name} was seen; `podwire trace` lists those that were")
    if arguments.check:
        return _check(story, arguments.check, arguments.format)
    sys.stdout.write(_shown(stories, story, arguments))
    return 0


def _named(arguments: argparse.Namespace) -> tuple[str, str]:
    namespace, _, name = arguments.pod.rpartition("/")
    return namespace or arguments.namespace, name


def _shown(stories: Stories, story: Story, arguments: argparse.Namespace) -> str:
    if arguments.brief:
        story = brief(story, load("pod"))
    if arguments.format == "mermaid":
        return mermaid(annotated(story, load("pod")))
    if arguments.format == "text":
        return text(annotated(story, load("pod")), _width())
    records = [msgspec.to_builtins(each) for each in stories.records(story)]
    if not arguments.raw:
        records = [{**each, "detail": redacted(each["detail"])} for each in records]
    return json.dumps(records, indent=2) + "\n"


def _width() -> int:
    return shutil.get_terminal_size((140, 50)).columns


def _list(stories: Stories, form: str) -> int:
    told = stories.all()
    if form == "json":
        shown = [
            {"pod": each.pod, "namespace": each.namespace, "name": each.name, "begin": each.begin, "took": each.took}
            for each in told
        ]
        print(json.dumps(shown, indent=2))
    else:
        print(table(told) if told else "no pod was seen yet")
    return 0


def _check(story: Story, name: str, form: str) -> int:
    findings = check(story, load(name))
    if form == "json":
        print(json.dumps([msgspec.to_builtins(each) for each in findings], indent=2))
    else:
        for each in findings:
            print(each)
        print(f"pod {story.namespace}/{story.name}: {len(findings) or 'no'} deviations from the {name} flow")
    return 1 if findings else 0


def _follow(directory: Path, arguments: argparse.Namespace) -> int:
    namespace, name = _named(arguments)
    if arguments.format != "text":
        raise UserError("--follow draws text")

    async def draw() -> None:
        async for line in follow(directory, namespace, name, _width()):
            print(line, flush=True)

    asyncio.run(draw())
    return 0
