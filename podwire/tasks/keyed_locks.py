"""Locks by key: at most one task works on a key, and tasks with other keys go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class KeyedLocks:
    """A lock exists while a task holds it or waits for it. Waiting tasks get it in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """By key: the lock, and how many tasks hold it or wait for it."""

    @contextlib.asynccontextmanager
    async def hold(self, *keys: str) -> AsyncIterator[None]:
        """Hold the locks of all keys. They are taken in sorted order, so that two tasks cannot wait for each other."""
        async with contextlib.AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._hold_one(key))
            yield

    def is_held(self, key: str) -> bool:
        """Whether a task holds the key's lock or waits for it."""
        return key in self._locks

    @contextlib.asynccontextmanager
    async def _hold_one(self, key: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1
