"""The call that a handler is answering: how long its caller waits, and what came beside the request.

A handler asks `current()`; outside a call there is a caller with all the time in the world that said nothing.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    """Metadata and deadline of a call."""

    timeout: float | None = None
    """Seconds that the caller gave when it asked."""
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def traceparent(self) -> str:
        """The W3C trace context of the caller; empty when it has none."""
        return self.metadata.get("traceparent", ("",))[0]


_NOBODY = Call()
_current: ContextVar[Call] = ContextVar("podwire_ttrpc_call")


def current() -> Call:
    """The call that is being answered here."""
    return _current.get(_NOBODY)


def enter(call: Call) -> None:
    """Make this the current call of the running task and the tasks that it starts."""
    _current.set(call)
