"""EtcdStore: storage operations as etcd transactions and ranges.

Reads are linearizable and go to etcd; so do lists at a revision. Watches are fed by one watch on the whole prefix.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from podwire.protocols.storage import (
    Condition,
    Gone,
    Item,
    KeyExists,
    NotYet,
    Page,
    Stale,
    StorageError,
    StoreFull,
    StoreUnavailable,
    Watch,
)
from podwire.store.broadcast import QUEUE, Broadcaster
from podwire.store.cached import refuse_too_large
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.errors import CannotOpen
from podwire.store.etcd import compactor
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import parse
from podwire.store.etcd.client import Compacted, EtcdClient, Future, Limits
from podwire.store.etcd.layout import Layout, end_of, offset_key, restoring_key
from podwire.store.etcd.root_watch import RootWatch
from podwire.store.history import History, Window

ABSENT = 0
NEVER = -1

REPLAYED_AT_OPENING = 10_000
"""Revisions that are read from etcd when the store is opened, so that watches can resume."""
"""Revisions to compare with: etcd reports 0 for an absent key; no key ever has -1."""


class EtcdStore:
    """A store in an etcd cluster that may be shared with other API servers. Open with `EtcdStore.open`."""

    def __init__(
        self, client: EtcdClient, layout: Layout, history: History, *, keep: Window, queue: int, chunk: int
    ) -> None:
        self._client = client
        self._chunk = chunk
        self._full = ""
        self._layout = layout
        self._broadcaster = Broadcaster(history, queue=queue)
        self._seen = history.revision
        self._closed = False
        self._root = RootWatch(client, self._layout, self._broadcaster, keep)
        self._tasks = (
            asyncio.create_task(self._root.run(), name="watch etcd"),
            asyncio.create_task(compactor.run(client), name="compact etcd"),
        )

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        keep: Window | None = None,
        queue: int = QUEUE,
        limits: Limits | None = None,
        encryption: Encryption = PLAIN,
    ) -> "EtcdStore":
        """Opens the store; raises BadUrl, or CannotOpen when etcd does not answer or is too old."""
        address = parse(url)
        window = keep or Window()
        limits = limits or Limits()
        async with AsyncExitStack() as undo:
            client = EtcdClient(address, limits)
            undo.push_async_callback(client.close)
            try:
                version = (await client.status()).version
                if tuple(map(int, version.split(".")[:2])) < limits.oldest:
                    oldest = ".".join(map(str, limits.oldest))
                    raise CannotOpen(f"etcd is version {version}; {oldest} is the oldest that is supported")
                newest = (await client.range(pb.RangeRequest(key=b"\0", count_only=True))).header.revision
                floor = await _floor(client, newest, min(window.revisions, REPLAYED_AT_OPENING))
                offset = await _offset(client, address.prefix)
            except StorageError as error:
                raise CannotOpen(str(error)) from error
            undo.pop_all()
        layout = Layout(address.prefix, encryption, offset)
        store = cls(client, layout, History(layout.revision(floor)), keep=window, queue=queue, chunk=limits.chunk)
        store._observe_revision(newest)
        return store

    @property
    def revision(self) -> int:
        """The newest revision that any answer of etcd named."""
        return max(self._seen, self._broadcaster.history.revision)

    @property
    def failure(self) -> str:
        """Why the store is unhealthy; empty when it is healthy."""
        return self._root.failure or self._full

    @property
    def is_full(self) -> bool:
        """Whether etcd refuses writes for lack of space."""
        return not self._root.failure and bool(self._full)

    async def get(self, key: str) -> Item | None:
        self._refuse_when_closed()
        answer = await self._client.range(pb.RangeRequest(key=self._layout.raw(key)))
        self._observe_revision(answer.header.revision)
        return self._layout.item(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        """Keys under `prefix`; raises Gone or NotYet for `at`."""
        self._refuse_when_closed()
        if not prefix.endswith("/"):
            raise ValueError(f"a list is of a prefix that ends in '/', not of {prefix!r}")
        pinned = 0 if at is None else self._layout.raw_revision(at)
        if at is not None and pinned <= 0:  # etcd reads 0 as the newest revision
            raise Gone(at, self._broadcaster.history.floor)
        start = self._layout.raw(prefix)
        end = end_of(start)
        if after is not None:
            start = max(start, self._layout.raw(after) + b"\0")
        kvs: list[pb.KeyValue] = []
        while True:
            page_size = min(self._chunk, limit - len(kvs)) if limit else self._chunk
            request = pb.RangeRequest(key=start, range_end=end, limit=page_size, revision=pinned)
            answer = await self._range(request)
            pinned = pinned or answer.header.revision
            kvs += answer.kvs
            if not answer.more or len(kvs) == limit:
                break
            start = kvs[-1].key + b"\0"
        remaining = answer.count - len(answer.kvs)
        return Page(tuple(map(self._layout.item, kvs)), self._layout.revision(pinned), answer.more, remaining)

    async def create(self, key: str, value: bytes) -> Item:
        """Durable when it returns. Raises KeyExists."""
        refuse_too_large(key, value)
        put = pb.RequestOp(request_put=pb.PutRequest(key=self._layout.raw(key), value=self._layout.stored(key, value)))
        revision = self._layout.revision((await self._txn(key, None, [put])).header.revision)
        return Item(key, value, revision, revision)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Durable when it returns. Raises Stale."""
        refuse_too_large(key, value)
        raw = self._layout.raw(key)
        put = pb.RequestOp(request_put=pb.PutRequest(key=raw, value=self._layout.stored(key, value)))
        created = pb.RequestOp(request_range=pb.RangeRequest(key=raw, keys_only=True))
        answer = await self._txn(key, expected, [put, created])
        first = answer.responses[1].response_range.kvs[0].create_revision
        return Item(key, value, self._layout.revision(answer.header.revision), self._layout.revision(first))

    async def delete(self, key: str, *, expected: int) -> int:
        """The revision of the deletion, durable when it returns. Raises Stale."""
        remove = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._layout.raw(key)))
        return self._layout.revision((await self._txn(key, expected, [remove])).header.revision)

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None:  # noqa: ARG002 - etcd has no index
        """None: reads are etcd's own, and it has no index."""
        return None

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch:
        """Changes under `prefix` (or of one key, when it does not end in '/') above `after`; raises Gone."""
        self._refuse_when_closed()
        return self._broadcaster.subscribe(prefix, after, trigger)

    async def compact(self, revision: int) -> None:
        """Compacts below `revision`, here and in etcd."""
        self._refuse_when_closed()
        revision = min(revision, self.revision)
        await compactor.compact(self._client, self._layout.raw_revision(revision))
        self._broadcaster.history.forget(revision)

    async def close(self) -> None:
        """Ends the watch on etcd, all watches on this store, and the connections."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._broadcaster.end_all(StoreUnavailable("the store is closed"))
        await self._client.close()

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        try:
            answer = await self._client.range(request)
        except Compacted as error:
            revision = self._layout.revision(request.revision)
            raise Gone(revision, max(self._broadcaster.history.floor, revision + 1)) from error
        except Future as error:
            raise NotYet(self._layout.revision(request.revision), self.revision) from error
        self._observe_revision(answer.header.revision)
        return answer

    async def _txn(self, key: str, expected: int | None, then: Sequence[pb.RequestOp]) -> pb.TxnResponse:
        """Runs `then` if the key is at revision `expected` (None: absent); raises KeyExists or Stale."""
        self._refuse_when_closed()
        raw = self._layout.raw(key)
        wanted = ABSENT if expected is None else max(self._layout.raw_revision(expected), 0) or NEVER
        same = pb.Compare(target=pb.Compare.MOD, result=pb.Compare.EQUAL, key=raw, mod_revision=wanted)
        otherwise = pb.RequestOp(request_range=pb.RangeRequest(key=raw))
        try:
            answer = await self._client.txn(pb.TxnRequest(compare=[same], success=then, failure=[otherwise]))
        except StoreFull as error:
            self._full = str(error)
            raise
        self._observe_revision(answer.header.revision)
        if answer.succeeded and then[0].HasField("request_put"):
            self._full = ""
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            if expected is None:
                raise KeyExists(key)
            raise Stale(key, self._layout.item(found[0]) if found else None)
        return answer

    def _observe_revision(self, raw: int) -> None:
        self._seen = max(self._seen, self._layout.revision(raw))

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")


async def _offset(client: EtcdClient, prefix: str) -> int:
    """Returns the offset that a restore left; raises CannotOpen while a restore is incomplete."""
    if (await client.range(pb.RangeRequest(key=restoring_key(prefix)))).kvs:
        raise CannotOpen(f"a restore of {prefix} did not finish: run `podwire restore` again")
    found = (await client.range(pb.RangeRequest(key=offset_key(prefix)))).kvs
    return int(found[0].value) if found else 0


async def _floor(client: EtcdClient, newest: int, back: int) -> int:
    """Returns the lowest uncompacted revision, at most `back` below the newest, by binary search."""
    low, high = max(1, newest - back), newest
    probe = low  # usually nothing is compacted in between, and one probe suffices
    while low < high:
        if await _readable(client, probe):
            high = probe
        else:
            low = probe + 1
        probe = (low + high) // 2
    return high


async def _readable(client: EtcdClient, revision: int) -> bool:
    try:
        await client.range(pb.RangeRequest(key=b"\0", count_only=True, revision=revision))
    except Compacted:
        return False
    return True
