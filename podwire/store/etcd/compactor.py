"""Compaction by Kubernetes' protocol, so that several API servers, also real ones, share the work.

The key `compact_rev_key` is a clock that only one server can advance: its version is the tick. The server that advances
it compacts to the revision that it saw one interval ago; the others adopt the new tick and try again an interval later.
"""

import asyncio
import logging
from dataclasses import dataclass

from podwire.protocols.storage import StorageError, StoreFull
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.client import Compacted, EtcdClient

log = logging.getLogger(__name__)

KEY = b"compact_rev_key"
INTERVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Tick:
    """The version of the key when last read, and etcd's revision at that time."""

    version: int = 0
    revision: int = 0


async def run(client: EtcdClient, interval: float = INTERVAL_SECONDS) -> None:
    """Runs until cancelled."""
    tick = Tick()
    while True:
        await asyncio.sleep(interval)
        try:
            tick = await advance(client, tick)
        except StorageError as error:
            log.warning("cannot compact etcd", extra={"error": str(error)})


async def advance(client: EtcdClient, tick: Tick) -> Tick:
    """Advances the clock and compacts to `tick.revision`, unless another server advanced it."""
    ours = pb.Compare(target=pb.Compare.VERSION, result=pb.Compare.EQUAL, key=KEY, version=tick.version)
    put = pb.RequestOp(request_put=pb.PutRequest(key=KEY, value=str(tick.revision).encode()))
    get = pb.RequestOp(request_range=pb.RangeRequest(key=KEY))
    try:
        answer = await client.txn(pb.TxnRequest(compare=[ours], success=[put], failure=[get]))
    except StoreFull:  # the clock cannot be advanced, but compaction needs no space and is idempotent
        if tick.revision:
            await compact(client, tick.revision)
        raise
    if not answer.succeeded:
        found = answer.responses[0].response_range.kvs
        return Tick(found[0].version if found else 0, answer.header.revision)
    if tick.revision:
        await compact(client, tick.revision)
    return Tick(tick.version + 1, answer.header.revision)


async def compact(client: EtcdClient, revision: int) -> None:
    """Compacts etcd below `revision`; already compacted is fine."""
    try:
        await client.compact(pb.CompactionRequest(revision=revision))
    except Compacted:
        log.debug("etcd was already compacted", extra={"revision": revision})
