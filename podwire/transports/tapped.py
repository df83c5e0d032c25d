"""Taps on calls: the one module in which transports report calls to a Tap."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from podwire.interfaces import EVENT, Hop, Tap
from podwire.linux.proc.processes import Finished
from podwire.protocols.grpc_status import OK, Cancelled, RpcError

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class Call:
    """A call in progress without a tap; `TappedCall` is one with a tap."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        pass

    def answered(self, response: object, outcome: str = OK) -> None:
        """Records the response for the hop back."""

    def streamed(self, more: int) -> None:
        """Counts responses of a stream; the hop back carries the sum."""

    def event(self, event: object) -> None:
        """Reports something that the call in progress delivers, as a hop of its own."""


_UNTAPPED = Call()


class Tapped:
    """Reports the calls between two participants to a tap; without a tap it does nothing.

    A call is two hops: there (no outcome; `detail["request"]`) and back (its outcome, OK or the error, and the
    transport's detail). Both carry the same number as `detail["call"]`, and so does everything that
    the call delivers in between (outcome EVENT; `detail["event"]`).
    """

    __slots__ = ("_callee", "_caller", "_tap")

    def __init__(self, tap: Tap | None, *, caller: str, callee: str) -> None:
        self._tap = tap
        self._caller = caller
        self._callee = callee

    def call(self, method: str, request: object, *, caller: str = "") -> Call:
        """Returns a context manager: entered when the call begins, left, with its error if any, when it ends."""
        return _UNTAPPED if self._tap is None else TappedCall(self, method, request, caller or self._caller)

    def there(self, caller: str, method: str, detail: dict[str, Any]) -> None:
        if self._tap is not None:
            self._report(self._tap, Hop(caller=caller, callee=self._callee, method=method, detail=detail))

    def back(self, caller: str, method: str, outcome: str, detail: dict[str, Any]) -> None:
        if self._tap is not None:
            hop = Hop(caller=self._callee, callee=caller, method=method, outcome=outcome, detail=detail)
            self._report(self._tap, hop)

    def _report(self, tap: Tap, hop: Hop) -> None:
        try:
            tap(hop)
        except Exception:
            log.exception("trace tap failed and was removed", extra={"caller": self._caller, "callee": self._callee})
            self._tap = None


class TappedCall(Call):
    """A call in progress that is reported to a tap."""

    __slots__ = ("_caller", "_detail", "_method", "_outcome", "_request", "_tapped")

    def __init__(self, tapped: Tapped, method: str, request: object, caller: str) -> None:
        self._tapped = tapped
        self._method = method
        self._request = request
        self._caller = caller
        self._outcome = OK
        self._detail: dict[str, Any] = {"call": next(_numbers)}

    def __enter__(self) -> Self:
        begun = {"call": self._detail["call"], "request": self._request}
        self._tapped.there(self._caller, self._method, begun)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._detail["error"] = str(error)
            self._outcome = _outcome(error)
        self._tapped.back(self._caller, self._method, self._outcome, self._detail)

    def answered(self, response: object, outcome: str = OK) -> None:
        self._detail["response"] = response
        self._outcome = outcome

    def streamed(self, more: int) -> None:
        self._detail["responses"] = self._detail.get("responses", 0) + more

    def event(self, event: object) -> None:
        detail = {"call": self._detail["call"], "event": event}
        self._tapped.back(self._caller, self._method, EVENT, detail)


def _outcome(error: BaseException) -> str:
    match error:
        case RpcError():
            return error.name
        case asyncio.CancelledError() | GeneratorExit():
            return Cancelled().name
        case _:
            return type(error).__name__


class Execution(NamedTuple):
    """The input of a program that is run."""

    argv: Sequence[str]
    env: Mapping[str, str]
    stdin: bytes


class Stored(NamedTuple):
    """The value that a store writes; empty for a deletion."""

    value: bytes = b""


Run = Callable[..., Finished]
"""Runs a program to its end; the same arguments as podwire.linux.proc.processes.run."""


def tapped_run(run: Run, tapped: Tapped, method: Callable[[Execution], str]) -> Run:
    """Wraps `run`: reports each program to the tap; `method` names the call. Thread-safe."""

    def run_tapped(argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b"", **limits: Any) -> Finished:
        execution = Execution(argv, env, stdin)
        with tapped.call(method(execution), execution) as call:
            done = run(argv, env=env, stdin=stdin, **limits)
            call.answered(done, OK if done.code == 0 else f"exit {done.code}")
            return done

    return run_tapped
