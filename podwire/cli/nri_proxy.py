"""`podwire nri proxy`: shows the messages between a runtime and its plugins."""

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop

from podwire import logs
from podwire.cli.main import UserError
from podwire.cli.nri_fake import LAUNCHED, SOCKET
from podwire.cli.options import write_line
from podwire.nri.play.plugin import DEFAULT_LIMITS, How, Process, connecting, launched
from podwire.nri.proxy import Exchange, Proxy, Seen, Summary
from podwire.nri.proxy.summary import line
from podwire.protocols.nri.names import PluginId
from podwire.trace.redact_messages import redacted

PROGRAM = True
"""Arguments after `--` are `arguments.program`."""

EPILOG = """\
Plugins connect to --listen, and each gets a connection of its own to the runtime at --connect. A program after -- is
started as a plugin that gets the socket in NRI_SOCKET, and in place of {socket} in its arguments; the proxy ends with
it. A proxy that a runtime starts as a pre-installed plugin starts that program in the same way.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "podwire nri proxy [-h] [--listen PATH] [--connect PATH] [--format FORMAT] [--show-secrets] [--output FILE] "
        "[-- PROGRAM [ARGUMENT ...]]"
    )
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--listen", type=Path, default=Path("nri-proxy.sock"), help="socket for plugins (default: nri-proxy.sock)"
    )
    parser.add_argument(
        "--connect", type=Path, default=Path(SOCKET), help=f"NRI socket of the runtime (default: {SOCKET})"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object per line (default: %(default)s)"
    )
    parser.add_argument(
        "--show-secrets",
        action="store_true",
        help="show values of environment variables, arguments and plugin configurations (default: hidden)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="output file (default: stdout)")


def run(arguments: argparse.Namespace) -> int:
    logs.set_up(level="error")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_until_stopped(_Printer(arguments), arguments))
    except OSError as error:
        raise UserError(str(error)) from error


class _Printer:
    """Prints each message, and a summary at the end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Raises OSError."""
        self._json = arguments.format == "json"
        self._secrets = arguments.show_secrets
        self._file = arguments.output.open("w", encoding="utf-8") if arguments.output else sys.stdout
        self._summary = Summary()

    def print_message(self, seen: Seen) -> None:
        self._summary.add(seen)
        shown = seen if self._secrets else _without_secrets(seen)
        write_line(json.dumps(shown.plain()) if self._json else line(shown), self._file)

    def end(self) -> None:
        summary = (
            json.dumps({"summary": self._summary.plain()}) if self._json else "\n".join(["", *self._summary.lines()])
        )
        write_line(summary, self._file)
        if self._file is not sys.stdout:
            self._file.close()


def _without_secrets(seen: Seen) -> Seen:
    """Hides what traces hide: values of environment variables, arguments, the configuration of a plugin."""
    if not isinstance(seen, Exchange):
        return seen
    request = seen.request and redacted(seen.request)
    return dataclasses.replace(seen, request=request, response=seen.response and redacted(seen.response))


async def _until_stopped(printer: _Printer, arguments: argparse.Namespace) -> int:
    work = asyncio.ensure_future(_work(printer, arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return 0
    finally:
        printer.end()


async def _work(printer: _Printer, arguments: argparse.Namespace) -> int:
    proxy = Proxy(arguments.connect, printer.print_message)
    how = How(argv=arguments.program)
    if LAUNCHED in os.environ:
        # This process is a pre-installed plugin: starts the real one, and relays between it and the runtime.
        if not how.argv:
            raise UserError("no plugin given: add `-- PROGRAM`")
        plugin = PluginId(os.environ.get("NRI_PLUGIN_IDX", ""), os.environ.get("NRI_PLUGIN_NAME", ""))
        runtime = await asyncio.open_connection(sock=socket.socket(fileno=int(os.environ[LAUNCHED])))
        process, ours = launched(how, plugin)
        try:
            await proxy.between(await asyncio.open_connection(sock=ours), runtime)
        finally:
            await process.end()
        return 0
    async with proxy.listening(arguments.listen):
        if not how.argv:
            await asyncio.get_running_loop().create_future()
        return await _ended(connecting(how, str(arguments.listen.absolute())))


async def _ended(process: Process) -> int:
    try:
        await process.ended.wait()
    finally:
        await process.end(grace=DEFAULT_LIMITS.stop)
    return process.code if process.code is not None and process.code >= 0 else 1
