"""`podwire nri`: plugins of NRI, and what helps those who write them.

Each subcommand is a module with `configure(parser)` and `run(arguments) -> exit code`, imported when it is asked for.
"""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from podwire.cli.main import Command

SUBCOMMANDS = (
    Command("new", "podwire.cli.nri_new", "begin a plugin of your own, with a test"),
    Command("logger", "podwire.cli.nri_logger", "log what a runtime does with pods and containers"),
    Command("play", "podwire.cli.nri_play", "play the life of a pod to a plugin, and check what it does"),
    Command("fake-plugin", "podwire.cli.nri_fake", "a plugin that does what a script says, to test a runtime"),
    Command("proxy", "podwire.cli.nri_proxy", "watch what passes between a runtime and its plugins"),
)


class _Late(argparse.ArgumentParser):
    """A parser that learns its flags when it has something to parse."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not self.module:
            return super().parse_known_args(args, namespace)
        module, self.module = importlib.import_module(self.module), ""
        module.configure(self)
        if getattr(module, "PROGRAM", False):
            # What is behind `--` is another program's: no flag of ours, and told apart from what stands before.
            given = list(args or ())
            at = given.index("--") if "--" in given else len(given)
            args, program = given[:at], given[at + 1 :]
            self.set_defaults(program=program)
        # Flags between NAME and [DIR]; it comes back here for the parts.
        mixed = getattr(module, "INTERMIXED", False)
        return self.parse_known_intermixed_args(args, namespace) if mixed else self.parse_known_args(args, namespace)


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=_Late)
    for subcommand in SUBCOMMANDS:
        verbs.add_parser(
            subcommand.name, help=subcommand.summary, description=subcommand.summary
        ).module = subcommand.module


def run(arguments: argparse.Namespace) -> int:
    code: int = importlib.import_module(_module(arguments.verb, SUBCOMMANDS)).run(arguments)
    return code


def _module(verb: str, among: Sequence[Command]) -> str:
    return next(command.module for command in among if command.name == verb)
