"""Requests that are repeated until there is an answer, and the error of a run."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds."""

    round: float = 10.0
    """Pods and faults between two quiet times."""
    quiet: float = 90.0
    """Until everything is as it should be once the faults are over; a machine may be busy."""
    list: float = 0.5
    """Between two lists that are compared with the model."""
    request: float = 5.0
    """Until a request is repeated."""
    retry: float = 0.1


LIMITS = Limits()


class Violation(Exception):
    """A rule was violated: the lines say which."""

    def __init__(self, what: str, lines: Collection[str]) -> None:
        super().__init__("\n".join([what, *(f"  {line}" for line in lines)]))


async def until_answered(limits: Limits, request: Callable[[], Awaitable[Any]]) -> Any:
    """Repeats a request until the server has answered; returns None for 404 and 409. Raises Violation."""
    end = time.monotonic() + limits.quiet
    while time.monotonic() < end:
        try:
            return await request()
        except ApiError as error:
            if error.code in (404, 409):
                return None
            if error.code < 429:
                raise Violation("a request was refused", [str(error)]) from error
            last: Exception = error
        except ClientError as error:
            last = error
        await asyncio.sleep(limits.retry)
    raise Violation(f"a request was not answered for {limits.quiet:g} s", [str(last)])
