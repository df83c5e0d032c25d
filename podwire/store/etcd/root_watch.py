"""One watch on all of the store's keys feeds every watcher, and goes on where it was after etcd was away.

Events are taken once, by revision (etcd before 3.4.24 may repeat some). When etcd has compacted what comes next, no
longer knows what a change replaced, or has gone back in time (it was restored), the feed starts anew
and every watcher is told Gone: it lists again, nothing is skipped in silence.
"""

import asyncio
import logging
from collections.abc import Sequence

from podwire.protocols.storage import Change, StorageError
from podwire.store.broadcast import Feed
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.client import Calls
from podwire.store.etcd.layout import Layout
from podwire.store.history import Window

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
SHRINK_EVERY = 256


class RootWatch:
    """Follows etcd from the floor of the feed's history."""

    def __init__(self, calls: Calls, layout: Layout, feed: Feed, keep: Window) -> None:
        self._calls = calls
        self._layout = layout
        self._feed = feed
        self._keep = keep
        self._until_shrink = SHRINK_EVERY
        self.failure = ""
        """Why etcd is not being followed right now; empty when it is."""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._follow()
            except StorageError as error:
                self.failure = f"the watch on etcd is interrupted: {error}"
                log.warning("the watch on etcd is interrupted", extra={"reason": str(error)})
            except Exception as error:
                self.failure = f"the watch on etcd failed: {error!r}"
                log.exception("the watch on etcd failed")
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        """One stream, until it ends."""
        request = pb.WatchCreateRequest(
            key=self._layout.start,
            range_end=self._layout.end,
            start_revision=self._feed.history.revision + 1,
            prev_kv=True,
        )
        stream = await self._calls.watch(request)
        try:
            while self._take(await stream.read()):
                pass
        finally:
            stream.cancel()

    def _take(self, response: pb.WatchResponse) -> bool:
        """Publish what a response brings; False when the stream is of no more use."""
        self.failure = ""
        history = self._feed.history
        if response.compact_revision:
            self._restart(response.compact_revision, "etcd has compacted what comes next")
            return False
        if response.canceled:
            log.warning("etcd cancelled the watch", extra={"reason": response.cancel_reason})
            return False
        if response.created and response.header.revision < history.revision:
            self._restart(response.header.revision, "etcd has gone back in time")
            return False
        changes = [self._layout.change(each) for each in response.events if each.kv.mod_revision > history.revision]
        known = [each for each in changes if each is not None]
        if len(known) < len(changes):
            self._restart(response.events[-1].kv.mod_revision, "etcd no longer knows what a change replaced")
            return False
        self._publish(known)
        return True

    def _publish(self, changes: Sequence[Change]) -> None:
        history = self._feed.history
        for change in changes:
            history.append(change)
            self._until_shrink -= 1
        self._feed.publish(changes)
        if self._until_shrink <= 0:
            self._until_shrink = SHRINK_EVERY
            history.forget(history.surplus(self._keep))

    def _restart(self, floor: int, reason: str) -> None:
        log.warning("all watches begin anew", extra={"reason": reason, "revision": floor})
        self._feed.restart(floor)
