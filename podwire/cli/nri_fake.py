"""`podwire nri fake-plugin`: a scripted plugin, to test a runtime."""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from podwire.cli.main import UserError
from podwire.cli.options import write_line
from podwire.nri.fake import FakePlugin, Leaves, Script, read_script
from podwire.nri.script import BadScript

SOCKET = "/var/run/nri/nri.sock"
LAUNCHED = "NRI_PLUGIN_SOCKET"
"""Set by a runtime that starts its plugins: the descriptor of a connected socket."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "script", type=Path, nargs="?", metavar="SCRIPT.yaml", help="script (default: a plugin that changes nothing)"
    )
    parser.add_argument(
        "--socket", default=os.environ.get("NRI_SOCKET", SOCKET), help=f"NRI socket of the runtime (default: {SOCKET})"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write every message as a line of JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing")


def run(arguments: argparse.Namespace) -> int:
    try:
        text = arguments.script.read_text(encoding="utf-8") if arguments.script else ""
        script = _named(read_script(text, str(arguments.script)))
    except BadScript as error:
        print(f"podwire nri fake-plugin: {error}", file=sys.stderr)
        return 2
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{arguments.script}: {error}") from error
    with _recording(arguments.record) as record:

        def report(facts: Mapping[str, Any]) -> None:
            if record is not None:
                record.write(json.dumps(facts) + "\n")
                record.flush()
            if not arguments.quiet:
                write_line(_line(facts))

        return asyncio.run(_talk(FakePlugin(script, report), arguments.socket))


def _named(script: Script) -> Script:
    """Returns the script with the runtime's name and index for the plugin, unless the script has its own."""
    if LAUNCHED not in os.environ or script.name != Script().name:
        return script
    name, index = os.environ.get("NRI_PLUGIN_NAME", script.name), os.environ.get("NRI_PLUGIN_IDX", script.index)
    return dataclasses.replace(script, name=name, index=index)


@contextlib.contextmanager
def _recording(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(str(error)) from error


async def _talk(plugin: FakePlugin, path: str) -> int:
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel if task else lambda: None)
    try:
        if LAUNCHED in os.environ:
            await plugin.run_on(socket.socket(fileno=int(os.environ[LAUNCHED])))
        else:
            await plugin.run(path)
    except Leaves as left:
        return left.code
    except asyncio.CancelledError:
        return 0
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    return 0


def _line(facts: Mapping[str, Any]) -> str:
    """Formats a message for people."""
    what = facts.get("call") or facts.get("event")
    about = " ".join(filter(None, (facts.get("pod"), facts.get("container"))))
    via = f"via {facts['via']}" if "via" in facts else ""
    how = " ".join(filter(None, (about, via, facts.get("did"), facts.get("why"))))
    return f"{facts['at']:9.3f}  {what:27}  {how}".rstrip()
