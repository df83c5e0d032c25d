"""Retries an action until it succeeds, with back-off between attempts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from podwire.tasks.backoff import Pauses

T = TypeVar("T")
OnFailure = Callable[[BaseException, float], None]


async def retry(
    action: Callable[[], Awaitable[T]],
    pauses: Pauses,
    *errors: type[BaseException],
    attempts: int | None = None,
    on_failure: OnFailure | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Return the action's result. These `errors` are retried, others are raised; so is the last of `attempts`.

    `on_failure(error, pause)` is called before each pause. `sleep` is handed in by tests, and by callers that an event
    can wake before the pause is over.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            result = await action()
        except errors as error:
            if attempt == attempts:
                raise
            pause = pauses.next()
            if on_failure is not None:
                on_failure(error, pause)
            await sleep(pause)
        else:
            pauses.reset()
            return result
