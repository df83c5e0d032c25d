"""The parser of the command line: argparse, with the usage of the subcommand and a suggestion in every error."""

import argparse
import difflib
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

WIDTH = 80


class Parser(argparse.ArgumentParser):
    """Reports errors of a subcommand with its own usage, and says what may have been meant."""

    keeps_unknown = False
    """Whether unknown words are returned, for a caller that parses in several steps."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Abbreviations of flags are refused: a mistyped one must not start something else than was meant."""
        super().__init__(*args, **{"allow_abbrev": False, **settings})

    def parse_known_args(  # type: ignore[override]  # argparse's overloads, for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if not self.keeps_unknown:
            self.reject(unknown)
        return parsed, unknown

    def reject(self, unknown: Sequence[str]) -> None:
        """Ends with an error if there are unknown words; a parser of a subcommand has rejected its own before."""
        if unknown:
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            first = next((word for word in unknown if word.startswith("-")), "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion(first.partition('=')[0], flags)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Adds a suggestion to argparse's list of choices; a wrong command gets a line of its own."""
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other name for it
            kind = "command" if self.prog == "podwire" else "verb"
            self.error(f"unknown {kind} {value!r}{suggestion(str(value), known)}\n{_listed(kind, known)}")
        choices = ", ".join(map(repr, action.choices))
        message = f"invalid choice: {value!r} (choose from {choices}){suggestion(str(value), known)}"
        raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\nsee `{self.prog} --help`\n")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean …?`, or nothing where no known word is similar."""
    similar = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if word else []
    return f"; did you mean `{similar[0]}`?" if similar else ""


def _listed(kind: str, names: Iterable[str]) -> str:
    """Returns the known names as an indented paragraph."""
    text = f"{kind}s: {', '.join(sorted(names))}"
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
