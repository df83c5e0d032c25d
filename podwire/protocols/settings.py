"""Settings files in YAML, read strictly: an unknown key is an error.

BadConfig      the key, as in `pools[0].make.mtu`, and what is wrong with it
"""

from collections.abc import Callable, Mapping
from typing import Any

import yaml

_LONGEST_LINK = 15


class BadConfig(ValueError):
    """The key, and what is wrong with it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.key, self.reason = key, reason


class Loader(yaml.SafeLoader):
    """One that does not let the second of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in keys:
            if isinstance(name, str) and keys.count(name) > 1:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {name} is there twice")
        return super().construct_mapping(node, deep)


def parsed(data: bytes, name: object) -> object:
    """Reads a settings file. Raises BadConfig."""
    try:
        return yaml.load(data.decode(), Loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise BadConfig("", f"{name} is not YAML: {' '.join(str(error).split())}") from error


Read = Callable[[str, Any], Any]
"""Makes a value of what stands at a key. Raises BadConfig."""


def below(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def mapped(key: str, found: object, keys: Mapping[str, Read]) -> dict[str, Any]:
    """Returns the given keys only."""
    if not isinstance(found, dict):
        raise BadConfig(key, f"is not a mapping with {', '.join(keys)}")
    for item in found:
        if item not in keys:
            raise BadConfig(below(key, item), f"is not a setting; known settings: {', '.join(keys)}")
    return {name: keys[name](below(key, name), value) for name, value in found.items()}


def flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfig(key, "is neither true nor false")
    return value


def link(key: str, value: object) -> str:
    """A name that the kernel takes for one."""
    good = isinstance(value, str) and value.isprintable() and value not in ("", ".", "..")
    if not good or len(str(value).encode()) > _LONGEST_LINK or any(character in "/:% " for character in str(value)):
        raise BadConfig(key, f"{value!r} is not a name of a link")
    return str(value)


def one_of(*words: str) -> Read:
    def reading(key: str, value: object) -> str:
        if value not in words:
            raise BadConfig(key, f"{value!r} must be one of {', '.join(words)}")
        return str(value)

    return reading


def between(low: int, high: int) -> Read:
    def reading(key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadConfig(key, f"{value!r} is not a number from {low} to {high}")
        return value

    return reading
