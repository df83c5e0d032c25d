"""Whose turn it is: nobody works on something while somebody else does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class Turns:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """All of them at once, always in the same order, so that two who want the same do not wait for each other."""
        async with contextlib.AsyncExitStack() as stack:
            for each in sorted(set(keys)):
                await stack.enter_async_context(self._one(each))
            yield

    @contextlib.asynccontextmanager
    async def _one(self, key: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks.pop(key)
            if waiting > 1:
                self._locks[key] = lock, waiting - 1
