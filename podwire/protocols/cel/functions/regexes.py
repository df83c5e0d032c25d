"""The regex library: `find` and `findAll`, on the library's own engine, whose time grows with the text alone."""

import re
from collections.abc import Sequence
from typing import Protocol

from podwire.protocols.cel.types import INT, STRING, Function, list_of


class Engine(Protocol):
    """Returns a matcher for a pattern without groups. Raises ValueError for an invalid pattern."""

    def first(self, text: str, pattern: str) -> str: ...

    def every(self, text: str, pattern: str) -> Sequence[str]:
        """All matches but empty ones."""

    def matches(self, text: str, pattern: str) -> bool: ...


_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\((?:\?P?<[^>]*>|(?!\?))", re.DOTALL)


def ungrouped(pattern: str) -> str:
    """The pattern with groups that capture nothing: what is found is the whole match."""
    return _TOKEN.sub(lambda found: "(?:" if found[0].startswith("(") else found[0], pattern)


def functions(engine: Engine) -> tuple[Function, ...]:
    """The library over an engine."""

    def find(text: str, pattern: str) -> str:
        return engine.first(text, ungrouped(pattern))

    def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
        if engine.matches("", pattern):
            raise ValueError("findAll is not supported for patterns that match nothing at all")
        found = engine.every(text, ungrouped(pattern))
        return list(found if most < 0 else found[:most])

    return (
        Function("find", (STRING, STRING), STRING, find),
        Function("findAll", (STRING, STRING), list_of(STRING), find_all),
        Function("findAll", (STRING, STRING, INT), list_of(STRING), find_all),
    )
