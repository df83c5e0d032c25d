"""Settings files in YAML, read strictly: an unknown key, a duplicate key or a value of another type is an error.

A file is a table of keys, each with a reader for its value. BadConfig names the key, as in `pools[0].make.mtu`, and
what is wrong with it.
"""

import re
from collections.abc import Callable, Collection, Mapping
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


def parsed(data: bytes, name: object, loader: type[Loader] = Loader) -> object:
    """Reads a settings file. Raises BadConfig."""
    try:
        return yaml.load(data.decode(), loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig("", f"{name} is not YAML: {' '.join(str(error).split())}") from error


Read = Callable[[str, Any], Any]
"""Makes a value of what stands at a key. Raises BadConfig."""


def below(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def mapped(
    key: str,
    value: object,
    keys: Mapping[str, Read],
    required: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the values of those keys that the file has, under their names in the program (`renamed`)."""
    if not isinstance(value, dict):
        raise BadConfig(key, f"must be a mapping with {', '.join(keys)}")
    for name in value:
        if name not in keys:
            raise BadConfig(below(key, name), f"is not a setting; known settings: {', '.join(keys)}")
    for name in required:
        if name not in value:
            raise BadConfig(below(key, name), "is required")
    return {(renamed or {}).get(name, name): keys[name](below(key, name), item) for name, item in value.items()}


def list_of(read: Read) -> Read:
    def reading(key: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise BadConfig(key, "must be a list with at least one item")
        return tuple(read(f"{key}[{at}]", item) for at, item in enumerate(value))

    return reading


def flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfig(key, "must be true or false")
    return value


def matching(pattern: re.Pattern[str], reason: str) -> Read:
    """Text that matches as a whole; `reason` follows the value in the error."""

    def reading(key: str, value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise BadConfig(key, f"{value!r} {reason}")
        return value

    return reading


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
            raise BadConfig(key, f"{value!r} must be a number from {low} to {high}")
        return value

    return reading
