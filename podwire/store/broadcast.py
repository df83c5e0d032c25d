"""Watches: every subscriber gets the changes under its prefix, in order, once each, and nobody waits for anybody.

Subscribers are filed by prefix, and a change looks under each prefix of its own key ('/', '/registry/', …, the key
itself): a thousand watches elsewhere cost a change nothing. All get the same `Change`.

A subscriber has a bounded queue. When it overflows, the subscriber is cut with SlowWatcher and what it had not read
is dropped; it can resume from its `revision`. The replay that a resumed watch begins with does not count.
"""

import asyncio
from collections.abc import Iterable, Iterator

from podwire.protocols.storage import Change, Gone, SlowWatcher, StorageError
from podwire.store.history import History

QUEUE = 4096
"""Changes that a subscriber may fall behind."""


class Subscription:
    """A watch (see podwire.protocols.storage.Watch); one reader at a time."""

    __slots__ = ("_ended", "_feed", "_queue", "_room", "_stopped_at", "_waiter", "after", "prefix")

    def __init__(self, feed: "Feed", prefix: str, after: int, backlog: list[Change]) -> None:
        self.prefix = prefix
        self._feed = feed
        self.after = after
        self._queue = backlog
        self._room = feed.queue + len(backlog)
        self._waiter: asyncio.Future[None] | None = None
        self._ended: StorageError | None = None
        self._stopped_at: int | None = None

    @property
    def revision(self) -> int:
        """All changes up to this revision were handed out by `next`."""
        if self._queue:
            return self._queue[0].revision - 1
        if self._stopped_at is not None:
            return self._stopped_at
        return max(self.after, self._feed.history.revision)

    async def next(self) -> list[Change]:
        """All that is queued, at least one; raises what ended the watch."""
        while not self._queue:
            if self._ended is not None:
                raise self._ended
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch, self._queue = self._queue, []
        self._room = self._feed.queue
        return batch

    def close(self) -> None:
        self._feed.end(self, StorageError("the watch is closed"), drop=True)

    def push(self, change: Change) -> bool:
        """Queue a change; False when there is no room."""
        if change.revision <= self.after:
            return True
        if len(self._queue) >= self._room:
            return False
        self._queue.append(change)
        self._wake()
        return True

    def stop(self, reason: StorageError, *, drop: bool) -> None:
        """Let `next` raise `reason`, after what is queued unless that is dropped."""
        if self._ended is not None:
            return
        self._stopped_at = self.revision if drop or not self._queue else self._queue[-1].revision
        if drop:
            self._queue = []
        self._ended = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Feed:
    """Hands what is appended to a history to its subscribers; synchronous, on the event loop."""

    def __init__(self, history: History, *, queue: int = QUEUE) -> None:
        self.history = history
        self.queue = queue
        self._subscribers: dict[str, dict[Subscription, None]] = {}

    def subscribe(self, prefix: str, after: int) -> Subscription:
        """Changes under `prefix` above `after`, first from the history; raises Gone."""
        subscription = Subscription(self, prefix, after, self.history.after(after, prefix))
        self._subscribers.setdefault(prefix, {})[subscription] = None
        return subscription

    def publish(self, changes: Iterable[Change]) -> None:
        """Tell the subscribers of changes that the history has just got."""
        for change in changes:
            slow = [
                each
                for prefix in _prefixes(change.key)
                for each in self._subscribers.get(prefix, ())
                if not each.push(change)
            ]
            for each in slow:
                behind = SlowWatcher(f"the watch on {each.prefix} fell {self.queue} changes behind")
                self.end(each, behind, drop=True)

    def end(self, subscription: Subscription, reason: StorageError, *, drop: bool) -> None:
        """End one watch; a second end changes nothing."""
        filed = self._subscribers.get(subscription.prefix, {})
        filed.pop(subscription, None)
        if not filed:
            self._subscribers.pop(subscription.prefix, None)
        subscription.stop(reason, drop=drop)

    def restart(self, floor: int) -> None:
        """Begin anew above `floor`: a watch that asked for more ends with Gone, after what is queued for it."""
        for filed in list(self._subscribers.values()):
            for each in list(filed):
                if each.after < floor:
                    self.end(each, Gone(each.revision, floor), drop=False)
        self.history.restart(floor)

    def end_all(self, reason: StorageError) -> None:
        """End every watch once its reader has what is queued for it."""
        for filed in list(self._subscribers.values()):
            for each in list(filed):
                self.end(each, reason, drop=False)


def _prefixes(key: str) -> Iterator[str]:
    at = key.find("/")
    while at >= 0:
        yield key[: at + 1]
        at = key.find("/", at + 1)
    yield key
