"""Calls that are watched from outside: the one place where transports tell a Tap what passes."""

import asyncio
import itertools
import logging
from types import TracebackType
from typing import Any, Self

from podwire.protocols.grpc_status import OK, Cancelled, RpcError
from podwire.seams import Hop, Tap

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class Tapped:
    """Tells a tap of the calls between two parties; does nothing without one.

    A call is two hops: there (no outcome; `detail["request"]`) and back (its outcome, OK or what went wrong, and what
    the transport puts into the detail). Both carry the same number as `detail["call"]`.
    """

    __slots__ = ("_callee", "_caller", "_tap")

    def __init__(self, tap: Tap | None, *, caller: str, callee: str) -> None:
        self._tap = tap
        self._caller = caller
        self._callee = callee

    def call(self, method: str, request: object) -> "Passing":
        """To be entered when the call begins and left, with its error if it has one, when it ends."""
        return Passing(self, method, request)

    def there(self, method: str, detail: dict[str, Any]) -> None:
        if self._tap is not None:
            self._tell(self._tap, Hop(caller=self._caller, callee=self._callee, method=method, detail=detail))

    def back(self, method: str, outcome: str, detail: dict[str, Any]) -> None:
        if self._tap is not None:
            hop = Hop(caller=self._callee, callee=self._caller, method=method, outcome=outcome, detail=detail)
            self._tell(self._tap, hop)

    def _tell(self, tap: Tap, hop: Hop) -> None:
        try:
            tap(hop)
        except Exception:
            log.exception("a tap failed and is dropped", extra={"caller": self._caller, "callee": self._callee})
            self._tap = None


class Passing:
    """One call under way."""

    __slots__ = ("_method", "_number", "_request", "_tapped", "detail")

    def __init__(self, tapped: Tapped, method: str, request: object) -> None:
        self._tapped = tapped
        self._method = method
        self._request = request
        self._number = next(_numbers)
        self.detail: dict[str, Any] = {"call": self._number}
        """What the hop back carries."""

    def __enter__(self) -> Self:
        self._tapped.there(self._method, {"call": self._number, "request": self._request})
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.detail["error"] = str(error)
        self._tapped.back(self._method, _outcome(error), self.detail)


def _outcome(error: BaseException | None) -> str:
    match error:
        case None:
            return OK
        case RpcError():
            return error.name
        case asyncio.CancelledError() | GeneratorExit():
            return Cancelled().name
        case _:
            return type(error).__name__
