"""Collects warnings of a request from anywhere below the answer that carries them, in a context variable."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FOUND: ContextVar[list[str] | None] = ContextVar("notices", default=None)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collects the warnings of one request."""
    found: list[str] = []
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


def add(text: str) -> None:
    """Adds a warning; ignored outside of a request."""
    found = _FOUND.get()
    if found is not None:
        found.append(text)
