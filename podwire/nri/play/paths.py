"""Paths of values in config.json: `process.env`, `mounts[0].source`, `annotations["a.b/c"]`."""

import re
from typing import Any

_TOKEN = re.compile(r'\.?([A-Za-z_][\w-]*)|\[(-?\d+)\]|\["((?:[^"\\]|\\.)*)"\]')

NOTHING = object()
"""There is no such value."""


class BadPath(ValueError):
    """A path that cannot be read."""


def parse(path: str) -> list[str | int]:
    """Keys and indices. Raises BadPath."""
    tokens: list[str | int] = []
    at = 0
    while at < len(path):
        match = _TOKEN.match(path, at)
        if match is None or (at == 0 and path.startswith(".")):
            raise BadPath(f'{path!r} is not a path such as process.env, mounts[0].source or annotations["a.b/c"]')
        name, index, quoted = match.groups()
        tokens.append(int(index) if index is not None else name if name is not None else quoted)
        at = match.end()
    return tokens


def find(value: Any, path: str) -> Any:
    """The value there, or NOTHING."""
    for token in parse(path):
        if isinstance(token, int):
            if not isinstance(value, list) or not -len(value) <= token < len(value):
                return NOTHING
            value = value[token]
        elif isinstance(value, dict) and token in value:
            value = value[token]
        else:
            return NOTHING
    return value
