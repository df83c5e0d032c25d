"""The call that a handler is answering: how to finish what must not be cut when the caller gives up.

A handler asks `current()`. Outside a call there is a caller with all the time in the world, so that a handler can be
tried as the plain function that it is.
"""

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Call(Protocol):
    """One call as its handler sees it."""

    async def uncancelled(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work` to its end, even when the caller gives up meanwhile and the handler is cancelled.

        A caller that gave up gets no result; an error of the work is then logged. A server that stops waits for it.
        """
        ...


class _NoCall:
    async def uncancelled(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await work


_NO_CALL = _NoCall()
_current: ContextVar[Call] = ContextVar("podwire_grpc_call")


def current() -> Call:
    """The call that is being answered here."""
    return _current.get(_NO_CALL)


def enter(call: Call) -> None:
    """Make this the current call of the running task and the tasks that it starts."""
    _current.set(call)
