"""The words that the API server and a store exchange.

A store is one totally ordered log of changes to keys. A *revision* numbers each change: it is global, strictly
increasing and never reused. Readers see the state at a revision; watchers get every change after one.

    StorageError
    ├── KeyExists        create: the key is there already
    ├── Stale            update, delete: the key is gone or has another revision than expected
    ├── Gone             list, watch: the revision asked for is below the kept window
    ├── NotYet           list: the revision asked for has not happened
    ├── TooLarge         create, update: the value is larger than a store takes; nothing was written
    ├── SlowWatcher      watch: the reader fell too far behind and was cut; resume from its last revision
    ├── StoreFull        write: no space; nothing was written, reads go on, a later write may succeed
    └── StoreUnavailable write or read: no answer; a write may or may not have happened
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

Derived = TypeVar("Derived")


class Item(msgspec.Struct, frozen=True, gc=False):
    """A key's value as of `revision`, the change that wrote it; `created` is the revision that created the key.

    There is one for every object of a cluster, and it refers to nothing: the garbage collector need not know it.
    """

    key: str
    value: bytes
    revision: int
    created: int
    stale: bool = False
    """It is encrypted with an old key: writing it again is worth a revision, even if nothing changes."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the log. `item` is None for a deletion, `previous` None for a creation.

    Every watcher is handed the same Change, so what one reader derives from it (`notes`) serves all. A change may stay
    in a history for hours, and what was derived from it is many times its size: the notes exist only from `share` to
    `unshare`, which the store calls around the time in which most watchers read it.
    """

    revision: int
    key: str
    item: Item | None
    previous: Item | None
    notes: dict[Any, Any] | None = field(default=None, compare=False, repr=False)

    def share(self) -> None:
        object.__setattr__(self, "notes", {})

    def unshare(self) -> None:
        object.__setattr__(self, "notes", None)

    def derived(self, name: Any, derive: Callable[[], Derived]) -> Derived:
        """Returns what `derive` returns, called once for all readers while the change is shared."""
        notes = self.notes  # large frames are derived by a thread, during which the change may be unshared
        if notes is None:
            return derive()
        if name not in notes:
            notes[name] = derive()
        value: Derived = notes[name]
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """A text of every item under a prefix, by which a store finds items and chooses the watches that want a change.

    Two fields with the same name read the same text.
    """

    name: str
    read: Callable[[Item], str] = field(compare=False, repr=False)
    """Called with any item under the prefix; must not raise."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, and the text that it must have or must not have."""

    field: Field
    text: str
    equal: bool = True

    def accepts(self, text: str) -> bool:
        return (text == self.text) is self.equal


def has_texts(item: Item, conditions: Iterable[Condition]) -> bool:
    """Returns whether an item meets all conditions; each field is read once."""
    texts: dict[str, str] = {}
    for condition in conditions:
        name = condition.field.name
        if name not in texts:
            texts[name] = condition.field.read(item)
        if not condition.accepts(texts[name]):
            return False
    return True


def text_of(change: Change, item: Item, field: Field) -> str:
    """Returns a field's text of an item of a change, read once for all readers while the change is shared."""
    return change.derived((item.revision, field.name), lambda: field.read(item))


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing, all of it as of `revision`, in key order. `more`: there are further keys after the last."""

    items: tuple[Item, ...]
    revision: int
    more: bool
    remaining: int = 0


class Watch(Protocol):
    """A subscription: every change under a prefix after a revision, in order, once each, without a gap."""

    @property
    def revision(self) -> int:
        """All changes up to this revision were handed out by `next` (so a bookmark may say it)."""
        ...

    async def next(self) -> list[Change]:
        """The next changes, at least one; waits for them. Raises SlowWatcher, Gone or StoreUnavailable at the end."""
        ...

    def drain(self) -> list[Change]:
        """The changes that `next` would return at once, perhaps none; raises as `next` does."""
        ...

    def close(self) -> None: ...


class StorageError(Exception):
    """Base of all that a store refuses."""


class KeyExists(StorageError):
    def __init__(self, key: str) -> None:
        super().__init__(f"{key} exists")
        self.key = key


class Stale(StorageError):
    """`current` is what the key holds now, None when it is gone."""

    def __init__(self, key: str, current: Item | None) -> None:
        super().__init__(f"{key} is at revision {current.revision}" if current else f"{key} is gone")
        self.key = key
        self.current = current


class Gone(StorageError):
    """`oldest` is the smallest revision that can still be asked for."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")
        self.revision = revision
        self.oldest = oldest


class NotYet(StorageError):
    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"Too large resource version: {revision}, current: {current}")
        self.revision = revision
        self.current = current


class TooLarge(StorageError):
    def __init__(self, key: str, size: int, limit: int) -> None:
        super().__init__(f"{key}: {size} bytes are more than the {limit} that a store takes")
        self.key = key
        self.size = size
        self.limit = limit


class SlowWatcher(StorageError):
    """The watcher's queue overflowed; a slow watcher is disconnected, never waited for."""


class StoreFull(StorageError):
    """No space left; nothing was written."""


class StoreUnavailable(StorageError):
    """The store did not answer; the outcome of a write is unknown."""
