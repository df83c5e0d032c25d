"""`podwire`: parses the command line and calls the module of the command.

A command is imported when it is used, so that `--help` and small commands start fast.
"""

import argparse
import errno
import gc
import importlib
import os
import re
import select
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from podwire import __version__
from podwire.cli.commands import COMMANDS, GROUPS, Command
from podwire.cli.parser import Parser

__all__ = ["COMMANDS", "Command", "UserError", "main", "plain_text", "whole_parser"]

_CA_FILE = "SSL_CERT_FILE"
"""The environment variable of OpenSSL for the file with the system's CAs."""

DESCRIPTION = "A small, complete Kubernetes, with one command per component."

EPILOG = """\
exit codes: 0 ok, 1 failed, 2 usage

try:
  podwire doctor                     check this machine
  podwire demo                       see it work, step by step
  podwire up --detach --name dev     start a cluster, next to others
  podwire kubectl --name dev get nodes
  podwire down --name dev            remove it again, with everything it created

`podwire COMMAND --help` explains a command, `podwire man COMMAND` is its page.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    gc.disable()  # start-up makes little garbage, and collecting takes a tenth of its time; daemons enable it when up
    try:
        return _run_and_flush(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if (code := _code_of_write_error(error)) is None:
            print(f"podwire: {plain_text(str(error))}{_rights_hint(error)}", file=sys.stderr)
            return 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter writes again at exit
        return code
    finally:
        gc.enable()


def _run_and_flush(given: Sequence[str]) -> int:
    """Runs a command; its output is flushed when it returns, however it ends."""
    try:
        return _run(given)
    finally:
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()


def _code_of_write_error(error: OSError) -> int | None:
    """Returns the exit code when the output is closed or the disk is full; None for another error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        print(f"podwire: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return 1
    return 128 + signal.SIGPIPE if error.errno == errno.EPIPE and _output_is_closed() else None


def _output_is_closed() -> bool:
    """Whether the output is a pipe without a reader, as after `| head`."""
    output = select.poll()
    output.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _run(given: Sequence[str]) -> int:
    parser, parsed = _parse(given)
    if parsed.command is None:
        parser.print_help()
        return 2
    try:
        module = _load(_command(parsed.command).module)
        code: int = module.run(parsed)
    except UserError as error:
        hint = _rights_hint(error.__cause__)
        print(f"podwire {parsed.command}: {plain_text(str(error))}{hint}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "podwire":
            raise
        print(f"podwire {parsed.command}: {_incomplete(error)}", file=sys.stderr)
        return 1
    return code


def _command(name: str) -> Command:
    return next(command for command in COMMANDS if command.name == name)


def _incomplete(error: ModuleNotFoundError) -> str:
    """Says how to complete an installation without some package."""
    return (
        f"the Python package {error.name!r} is not installed in {sys.prefix}; "
        f"install podwire again (`scripts/setup` in its source tree, else `{sys.executable} -m pip install podwire`)"
    )


_ERRNO = re.compile(r"\[Errno \d+\] ([^:\n]+)(?:: (?:b?'([^']*)'|b?\"([^\"]*)\")(?: -> b?'([^']*)')?)?")


def plain_text(message: str) -> str:
    """Returns a message in which errors of the system are written as `PATH: reason`, without their numbers."""

    def plain(found: "re.Match[str]") -> str:
        reason, path = found[1], found[2] or found[3]
        return f"{path}: {reason}" if path else reason

    return re.sub(r"(?<!\S)(\S+): \1: ", r"\1: ", _ERRNO.sub(plain, message))  # a path that was named before


def _rights_hint(cause: BaseException | None) -> str:
    """Returns what helps against an error of the system; empty for others."""
    number = cause.errno if isinstance(cause, OSError) else None
    if number in (errno.EACCES, errno.EPERM, errno.EROFS) and os.geteuid() != 0:
        return "; try it as root: `sudo podwire …`"
    if number in (errno.EACCES, errno.EPERM, errno.ENOSYS):
        return "; `podwire doctor` says what this machine or container lacks"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; free some space (`df -h` shows which file system is full) and try again"
    return ""


def _load(module: str) -> Any:
    """Imports the module of a command, without the CAs of the system.

    aiohttp reads them when it is imported, which takes a tenth of the start of a cluster, and memory of every
    component. Our clients use contexts of their own, with the CAs of a cluster or, where they need them, the system's.
    """
    before = os.environ.get(_CA_FILE)
    os.environ[_CA_FILE] = os.devnull
    try:
        return importlib.import_module(module)
    finally:
        del os.environ[_CA_FILE]
        if before is not None:
            os.environ[_CA_FILE] = before


class UserError(Exception):
    """An error that the user can fix; printed in one line, without a traceback."""


def _page() -> str:
    """Returns the text before the options; argparse would wrap these lines."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [DESCRIPTION]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {command.name:{width}}  {command.summary}" for command in group)]
    return "\n".join(lines)


def whole_parser() -> argparse.ArgumentParser:
    """Returns the parser with the options of all commands, for completions and manual pages. Imports everything."""
    return _parser(COMMANDS)


def _parser(configured: Iterable[Command]) -> argparse.ArgumentParser:
    """Returns the parser of some commands, with their options; of all, without their options, if none is given."""
    parser = Parser(
        prog="podwire",
        usage="podwire [-h] [--version] COMMAND ...",
        description=_page(),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"podwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="podwire", help=argparse.SUPPRESS)
    configured = list(configured)
    for command in configured or COMMANDS:
        below = commands.add_parser(command.name, help=command.summary, description=command.summary)
        if configured:
            _load(command.module).configure(below)
    return parser


def _parse(given: Sequence[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    position = next((number for number, word in enumerate(given) if not word.startswith("-")), len(given))
    chosen = [command for command in COMMANDS if command.name in given[position : position + 1]]
    try:
        parser = _parser(chosen)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "podwire":
            raise
        print(f"podwire {chosen[0].name}: {_incomplete(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    if not chosen or not chosen[0].passes_on:
        return parser, parser.parse_args(given)
    own = position + 1 + _own_words(given[position + 1 :])
    parsed = parser.parse_args(given[:own])
    parsed.words = list(given[own:])
    return parser, parsed


def _own_words(words: Sequence[str]) -> int:
    """Returns how many words are options of ours, before those of the other program."""
    if words[:1] in (["-h"], ["--help"]):
        return 1
    number = 0
    while number < len(words) and (flag := words[number].partition("="))[0] in ("--prefix", "--name"):
        number += 1 if flag[1] else 2
    return min(number, len(words))


if __name__ == "__main__":
    # By its module name: commands raise UserError of that module, not of __main__.
    sys.exit(importlib.import_module("podwire.cli.entry").main())
