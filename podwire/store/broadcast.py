"""Broadcasts changes to watches: each gets the changes under its prefix, in order, exactly once, and none waits for
another.

Subscribers are indexed by prefix, and a change looks up each prefix of its own key ('/', '/registry/', …, the key
itself): a thousand watches elsewhere cost a change nothing. Within a prefix, subscribers with a trigger are indexed by
its field and text: the kubelets of a thousand other nodes cost a pod's change nothing either. All subscribers get the
same `Change` object.

How a watch begins, falls behind and resumes:

| situation                                  | what happens                                                        |
|--------------------------------------------|---------------------------------------------------------------------|
| subscribe after R, R >= history's floor    | replays the changes above R, then live ones                         |
| subscribe after R, R below the floor       | Gone: the client lists, and watches from the list's revision        |
| the reader falls `queue` changes or        | cut: unread changes are dropped, `next` raises SlowWatcher          |
| `QUEUE_BYTES` of their values behind       |                                                                     |
| after a cut                                | `revision` is the last change handed out: resume there without a gap |
| the history restarts (etcd restored)       | `next` raises Gone once the queued changes are read                 |
| the store closes                           | `next` raises StoreUnavailable once the queued changes are read     |

The replay does not count against the queue. A slow reader therefore costs at most `queue` references
to changes, and never delays a write.

Readers are woken in groups of `WAKE`, one group in each iteration of the event loop. So a write, whose steps take an
iteration each, waits for a few groups and not for a thousand readers; and a reader that waits for its turn finds all
changes of the meantime, and sends them in one go.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from podwire.protocols.storage import Change, Condition, Field, Gone, Item, SlowWatcher, StorageError, text_of
from podwire.store.history import History

QUEUE = 4096
"""Changes that a subscriber may fall behind."""

QUEUE_BYTES = 32 << 20
"""Bytes of values that a subscriber may fall behind."""

SHARED = 1024
SHARED_BYTES = 4 << 20
"""Encoded forms of a change are kept for the last so many changes, and so many bytes of their values."""

WAKE = 16
"""Readers that are woken in one iteration of the event loop."""


class Subscription:
    """A watch (podwire.protocols.storage.Watch); one reader at a time."""

    __slots__ = (
        "_broadcaster",
        "_capacity",
        "_ended",
        "_queue",
        "_size",
        "_stopped_at",
        "_waiter",
        "after",
        "prefix",
        "trigger",
    )

    def __init__(
        self, broadcaster: "Broadcaster", prefix: str, after: int, trigger: Condition | None, backlog: list[Change]
    ) -> None:
        self.prefix = prefix
        self.trigger = trigger
        self._broadcaster = broadcaster
        self.after = after
        self._queue = backlog
        self._capacity = broadcaster.queue + len(backlog)
        self._size = 0
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
        batch, self._queue, self._size = self._queue, [], 0
        self._capacity = self._broadcaster.queue
        return batch

    def close(self) -> None:
        self._broadcaster.end(self, StorageError("the watch is closed"), drop=True)

    def push(self, change: Change) -> bool:
        """Queues a change; returns False when the queue is full."""
        if change.revision <= self.after:
            return True
        if len(self._queue) >= self._capacity or self._size >= QUEUE_BYTES:
            return False
        self._queue.append(change)
        self._size += _size(change)
        if self._waiter is not None and len(self._queue) == 1:
            self._broadcaster.wake_soon(self)
        return True

    def stop(self, reason: StorageError, *, drop: bool) -> None:
        """Makes `next` raise `reason`, after the queued changes unless they are dropped."""
        if self._ended is not None:
            return
        self._stopped_at = self.revision if drop or not self._queue else self._queue[-1].revision
        if drop:
            self._queue = []
        self._ended = reason
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Broadcaster:
    """Delivers the changes of a history to its subscribers; synchronous, on the event loop."""

    def __init__(self, history: History, *, queue: int = QUEUE) -> None:
        self.history = history
        self.queue = queue
        self._subscribers: dict[str, dict[Subscription, None]] = {}
        self._triggered: dict[str, dict[Field, dict[str, dict[Subscription, None]]]] = {}
        self._shared: deque[Change] = deque()
        self._shared_size = 0
        self._to_wake: deque[Subscription] = deque()
        self._wakes_left = WAKE

    def subscribe(self, prefix: str, after: int, trigger: Condition | None = None) -> Subscription:
        """Returns a watch on changes under `prefix` above `after`, starting with the history; raises Gone.

        With a trigger, later changes that do not meet it, neither now nor before, are left out.
        """
        subscription = Subscription(self, prefix, after, trigger, self.history.after(after, prefix))
        if trigger is None:
            subscribers = self._subscribers.setdefault(prefix, {})
        else:
            texts = self._triggered.setdefault(prefix, {}).setdefault(trigger.field, {})
            subscribers = texts.setdefault(trigger.text, {})
        subscribers[subscription] = None
        return subscription

    def publish(self, changes: Iterable[Change]) -> None:
        """Delivers changes that were just appended to the history."""
        for change in changes:
            self._share(change)
            slow = [
                subscriber
                for prefix in _prefixes(change.key)
                for subscriber in self._subscribers.get(prefix, ())
                if not subscriber.push(change)
            ]
            if self._triggered:
                slow += [subscriber for subscriber in self._triggered_by(change) if not subscriber.push(change)]
            for subscriber in slow:
                behind = SlowWatcher(f"the watch on {subscriber.prefix} fell {self.queue} changes behind")
                self.end(subscriber, behind, drop=True)

    def _triggered_by(self, change: Change) -> Iterator[Subscription]:
        for prefix in _prefixes(change.key):
            for field, by_text in self._triggered.get(prefix, {}).items():
                texts = {text_of(change, item, field) for item in (change.item, change.previous) if item is not None}
                for text in texts:
                    yield from by_text.get(text, ())

    def _share(self, change: Change) -> None:
        """Shares a change among its readers, and no longer the ones that most have read."""
        change.share()
        self._shared.append(change)
        self._shared_size += _size(change)
        while len(self._shared) > SHARED or (self._shared_size > SHARED_BYTES and len(self._shared) > 1):
            oldest = self._shared.popleft()
            oldest.unshare()
            self._shared_size -= _size(oldest)

    def wake_soon(self, subscription: Subscription) -> None:
        """Wakes a waiting reader, now or when it is its turn."""
        if self._wakes_left:
            self._wakes_left -= 1
            subscription.wake()
            return
        self._to_wake.append(subscription)
        if len(self._to_wake) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Wakes the next group; comes once in each iteration of the event loop while readers wait for their turn."""
        group = min(WAKE, len(self._to_wake))
        self._wakes_left = WAKE - group
        for _ in range(group):
            self._to_wake.popleft().wake()
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def end(self, subscription: Subscription, reason: StorageError, *, drop: bool) -> None:
        """Ends one watch; idempotent."""
        prefix, trigger = subscription.prefix, subscription.trigger
        if trigger is None:
            _discard(self._subscribers, prefix, subscription)
        else:
            fields = self._triggered.get(prefix, {})
            texts = fields.get(trigger.field, {})
            _discard(texts, trigger.text, subscription)
            if not texts:
                fields.pop(trigger.field, None)
            if not fields:
                self._triggered.pop(prefix, None)
        subscription.stop(reason, drop=drop)

    def restart(self, floor: int) -> None:
        """Restarts the history above `floor`: watches that need older changes end with Gone after their queued
        changes."""
        for subscriber in self._all():
            if subscriber.after < floor:
                self.end(subscriber, Gone(subscriber.revision, floor), drop=False)
        self.history.restart(floor)

    def end_all(self, reason: StorageError) -> None:
        """Ends every watch after its queued changes."""
        for subscriber in self._all():
            self.end(subscriber, reason, drop=False)

    def _all(self) -> list[Subscription]:
        triggered = (by_text for fields in self._triggered.values() for by_text in fields.values())
        groups = [*self._subscribers.values(), *(group for by_text in triggered for group in by_text.values())]
        return [subscriber for group in groups for subscriber in group]


def _discard(groups: dict[str, dict[Subscription, None]], name: str, subscription: Subscription) -> None:
    group = groups.get(name, {})
    group.pop(subscription, None)
    if not group:
        groups.pop(name, None)


def _size(change: Change) -> int:
    newest: Item | None = change.item or change.previous
    return len(newest.value) if newest else 0


def _prefixes(key: str) -> Iterator[str]:
    at = key.find("/")
    while at >= 0:
        yield key[: at + 1]
        at = key.find("/", at + 1)
    yield key
