"""Writes a snapshot into an etcd whose prefix is empty.

etcd numbers its revisions itself, so the items get new ones. An offset lifts them above the snapshot's (layout.py).

| step                                                    | killed before the step                                  |
|---------------------------------------------------------|---------------------------------------------------------|
| 1. in one transaction: no key below the prefix, or a    | nothing was written                                     |
|    mark of an earlier restore → the mark and the offset |                                                         |
| 2. remove what an earlier restore left                  | stores refuse to open; the next restore starts again    |
| 3. write the items, one transaction each                | the same                                                |
| 4. compact: watches from before get 410 and list again  | the same                                                |
| 5. remove the mark                                      | the same                                                |
"""

import asyncio
from collections.abc import Iterable, Iterator

from podwire.protocols.storage import Item, StorageError
from podwire.store.encryption import Encryption
from podwire.store.errors import CannotOpen
from podwire.store.etcd import compactor
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import parse
from podwire.store.etcd.client import EtcdClient, Limits
from podwire.store.etcd.layout import Layout, offset_key, restoring_key
from podwire.store.snapshot import Snapshot

IN_FLIGHT = 32
"""Transactions at a time; etcd syncs those that arrive together to the disk together."""


async def restore(url: str, snapshot: Snapshot, encryption: Encryption) -> int:
    """Returns the revision of the restored store. Raises BadUrl and CannotOpen."""
    address = parse(url)
    client = EtcdClient(address, Limits())
    layout = Layout(address.prefix, encryption)
    try:
        offset = await _begin(client, layout, address.prefix, snapshot.revision)
        remove = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=layout.start, range_end=layout.end))
        await client.txn(pb.TxnRequest(success=[remove]))
        await _put(client, layout, snapshot.items)
        newest = (await client.range(pb.RangeRequest(key=b"\0", count_only=True))).header.revision
        await compactor.compact(client, newest)
        mark = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=restoring_key(address.prefix)))
        newest = (await client.txn(pb.TxnRequest(success=[mark]))).header.revision
    except StorageError as error:
        raise CannotOpen(str(error)) from error
    finally:
        await client.close()
    return newest + offset


async def _begin(client: EtcdClient, layout: Layout, prefix: str, revision: int) -> int:
    """Marks the prefix as being restored; returns the offset of its revisions. Raises CannotOpen."""
    mark, below = restoring_key(prefix), pb.RangeRequest(key=layout.start, range_end=layout.end, count_only=True)
    state = await client.range(below)
    interrupted = (await client.range(pb.RangeRequest(key=mark))).kvs
    if state.count and not interrupted:
        raise CannotOpen(f"etcd has {state.count} keys below {prefix}: restore into another ?prefix=, or delete them")
    offset = max(0, revision - state.header.revision)
    unchanged = [
        pb.Compare(target=pb.Compare.MOD, result=pb.Compare.EQUAL, key=mark, mod_revision=interrupted[0].mod_revision)
        if interrupted
        else pb.Compare(target=pb.Compare.MOD, result=pb.Compare.EQUAL, key=mark, mod_revision=0),
    ]
    written = {mark: b"", offset_key(prefix): str(offset).encode()}
    puts = [pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)) for key, value in written.items()]
    if not (await client.txn(pb.TxnRequest(compare=unchanged, success=puts))).succeeded:
        raise CannotOpen(f"another restore of {prefix} has just begun")
    return offset


async def _put(client: EtcdClient, layout: Layout, items: Iterable[Item]) -> None:
    async def worker(items: Iterator[Item]) -> None:
        for item in items:
            put = pb.PutRequest(key=layout.raw(item.key), value=layout.stored(item.key, item.value))
            await client.txn(pb.TxnRequest(success=[pb.RequestOp(request_put=put)]))

    shared = iter(items)
    workers = [asyncio.create_task(worker(shared)) for _ in range(IN_FLIGHT)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
