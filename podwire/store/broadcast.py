"""Broadcasts changes to watches: each gets the changes under its prefix, in order, exactly once, and none waits for
another.

Subscribers are indexed by prefix, and a change looks up each prefix of its own key ('/', '/registry/', …, the key
itself): a thousand watches elsewhere cost a change nothing. All subscribers get the same `Change` object.

How a watch begins, falls behind and resumes:

| situation                               | what happens                                                        |
|-----------------------------------------|---------------------------------------------------------------------|
| subscribe after R, R >= history's floor | replays the changes above R, then live ones                         |
| subscribe after R, R below the floor    | Gone: the client lists, and watches from the list's revision        |
| the reader falls `queue` changes behind | cut: unread changes are dropped, `next` raises SlowWatcher          |
| after a cut                             | `revision` is the last change handed out: resume there without a gap |
| the history restarts (etcd restored)    | `next` raises Gone once the queued changes are read                 |
| the store closes                        | `next` raises StoreUnavailable once the queued changes are read     |

The replay does not count against the queue. A slow reader therefore costs at most `queue` references
to changes, and never delays a write.
"""

import asyncio
from collections.abc import Iterable, Iterator

from podwire.protocols.storage import Change, Gone, SlowWatcher, StorageError
from podwire.store.history import History

QUEUE = 4096
"""Changes that a subscriber may fall behind."""


class Subscription:
    """A watch (podwire.protocols.storage.Watch); one reader at a time."""

    __slots__ = ("_broadcaster", "_capacity", "_ended", "_queue", "_stopped_at", "_waiter", "after", "prefix")

    def __init__(self, broadcaster: "Broadcaster", prefix: str, after: int, backlog: list[Change]) -> None:
        self.prefix = prefix
        self._broadcaster = broadcaster
        self.after = after
        self._queue = backlog
        self._capacity = broadcaster.queue + len(backlog)
        self._waiter: asyncio.Future[None] | None = None
        self._ended: StorageError | None = None
        self._stopped_at: int | None = None

    @property
    def revision(self) -> int:
        """All changes up to this revision were returned by `next`."""
        if self._queue:
            return self._queue[0].revision - 1
        if self._stopped_at is not None:
            return self._stopped_at
        return max(self.after, self._broadcaster.history.revision)

    async def next(self) -> list[Change]:
        """Returns all queued changes, at least one; raises the error that ended the watch."""
        while not (batch := self.drain()):
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return batch

    def drain(self) -> list[Change]:
        """Returns the queued changes, perhaps none; raises the error that ended the watch."""
        if not self._queue:
            if self._ended is not None:
                raise self._ended
            return []
        batch, self._queue = self._queue, []
        self._capacity = self._broadcaster.queue
        return batch

    def close(self) -> None:
        self._broadcaster.end(self, StorageError("the watch is closed"), drop=True)

    def push(self, change: Change) -> bool:
        """Queues a change; returns False when the queue is full."""
        if change.revision <= self.after:
            return True
        if len(self._queue) >= self._capacity:
            return False
        self._queue.append(change)
        self._wake()
        return True

    def stop(self, reason: StorageError, *, drop: bool) -> None:
        """Makes `next` raise `reason`, after the queued changes unless they are dropped."""
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


class Broadcaster:
    """Delivers the changes of a history to its subscribers; synchronous, on the event loop."""

    def __init__(self, history: History, *, queue: int = QUEUE) -> None:
        self.history = history
        self.queue = queue
        self._subscribers: dict[str, dict[Subscription, None]] = {}

    def subscribe(self, prefix: str, after: int) -> Subscription:
        """Returns a watch on changes under `prefix` above `after`, starting with the history; raises Gone."""
        subscription = Subscription(self, prefix, after, self.history.after(after, prefix))
        self._subscribers.setdefault(prefix, {})[subscription] = None
        return subscription

    def publish(self, changes: Iterable[Change]) -> None:
        """Delivers changes that were just appended to the history."""
        for change in changes:
            slow = [
                subscriber
                for prefix in _prefixes(change.key)
                for subscriber in self._subscribers.get(prefix, ())
                if not subscriber.push(change)
            ]
            for subscriber in slow:
                behind = SlowWatcher(f"the watch on {subscriber.prefix} fell {self.queue} changes behind")
                self.end(subscriber, behind, drop=True)

    def end(self, subscription: Subscription, reason: StorageError, *, drop: bool) -> None:
        """Ends one watch; idempotent."""
        filed = self._subscribers.get(subscription.prefix, {})
        filed.pop(subscription, None)
        if not filed:
            self._subscribers.pop(subscription.prefix, None)
        subscription.stop(reason, drop=drop)

    def restart(self, floor: int) -> None:
        """Restarts the history above `floor`: watches that need older changes end with Gone after their queued
        changes."""
        for filed in list(self._subscribers.values()):
            for subscriber in list(filed):
                if subscriber.after < floor:
                    self.end(subscriber, Gone(subscriber.revision, floor), drop=False)
        self.history.restart(floor)

    def end_all(self, reason: StorageError) -> None:
        """Ends every watch after its queued changes."""
        for filed in list(self._subscribers.values()):
            for subscriber in list(filed):
                self.end(subscriber, reason, drop=False)


def _prefixes(key: str) -> Iterator[str]:
    at = key.find("/")
    while at >= 0:
        yield key[: at + 1]
        at = key.find("/", at + 1)
    yield key
