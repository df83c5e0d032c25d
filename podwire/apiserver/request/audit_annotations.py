"""Collects audit annotations of a request from anywhere below the answer, in a context variable."""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType

_ANNOTATIONS: ContextVar[dict[str, str] | None] = ContextVar("audit_annotations", default=None)


class Collected:
    """Collects the annotations of one request; a class and not a generator, because every request enters it."""

    __slots__ = ("_annotations", "_token")

    def __init__(self) -> None:
        self._annotations: dict[str, str] = {}

    def __enter__(self) -> dict[str, str]:
        self._token: Token[dict[str, str] | None] = _ANNOTATIONS.set(self._annotations)
        return self._annotations

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ANNOTATIONS.reset(self._token)


def add(more: Mapping[str, str]) -> None:
    """Adds annotations; ignored outside of a request."""
    annotations = _ANNOTATIONS.get()
    if annotations is not None:
        annotations.update(more)
