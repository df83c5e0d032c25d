"""Work to do, by key: each key at most once in line and in one hand, tried again with growing pauses when it fails."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError

Key = TypeVar("Key", bound=Hashable)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 30.0


class NotYet(Exception):
    """Nothing went wrong, but the work has to be looked at again soon."""


class WorkQueue(Generic[Key]):
    """Holds no key twice, so it is never longer than there are things to look after."""

    def __init__(
        self,
        name: str,
        work: Callable[[Key], Awaitable[None]],
        *,
        workers: int = 4,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._log = logging.getLogger(f"podwire.controllers.{name}")
        self._work = work
        self._workers = workers
        self._chance = chance
        self._line: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._in_hand: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def add(self, key: Key) -> None:
        """Have a key worked on soon; while it is being worked on, once more afterwards."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key not in self._queued:
            self._queued.add(key)
            self._line.append(key)
            self._filled.set()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as hands:
                for _ in range(self._workers):
                    hands.create_task(self._hand())
        finally:
            for each in self._timers.values():
                each.cancel()

    async def _hand(self) -> None:
        while True:
            key = await self._take()
            try:
                await self._work(key)
            except NotYet:
                self._postpone(key)
            except (ApiError, ClientError) as error:
                self._log.info("will try again", extra={"key": str(key), "why": str(error)})
                self._postpone(key)
            except Exception:  # noqa: BLE001 - a fault in one object's work must not end that of all others
                self._log.exception("will try again", extra={"key": str(key)})
                self._postpone(key)
            else:
                self._failures.pop(key, None)
            finally:
                self._in_hand.discard(key)
                self._filled.set()

    async def _take(self) -> Key:
        while True:
            for _ in range(len(self._line)):
                key = self._line.popleft()
                if key not in self._in_hand:
                    self._queued.discard(key)
                    self._in_hand.add(key)
                    return key
                self._line.append(key)
            self._filled.clear()
            await self._filled.wait()

    def _postpone(self, key: Key) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        most = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 20))
        pause = most * (0.5 + self._chance() / 2)
        if key not in self._queued:
            self._timers[key] = asyncio.get_running_loop().call_later(pause, self.add, key)
