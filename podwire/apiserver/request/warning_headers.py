"""Warnings that are found far below the answer which carries them: whoever finds one adds it, the door collects."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FOUND: ContextVar[list[str] | None] = ContextVar("notices", default=None)


@contextmanager
def collected() -> Iterator[list[str]]:
    """The warnings of one request, as they are found."""
    found: list[str] = []
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


def add(text: str) -> None:
    """Warn whoever asked; nobody, when the server does something of its own accord."""
    found = _FOUND.get()
    if found is not None:
        found.append(text)
