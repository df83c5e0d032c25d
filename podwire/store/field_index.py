"""Finds items by a field's text without reading all of them: the pods of a node, the events about an object.

An index costs writes nothing. It remembers the revision that it is at, and when it is asked for something, it reads the
changes since then from the history; when these are gone, it is built again. Building yields to other tasks.
"""

import asyncio
from collections.abc import Sequence

from podwire.protocols.storage import Condition, Field, Gone, Item, Page, has_texts
from podwire.store.versions import Versions
from podwire.tasks.slices import in_slices

MOST_INDEXES = 32
"""Indexes of a store; the one that was not used for longest gives way."""

INDEXED_CONDITIONS = 4
"""Fields of one query that are looked up in an index; further ones are read from the items that are left."""

AT_ONCE = 64
"""Changes that are caught up with in one go."""


class FieldIndex:
    """The keys under a prefix by the text of one field, as of `revision`."""

    def __init__(self, versions: Versions, prefix: str, field: Field) -> None:
        self.revision = -1
        self._versions = versions
        self._prefix = prefix
        self._field = field
        self._texts: dict[str, str] = {}
        self._keys: dict[str, set[str]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def current(self) -> bool:
        return self.revision == self._versions.revision

    async def refresh(self) -> None:
        """Catches up with the store; up to date when it returns, as long as the caller does not wait for anything."""
        while not self.current:
            async with self._refreshing:
                try:
                    changes = self._versions.history.after(self.revision, self._prefix)
                except Gone:
                    await self._build()
                    continue
                for change in changes[:AT_ONCE]:
                    self._put(change.key, change.item)
                    self.revision = change.revision
                if len(changes) <= AT_ONCE:
                    self.revision = self._versions.revision
                else:
                    await asyncio.sleep(0)

    def keys(self, conditions: Sequence[Condition]) -> set[str]:
        """Returns the keys whose text meets all conditions, which are about this field."""
        exact = next((condition.text for condition in conditions if condition.equal), None)
        texts = list(self._keys) if exact is None else [exact]
        accepted = [text for text in texts if all(condition.accepts(text) for condition in conditions)]
        return set[str]().union(*(self._keys.get(text, ()) for text in accepted))

    async def _build(self) -> None:
        page = self._versions.page(self._prefix)
        self.revision = -1  # should the build be cancelled, the next one starts afresh
        self._texts, self._keys = {}, {}
        async for item in in_slices(page.items):
            self._put(item.key, item)
        self.revision = page.revision

    def _put(self, key: str, item: Item | None) -> None:
        text = None if item is None else self._field.read(item)
        before = self._texts.get(key)
        if text == before:
            return
        if before is not None:
            keys = self._keys[before]
            keys.discard(key)
            if not keys:
                del self._keys[before]
        if text is None:
            del self._texts[key]
        else:
            self._keys.setdefault(text, set()).add(key)
            self._texts[key] = text


class FieldIndexes:
    """The indexes of a store, each made when it is first asked for."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._indexes: dict[tuple[str, str], FieldIndex] = {}

    async def select(self, prefix: str, conditions: Sequence[Condition], scope: str) -> Page:
        """Returns the present items under `scope`, itself under `prefix`, that meet all conditions; in order."""
        by_field: dict[Field, list[Condition]] = {}
        for condition in conditions:
            by_field.setdefault(condition.field, []).append(condition)
        indexed = list(by_field)[:INDEXED_CONDITIONS]
        unread = [condition for field in list(by_field)[INDEXED_CONDITIONS:] for condition in by_field[field]]
        indexes = {field: self._index(prefix, field) for field in indexed}
        while not all(index.current for index in indexes.values()):
            for index in indexes.values():
                await index.refresh()
        keys = set[str].intersection(*(index.keys(by_field[field]) for field, index in indexes.items()))
        revision = self._versions.revision
        items = [item for key in sorted(keys) if key.startswith(scope) and (item := self._versions.get(key))]
        if unread:
            items = [item async for item in in_slices(items) if has_texts(item, unread)]
        return Page(tuple(items), revision, more=False)

    def _index(self, prefix: str, field: Field) -> FieldIndex:
        name = prefix, field.name
        index = self._indexes.pop(name, None) or FieldIndex(self._versions, prefix, field)
        self._indexes[name] = index
        while len(self._indexes) > MOST_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        return index
