"""The JSONPath subset of printer columns, scale and selectable fields: `.spec.list[?(@.name=="a")]['x.y'][*]`.

A path is compiled once into steps; each step turns the values found so far into the next ones. A value that is not
there is not found; it is not an error.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any], Iterable[Any]]

LONGEST = 1_000

_NAME = re.compile(r"\.((?:[^.\[\]()'\"\\\s*]|\\.)+)")
_QUOTED = re.compile(r"""\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""")
_INDEX = re.compile(r"\[(-?\d{1,9})\]")
_SLICE = re.compile(r"\[(-?\d{1,9})?:(-?\d{1,9})?\]")
_ALL = re.compile(r"\.\*|\[\*\]")
_FILTER = re.compile(
    r"""\[\?\(\s*@(?P<path>(?:\.(?:[^.\[\]()'"\\\s*=!<>]|\\.)+|\[(?:'[^']*'|"[^"]*"|-?\d{1,9})\])*)\s*"""
    r"""(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|true|false)\s*)?\)\]"""
)
_ESCAPE = re.compile(r"\\(.)")


class BadPath(ValueError):
    """A path outside the supported subset."""


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path."""

    steps: tuple[Step, ...]

    def find(self, value: Any) -> list[Any]:
        """Returns all values that the path leads to."""
        values = [value]
        for step in self.steps:
            values = [below for one in values for below in step(one)]
            if not values:
                break
        return values

    def first(self, value: Any) -> Any:
        """Returns the first value that the path leads to, None when there is none."""
        values = self.find(value)
        return values[0] if values else None


def compile_path(text: str) -> Path:
    """Raises BadPath."""
    if not text.startswith("."):
        raise BadPath("must be a simple json path starting with .")
    if len(text) > LONGEST:
        raise BadPath(f"is longer than {LONGEST} characters")
    return Path(tuple(_steps("" if text == "." else text)))


def _steps(text: str) -> Iterator[Step]:
    at = 0
    while at < len(text):
        for pattern, make in _STEPS:
            if match := pattern.match(text, at):
                yield make(match)
                at = match.end()
                break
        else:
            raise BadPath(f"is an invalid path: unexpected {text[at : at + 10]!r} at {at}")


def _member(name: str) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _index(match: re.Match[str]) -> Step:
    index = int(match[1])

    def step(value: Any) -> Iterable[Any]:
        return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()

    return step


def _slice(match: re.Match[str]) -> Step:
    start, end = (int(bound) if bound else None for bound in match.groups())

    def step(value: Any) -> Iterable[Any]:
        return value[start:end] if isinstance(value, list) else ()

    return step


def _every(_found: re.Match[str]) -> Step:
    def step(value: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            return value.values()
        return value if isinstance(value, list) else ()

    return step


def _filter(match: re.Match[str]) -> Step:
    inner = Path(tuple(_steps(match["path"])))
    operator = match["operator"]
    if operator is None:
        return _kept(lambda each: bool(inner.find(each)))
    holds, literal = _OPERATORS[operator], _literal(match["value"])
    return _kept(lambda each: any(_comparable(seen, literal) and holds(seen, literal) for seen in inner.find(each)))


def _kept(test: Callable[[Any], bool]) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return [element for element in value if test(element)] if isinstance(value, list) else ()

    return step


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _comparable(seen: Any, literal: Any) -> bool:
    """Strings with strings, booleans with booleans, numbers with numbers."""
    if isinstance(seen, bool) or isinstance(literal, bool):
        return isinstance(seen, bool) and isinstance(literal, bool)
    if isinstance(literal, str):
        return isinstance(seen, str)
    return isinstance(seen, int | float)


def _literal(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text[0] in "\"'":
        return _unescaped(text[1:-1])
    return float(text) if "." in text else int(text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)


_STEPS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...] = (
    (_ALL, _every),
    (_NAME, lambda found: _member(_unescaped(found[1]))),
    (_QUOTED, lambda found: _member(_unescaped(found[1] if found[1] is not None else found[2]))),
    (_INDEX, _index),
    (_SLICE, _slice),
    (_FILTER, _filter),
)
