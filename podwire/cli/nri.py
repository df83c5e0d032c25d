"""`podwire nri`: tools for writing and testing NRI plugins.

Each subcommand is a module with `configure(parser)` and `run(arguments) -> exit code`, imported when it is used.
"""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from podwire.cli.commands import Command
from podwire.cli.parser import Parser

SUBCOMMANDS = (
    Command("new", "podwire.cli.nri_new", "Create a new plugin with a test"),
    Command("logger", "podwire.cli.nri_logger", "Log all events of pods and containers"),
    Command("play", "podwire.cli.nri_play", "Send the events of a pod to a plugin, and check its replies"),
    Command("fake-plugin", "podwire.cli.nri_fake", "Run a scripted plugin, to test a runtime"),
    Command("proxy", "podwire.cli.nri_proxy", "Show the messages between a runtime and its plugins"),
)


class _LazyParser(Parser):
    """A parser that imports its options when it is used."""

    module = ""

    def load(self) -> Any:
        """Adds the options, once; returns the module of the subcommand."""
        module, self.module = importlib.import_module(self.module), ""
        module.configure(self)
        return module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not self.module:
            return super().parse_known_args(args, namespace)
        module = self.load()
        if getattr(module, "PROGRAM", False):
            # Arguments after `--` belong to the other program.
            given = list(args or ())
            at = given.index("--") if "--" in given else len(given)
            args, program = given[:at], given[at + 1 :]
            self.set_defaults(program=program)
        # Options between NAME and [DIR]; argparse calls this again for the parts.
        mixed = getattr(module, "INTERMIXED", False)
        if not mixed:
            return self.parse_known_args(args, namespace)
        self.keeps_unknown = True
        parsed, unknown = self.parse_known_intermixed_args(args, namespace)
        self.reject(unknown)
        return parsed, unknown


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=_LazyParser)
    for subcommand in SUBCOMMANDS:
        verbs.add_parser(
            subcommand.name, help=subcommand.summary, description=subcommand.summary
        ).module = subcommand.module


def run(arguments: argparse.Namespace) -> int:
    code: int = importlib.import_module(_module(arguments.verb, SUBCOMMANDS)).run(arguments)
    return code


def _module(verb: str, among: Sequence[Command]) -> str:
    return next(command.module for command in among if command.name == verb)
