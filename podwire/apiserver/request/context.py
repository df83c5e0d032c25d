"""Facts about the request in progress that are found far below its answer: warnings, audit annotations, its size.

One object in one context variable, because every request pays for it.
"""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Self


class RequestContext:
    """The facts about one request; current inside of its `with` block."""

    __slots__ = ("_token", "annotations", "large", "warnings")

    def __init__(self) -> None:
        self.warnings: list[str] = []
        """Texts for Warning headers."""
        self.annotations: dict[str, str] = {}
        """Annotations for the audit log."""
        self.large = False
        """See request/offload.py."""

    def __enter__(self) -> Self:
        self._token: Token[RequestContext | None] = _CURRENT.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _CURRENT.reset(self._token)


_CURRENT: ContextVar[RequestContext | None] = ContextVar("request", default=None)
current = _CURRENT.get
"""Returns the request in progress; None outside of one."""


def warn(text: str) -> None:
    """Adds a warning to the answer; ignored outside of a request."""
    if (request := current()) is not None:
        request.warnings.append(text)


def annotate(annotations: Mapping[str, str]) -> None:
    """Adds audit annotations; ignored outside of a request."""
    if (request := current()) is not None:
        request.annotations.update(annotations)


def note_large() -> None:
    """Marks the request as large. A task of the server's own, outside of a request, stays marked."""
    request = current()
    if request is None:
        request = RequestContext()
        _CURRENT.set(request)
    request.large = True
