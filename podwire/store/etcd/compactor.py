"""Compaction as Kubernetes does it, so that several API servers, also real ones, share the work.

The key `compact_rev_key` is a clock that only one can advance: its version is the tick. Who advances it compacts
to the revision that it saw one interval ago; who loses takes over the tick and tries again an interval later.
"""

import asyncio
import logging
from dataclasses import dataclass

from podwire.protocols.storage import StorageError
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.client import Calls, Compacted

log = logging.getLogger(__name__)

KEY = b"compact_rev_key"
INTERVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Tick:
    """The version of the key when last seen, and etcd's revision at that time."""

    version: int = 0
    revision: int = 0


async def run(calls: Calls, interval: float = INTERVAL_SECONDS) -> None:
    """Work until cancelled."""
    tick = Tick()
    while True:
        await asyncio.sleep(interval)
        try:
            tick = await advance(calls, tick)
        except StorageError as error:
            log.warning("etcd was not compacted", extra={"reason": str(error)})


async def advance(calls: Calls, tick: Tick) -> Tick:
    """Advance the clock and compact to `tick.revision`, unless someone else advanced it."""
    ours = pb.Compare(target=pb.Compare.VERSION, result=pb.Compare.EQUAL, key=KEY, version=tick.version)
    put = pb.RequestOp(request_put=pb.PutRequest(key=KEY, value=str(tick.revision).encode()))
    get = pb.RequestOp(request_range=pb.RangeRequest(key=KEY))
    answer = await calls.txn(pb.TxnRequest(compare=[ours], success=[put], failure=[get]))
    if not answer.succeeded:
        found = answer.responses[0].response_range.kvs
        return Tick(found[0].version if found else 0, answer.header.revision)
    if tick.revision:
        await compact(calls, tick.revision)
    return Tick(tick.version + 1, answer.header.revision)


async def compact(calls: Calls, revision: int) -> None:
    """Have etcd forget the past below `revision`; that it already has is fine."""
    try:
        await calls.compact(pb.CompactionRequest(revision=revision))
    except Compacted:
        log.debug("etcd was compacted before", extra={"revision": revision})
