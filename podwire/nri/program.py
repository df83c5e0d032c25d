"""A plugin as a program: flags, logs, signals, exit code."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from podwire import logs
from podwire.nri.errors import NriError
from podwire.nri.identity import SOCKET
from podwire.nri.plugin import Plugin
from podwire.nri.runner import run


def main(plugin: Plugin, arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and runs the plugin until a signal; returns the exit code."""
    parser = argparse.ArgumentParser(description=type(plugin).__doc__)
    add_flags(parser)
    return run_program(plugin, parser.parse_args(arguments))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=Path, help=f"where the runtime listens ({SOCKET})")
    parser.add_argument("--index", metavar="NN", help="two digits; plugins are called in this order")
    parser.add_argument("--name", help="another name than the plugin's own")
    parser.add_argument("--config", type=Path, metavar="FILE", help="for a runtime that sends no configuration")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def run_program(plugin: Plugin, arguments: argparse.Namespace) -> int:
    """Returns 0 after SIGTERM and SIGINT, 1 after an error that a user can fix, which is printed in one line."""
    logs.set_up(level=arguments.log_level, form=arguments.log_format)
    try:
        config = arguments.config.read_text(encoding="utf-8") if arguments.config else ""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_stopped(plugin, arguments, config))
    except (NriError, OSError, UnicodeDecodeError) as error:
        print(f"{arguments.name or plugin.name or 'plugin'}: {error}", file=sys.stderr)  # noqa: T201 - a program's last line
        return 1
    return 0


async def _until_stopped(plugin: Plugin, arguments: argparse.Namespace, config: str) -> None:
    task = asyncio.ensure_future(
        run(plugin, socket=arguments.socket, index=arguments.index, name=arguments.name, config=config)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
