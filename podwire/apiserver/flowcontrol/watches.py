"""Counts open watches: each holds a connection, so one user must not have all of them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from podwire.apiserver.flowcontrol.levels import too_many_requests


class WatchLimit:
    """Watches of all users, and of each; a user gets at most half of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // 2)
        self._by_user: Counter[str] = Counter()
        self.open = 0

    def add(self, user: str, *, exempt: bool) -> None:
        """Counts a watch; raises 429 when there are too many. `remove` follows."""
        if not exempt and (self.open >= self._most or self._by_user[user] >= self._share):
            raise too_many_requests()
        self.open += 1
        self._by_user[user] += 1

    def remove(self, user: str) -> None:
        self.open -= 1
        self._by_user[user] -= 1
        if not self._by_user[user]:
            del self._by_user[user]


class CountedChunks:
    """The chunks of a watch; closing them calls `ended`, once, whether or not a chunk was read."""

    def __init__(self, chunks: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        self._chunks = chunks
        self._ended: Callable[[], None] | None = ended

    def __aiter__(self) -> "CountedChunks":
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._chunks.__anext__()

    async def aclose(self) -> None:
        close = getattr(self._chunks, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            ended, self._ended = self._ended, None
            if ended is not None:
                ended()


async def until(chunks: AsyncIterator[bytes], gone: asyncio.Event) -> AsyncIterator[bytes]:
    """Yields the chunks of a watch until its resource is no longer served."""
    ended = asyncio.ensure_future(gone.wait())
    following: asyncio.Future[bytes] | None = None
    try:
        while not gone.is_set():
            following = asyncio.ensure_future(_following(chunks))
            await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            if not (chunk := following.result()):
                return
            yield chunk
    finally:
        ended.cancel()
        if following is not None and not following.done():
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


async def _following(chunks: AsyncIterator[bytes]) -> bytes:
    """Returns the next chunk; none at the end."""
    return await anext(chunks, b"")
