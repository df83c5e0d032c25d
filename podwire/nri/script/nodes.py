"""YAML with positions: every value knows its line and path, for error messages."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

MAX_DEPTH = 40
"""Maximum nesting; an alias can make a value contain itself."""

Value = TypeVar("Value")

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_UNITS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0}


class BadScript(ValueError):
    """An invalid script; says where, which key, and why."""


@dataclass(frozen=True, slots=True)
class At:
    """A value of a script, with its position."""

    node: yaml.Node
    source: str
    path: str = ""

    def fail(self, why: str) -> BadScript:
        """The error to raise for this value."""
        line = self.node.start_mark.line + 1
        return BadScript(f"{self.source}:{line}: {self.path}: {why}" if self.path else f"{self.source}:{line}: {why}")

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, "At"]:
        """Its keys and values. Raises BadScript for a duplicate or unknown key."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fail(f"keys and values are wanted here, and this is {self._kind}")
        allowed = None if known is None else list(known)
        children: dict[str, At] = {}
        for key_node, value in self.node.value:
            key = At(key_node, self.source, self.path).text()
            here = At(key_node, self.source, self._below(key))
            if key in children:
                raise here.fail("is there twice")
            if allowed is not None and key not in allowed:
                raise here.fail(f"is unknown; known are {', '.join(allowed)}")
            children[key] = At(value, self.source, self._below(key))
        return children

    def items(self) -> list["At"]:
        """The values of a list. Raises BadScript."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fail(f"a list is wanted here, and this is {self._kind}")
        return [At(child, self.source, f"{self.path}[{number}]") for number, child in enumerate(self.node.value)]

    def text(self) -> str:
        """A string; a number is taken as it was written."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag == "tag:yaml.org,2002:null":
            raise self.fail(f"a text is wanted here, and this is {self._kind}")
        return str(self.node.value)

    def number(self) -> int:
        value = self.value()
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(f"a whole number is wanted here, and this is {value!r}")
        return value

    def truth(self) -> bool:
        value = self.value()
        if not isinstance(value, bool):
            raise self.fail(f"true or false is wanted here, and this is {value!r}")
        return value

    def seconds(self) -> float:
        """A span of time: 2, 0.5, 300ms, 2s, 1m."""
        match = _SECONDS.fullmatch(self.text())
        if match is None:
            raise self.fail(f"a time such as 300ms or 2s is wanted here, and this is {self.text()!r}")
        return float(match[1]) * _UNITS[match[2]]

    def one_of(self, table: Mapping[str, Value]) -> Value:
        """The value for a word."""
        if (word := self.text()) not in table:
            raise self.fail(f"{word!r} must be one of {', '.join(table)}")
        return table[word]

    def expression(self) -> re.Pattern[str]:
        """A regular expression."""
        try:
            return re.compile(self.text())
        except re.error as error:
            raise self.fail(f"{self.text()!r} is not a regular expression: {error}") from None

    def value(self) -> Any:
        """The plain YAML value."""
        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise self.fail(f"cannot be read: {error}") from None

    @property
    def _kind(self) -> str:
        if self.is_mapping:
            return "keys and values"
        return "a list" if self.is_list else f"{self.node.value!r}" if self.node.value else "nothing"

    def _below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def load(text: str, source: str) -> At:
    """The script in a text; an empty one is an empty mapping. Raises BadScript."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadScript(f"{source}:{line}: is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadScript(f"{source}: is not YAML: {error}") from None
    if node is None:
        mark = yaml.Mark(source, 0, 0, 0, "", 0)
        node = yaml.MappingNode("tag:yaml.org,2002:map", [], mark, mark)
    root = At(node, source)
    _refuse_deep(root, node, 0)
    return root


def _refuse_deep(root: At, node: yaml.Node, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise At(node, root.source).fail(f"more than {MAX_DEPTH} values within each other")
    if isinstance(node, yaml.SequenceNode):
        for pair in node.value:
            _refuse_deep(root, pair, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _refuse_deep(root, key, depth + 1)
            _refuse_deep(root, value, depth + 1)
