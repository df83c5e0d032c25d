"""The commands as data, read from the parser: completions and manual pages are generated from it."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A flag, or a positional argument (without flags)."""

    flags: tuple[str, ...]
    value: str
    """The name of the value; empty for a switch."""
    choices: tuple[str, ...] = ()
    summary: str = ""
    optional: bool = True
    """Whether a positional argument may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNode:
    """A command or a verb of one, with the words that lead to it: `podwire cni add`."""

    words: tuple[str, ...]
    summary: str
    description: str
    usage: str
    epilog: str
    options: tuple[Option, ...]
    verbs: tuple["CommandNode", ...] = field(default=())

    def walk(self) -> Iterator["CommandNode"]:
        """Yields this command and all below it."""
        yield self
        for verb in self.verbs:
            yield from verb.walk()


def read_tree(parser: argparse.ArgumentParser, words: tuple[str, ...] = ("podwire",), summary: str = "") -> CommandNode:
    """Returns the tree of a parser; hidden options are left out."""
    if getattr(parser, "module", ""):  # options that are imported on use
        parser.load()  # type: ignore[attr-defined]  # of such a parser
    options, verbs = [], []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor another name for it
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - the same
            verbs = [
                read_tree(below, (*words, name), summaries.get(name, "")) for name, below in action.choices.items()
            ]
        elif action.help != argparse.SUPPRESS:
            options.append(_option(parser, action))
    return CommandNode(
        words=words,
        summary=summary or (parser.description or "").partition("\n")[0],
        description=parser.description or summary,
        usage=" ".join(parser.format_usage().removeprefix("usage: ").split()),
        epilog=parser.epilog or "",
        options=tuple(options),
        verbs=tuple(verbs),
    )


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    value = "" if action.nargs == 0 else _value(action)
    choices = tuple(map(str, action.choices)) if action.choices is not None else ()
    summary = parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001 - fills in %(default)s
    return Option(
        flags=tuple(action.option_strings),
        value=value,
        choices=choices,
        summary=" ".join(summary.split()),
        optional=action.nargs in ("?", "*", argparse.REMAINDER),
    )


def _value(action: argparse.Action) -> str:
    name: Any = action.metavar
    if name is None:
        name = f"{{{','.join(map(str, action.choices))}}}" if action.choices is not None else action.dest
    if isinstance(name, tuple):
        name = " ".join(name)
    return str(name).upper() if action.metavar is None and action.choices is None else str(name)
