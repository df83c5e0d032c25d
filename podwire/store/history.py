"""The changes since compaction, in order: replayed by watches, undone by reads of the past.

One log serves both. A `Change` carries the previous item of its key, so the state at an earlier revision is the present
with the later changes undone, and no key needs a chain of versions. Changes are also indexed by the first two segments
of their key (`/registry/pods/`): resuming a watch on quiet secrets does not scan a day of busy leases.
"""

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from podwire.protocols.storage import Change, Gone

FIRST_REVISION = 1
"""The revision of an empty store, as in etcd: an empty list must not return 0, which means "any" in the API."""

CHANGE_OVERHEAD = 512
"""Memory of a change besides its value: the change, its item, its key and the list entries."""

_MARK_SECONDS = 1.0
_revision = attrgetter("revision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The retained history: the changes of the last `seconds`, but never more than `revisions` or `size` bytes.

    Five minutes are the interval of Kubernetes' compactor of etcd. Clients count on both: a watch may resume and a
    list continue after a while, and what is older expires, so that a client which waits for it makes progress.
    """

    seconds: float = 300.0
    revisions: int = 50_000
    size: int = 32 << 20


def under(prefix: str, key: str) -> bool:
    """Returns whether a watch on `prefix` covers `key`: below it when that ends in '/', else the exact key."""
    return key.startswith(prefix) if prefix.endswith("/") else key == prefix


class History:
    """Every change above `floor`, oldest first."""

    def __init__(self, floor: int = FIRST_REVISION, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.floor = floor
        self.revision = floor
        self.size = 0
        self._clock = clock
        self._changes: list[Change] = []
        self._by_bucket: dict[str, list[Change]] = {}
        self._marks: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, change: Change) -> None:
        self._changes.append(change)
        self._by_bucket.setdefault(_bucket(change.key), []).append(change)
        self.revision = change.revision
        self.size += _cost(change)
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, change.revision))

    def after(self, revision: int, prefix: str) -> list[Change]:
        """Returns the changes under `prefix` above `revision`; raises Gone below the floor."""
        if revision < self.floor:
            raise Gone(revision, self.floor)
        filed = self._by_bucket.get(bucket, []) if (bucket := _bucket(prefix)) else self._changes
        later = filed[bisect_right(filed, revision, key=_revision) :]
        return later if prefix == bucket else [change for change in later if under(prefix, change.key)]

    def forget(self, revision: int) -> list[Change]:
        """Raises the floor to `revision`; returns the changes that were removed."""
        count = bisect_right(self._changes, revision, key=_revision)
        forgotten = self._changes[:count]
        del self._changes[:count]
        for bucket, number in Counter(_bucket(change.key) for change in forgotten).items():
            del self._by_bucket[bucket][:number]
            if not self._by_bucket[bucket]:
                del self._by_bucket[bucket]
        self.size -= sum(map(_cost, forgotten))
        dated = bisect_right(self._marks, revision, key=itemgetter(1))
        del self._marks[: max(0, dated - 1)]  # the last of these still dates the following changes
        self.floor = max(self.floor, revision)
        return forgotten

    def restart(self, floor: int) -> None:
        """Removes everything and starts again above `floor`."""
        self.forget(self.revision)
        self.floor = self.revision = floor
        self._marks.clear()

    def surplus(self, window: Window) -> int:
        """Returns the revision up to which changes exceed the window."""
        count = max(0, len(self._changes) - window.revisions, self._older_than(window.seconds))
        size = self.size - sum(map(_cost, self._changes[:count]))
        while size > window.size and count < len(self._changes):
            size -= _cost(self._changes[count])
            count += 1
        return self._changes[count - 1].revision if count else self.floor

    def _older_than(self, seconds: float) -> int:
        """Returns how many changes are older, to the second: those before the first younger time mark."""
        horizon = self._clock() - seconds
        young = next((revision for at, revision in self._marks if at >= horizon), None)
        if young is None:
            return len(self._changes)
        return bisect_right(self._changes, young - 1, key=_revision)


def _bucket(key: str) -> str:
    """Returns the index bucket of a key: `/registry/pods/` of `/registry/pods/default/web`; empty for a shorter key."""
    first = key.find("/", 1)
    return key[: key.find("/", first + 1) + 1] if first > 0 else ""


def _cost(change: Change) -> int:
    newest = change.item or change.previous
    return CHANGE_OVERHEAD + (len(newest.value) if newest else 0)
