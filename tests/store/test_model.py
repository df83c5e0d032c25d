"""Random walks through a store, compared step by step with a model that keeps everything."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from podwire.protocols.storage import Change, Gone, Item, KeyExists, NotYet, Stale, Watch
from podwire.store import AnyStore, MemoryStore
from podwire.store.sqlite import SqliteStore

KEYS = st.sampled_from([f"/registry/{name}" for name in ("pods/a/1", "pods/a/2", "pods/b/1", "secrets/a/1")])
PREFIXES = st.sampled_from(["/registry/", "/registry/pods/", "/registry/pods/a/", "/registry/secrets/"])


class StoreModel(RuleBasedStateMachine):
    """Model of any store: the list of all changes and the floor."""

    async def open(self) -> AnyStore:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.store = self.runner.run(self.open())
        self.log: list[Change] = []
        self.floor = 1
        self.watches: list[tuple[Watch, str, int, list[Change]]] = []

    def state(self, at: int) -> dict[str, Item]:
        state: dict[str, Item] = {}
        for change in self.log:
            if change.revision <= at:
                state.pop(change.key, None)
                if change.item is not None:
                    state[change.key] = change.item
        return state

    @property
    def newest(self) -> int:
        return self.log[-1].revision if self.log else 1

    @rule(key=KEYS, value=st.binary(max_size=4))
    def create(self, key: str, value: bytes) -> None:
        if key in self.state(self.newest):
            with pytest.raises(KeyExists):
                self.runner.run(self.store.create(key, value))
            return
        item = self.runner.run(self.store.create(key, value))
        assert item == Item(key, value, self.newest + 1, self.newest + 1)
        self.log.append(Change(item.revision, key, item, None))

    @rule(key=KEYS, value=st.binary(max_size=4), off=st.sampled_from([0, 0, 0, -1, 1]))
    def update(self, key: str, value: bytes, off: int) -> None:
        current = self.state(self.newest).get(key)
        if current is None or off:
            with pytest.raises(Stale) as refused:
                self.runner.run(self.store.update(key, value, expected=(current.revision if current else 0) + off))
            assert refused.value.current == current
            return
        item = self.runner.run(self.store.update(key, value, expected=current.revision))
        assert item == Item(key, value, self.newest + 1, current.created)
        self.log.append(Change(item.revision, key, item, current))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        current = self.state(self.newest).get(key)
        if current is None:
            with pytest.raises(Stale):
                self.runner.run(self.store.delete(key, expected=self.newest))
            return
        revision = self.runner.run(self.store.delete(key, expected=current.revision))
        assert revision == self.newest + 1
        self.log.append(Change(revision, key, None, current))

    @rule(prefix=PREFIXES, back=st.integers(-2, 12), limit=st.integers(0, 3))
    def list_at(self, prefix: str, back: int, limit: int) -> None:
        at = self.newest - back
        if at < self.floor or at > self.newest:
            with pytest.raises(Gone if at < self.floor else NotYet):
                self.runner.run(self.store.list(prefix, at=at, limit=limit))
            return
        expected = [item for key, item in sorted(self.state(at).items()) if key.startswith(prefix)]
        page = self.runner.run(self.store.list(prefix, at=at, limit=limit))
        shown = expected[: limit or None]
        assert (list(page.items), page.remaining, page.revision) == (shown, len(expected) - len(shown), at)

    @rule(prefix=PREFIXES, back=st.integers(-1, 12))
    def watch(self, prefix: str, back: int) -> None:
        after = self.newest - back
        if after < self.floor:
            with pytest.raises(Gone):
                self.store.watch(prefix, after=after)
            return
        self.watches.append((self.store.watch(prefix, after=after), prefix, after, []))

    @rule()
    def read_watches(self) -> None:
        for watch, prefix, after, seen in self.watches:
            expected = [item for item in self.log if item.revision > after and item.key.startswith(prefix)]
            while len(seen) < len(expected):
                seen.extend(self.runner.run(asyncio.wait_for(watch.next(), 20)))
            assert seen == expected
            assert watch.revision == max(after, self.newest)

    @rule(back=st.integers(0, 12))
    def compact(self, back: int) -> None:
        self.floor = max(self.floor, self.newest - back)
        self.runner.run(self.store.compact(self.newest - back))

    @invariant()
    def the_present_is_right(self) -> None:
        state = self.state(self.newest)
        assert self.runner.run(self.store.list("/registry/")).items == tuple(item for _, item in sorted(state.items()))
        assert self.store.revision == self.newest

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.store.close())
            self.runner.close()


class MemoryModel(StoreModel):
    async def open(self) -> AnyStore:
        return MemoryStore()


class SqliteModel(StoreModel):
    """Also closed and opened again, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="podwire-model-"))

    async def open(self) -> AnyStore:
        return await SqliteStore.open(self.directory)

    @rule()
    def reopen(self) -> None:
        self.read_watches()
        self.watches.clear()
        self.runner.run(self.store.close())
        self.store = self.runner.run(self.open())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


MemoryModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
SqliteModel.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)


class TestMemory(MemoryModel.TestCase):
    pass


class TestSqlite(SqliteModel.TestCase):
    pass
