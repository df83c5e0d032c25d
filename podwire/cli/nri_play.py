"""`podwire nri play`: sends the events of a pod to a plugin, and checks its replies."""

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
from pathlib import Path

import uvloop

from podwire import logs
from podwire.cli.main import UserError
from podwire.cli.options import write_line
from podwire.nri.play import How, Script, play, read_script, report
from podwire.nri.play.outcome import Outcome
from podwire.nri.script import BadScript
from podwire.protocols.nri.names import BadName, PluginId, from_file

EPILOG = """\
The program gets the socket in NRI_SOCKET, and in place of {socket} in its arguments.
exit codes: 0 as expected, 1 not as expected, 2 invalid script or command line
"""

PROGRAM = True
"""Arguments after `--` are `arguments.program`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "podwire nri play [-h] [--launch NN-NAME] [--format FORMAT] [SCRIPT.yaml] -- PROGRAM [ARGUMENT ...]"
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--launch", type=_named, metavar="NN-NAME", help="start it as a pre-installed plugin")
    parser.add_argument(
        "--generation", choices=("old", "new"), help="protocol of runtimes before NRI 0.12 (old) or since (new)"
    )
    parser.add_argument("--format", choices=("text", "json", "junit"), default="text")
    parser.add_argument(
        "--plugin-output", type=Path, metavar="FILE", help="file for the output of the plugin (default: stderr)"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="error")
    parser.add_argument(
        "script", type=Path, nargs="?", metavar="SCRIPT.yaml", help="script (default: the life cycle of one pod)"
    )


def _named(text: str) -> PluginId:
    try:
        return from_file(text)
    except BadName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    try:
        if not arguments.program:
            raise BadScript("no plugin given: add `-- PROGRAM`")
        script = _script(arguments.script, arguments.generation)
    except BadScript as error:
        print(f"podwire nri play: {error}", file=sys.stderr)
        return 2
    # Warnings are collected for the report even if they are not shown.
    logs.set_up(level="warning" if arguments.log_level == "error" else arguments.log_level)
    logging.getLogger().handlers[0].setLevel(arguments.log_level.upper())
    output = 2
    if arguments.plugin_output is not None:
        output = _opened(arguments.plugin_output)
    how = How(argv=arguments.program, launch=arguments.launch, output=output)
    shown = arguments.format == "text"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(play(script, how, _print if shown else lambda _: None))
    match arguments.format:
        case "json":
            write_line(report.as_json(result))
        case "junit":
            write_line(report.as_junit(result))
        case _:
            write_line("\n".join(report.verdict(result)))
    return 0 if result.ok else 1


def _script(path: Path | None, generation: str | None) -> Script:
    try:
        text = "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadScript(f"{path}: {error}") from error
    script = read_script(text, "no script" if path is None else str(path))
    if generation is None:
        return script
    return dataclasses.replace(script, runtime=dataclasses.replace(script.runtime, generation=generation))


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(str(error)) from error


def _print(done: Outcome) -> None:
    write_line("\n".join(report.lines(done)))
