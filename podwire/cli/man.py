"""`podwire man`: prints or writes manual pages, generated from the parser."""

import argparse
import re
from pathlib import Path

from podwire import __version__
from podwire.cli.command_tree import CommandNode, Option, read_tree
from podwire.cli.main import UserError, whole_parser
from podwire.cli.parser import suggestion

SECTION = 8
"""Commands for the administrator of a machine."""
EXIT_CODES = "0: ok. 1: failed; the reason is on standard error. 2: wrong usage."
VARIABLES = (
    ("PODWIRE_PREFIX", "directory of the cluster, for commands without --prefix and --name"),
    ("NO_COLOR", "no colours on a terminal, if it is not empty"),
    ("KUBECONFIG", "read by kubectl; `podwire env` prints it for a cluster"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print or write manual pages, of podwire itself and of each command. `man -l FILE` shows one."
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="command, such as up (default: podwire itself)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="write all pages to DIR/man8")


def run(arguments: argparse.Namespace) -> int:
    tree = read_tree(whole_parser())
    if arguments.directory is not None:
        try:
            _write_all(tree, arguments.directory / f"man{SECTION}")
        except OSError as error:
            raise UserError(str(error)) from error
        return 0
    names = {node.words[-1]: node for node in (tree, *tree.verbs)}
    name = arguments.words[0] if arguments.words else "podwire"
    if name not in names or len(arguments.words) > 1:
        raise UserError(f"no command {' '.join(arguments.words)!r}{suggestion(name, names)}")
    print(page(names[name]), end="")
    return 0


def _write_all(tree: CommandNode, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for node in (tree, *tree.verbs):
        path = directory / f"{'-'.join(node.words)}.{SECTION}"
        path.write_text(page(node), encoding="utf-8")
    print(f"{len(tree.verbs) + 1} pages in {directory}; `man -M {directory.parent} podwire` shows the first")


def page(node: CommandNode) -> str:
    """Returns the page of a command in roff, with the verbs that it has."""
    name = "-".join(node.words)
    lines = [f'.TH "{name.upper()}" {SECTION} "" "podwire {__version__}" "podwire"', ".SH NAME"]
    lines += [f"{_roff(name)} \\- {_roff(node.summary)}", ".SH SYNOPSIS", _roff(node.usage), ".SH DESCRIPTION"]
    if node.words == ("podwire",):
        lines += [_roff(node.summary), ".SH COMMANDS"]
        for verb in node.verbs:
            lines += [".TP", f"\\fBpodwire\\-{_roff(verb.words[-1])}\\fR({SECTION})", _roff(verb.summary)]
    else:
        lines += [_roff(node.description)]
    lines += _options(node, ".SH OPTIONS")
    for verb in list(node.walk())[1:] if node.words != ("podwire",) else ():
        lines += [f".SS {_roff(' '.join(verb.words[1:]))}", _roff(verb.description), ".PP", _roff(verb.usage)]
        lines += _options(verb, "")
    if node.epilog:
        lines += [".SH NOTES", ".nf", _roff(node.epilog.rstrip()), ".fi"]
    lines += [".SH ENVIRONMENT"]
    for variable, meaning in VARIABLES:
        lines += [".TP", f"\\fB{_roff(variable)}\\fR", _roff(meaning)]
    lines += [".SH EXIT STATUS", EXIT_CODES]
    return "\n".join([*lines, ""])


def _options(node: CommandNode, heading: str) -> list[str]:
    lines = [heading] if heading and node.options else []
    for option in node.options:
        lines += [".TP", _option(option), _roff(option.summary)]
    return lines


def _option(option: Option) -> str:
    value = f"\\fI{_roff(option.value)}\\fR" if option.value else ""
    if not option.flags:
        return value
    flags = ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in option.flags)
    return f"{flags} {value}".rstrip()


def _roff(text: str) -> str:
    """Escapes text: backslashes, hyphens of flags, and dots and quotes at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)
