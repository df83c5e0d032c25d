"""One watch on the whole prefix feeds all watches of this store, and resumes after etcd was unavailable.

Events are applied once, by revision (etcd before 3.4.24 may repeat some). When etcd has compacted the next event, no
longer has the previous value of a change, or has an older revision than before (it was restored from a backup), the
history restarts and every watch ends with Gone: its client lists again, and nothing is skipped silently.
"""

import asyncio
import logging
from collections.abc import Sequence

from podwire.protocols.storage import Change, StorageError
from podwire.store.broadcast import Broadcaster
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.client import EtcdClient
from podwire.store.etcd.layout import Layout
from podwire.store.history import Window

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
SHRINK_EVERY = 256


class RootWatch:
    """Follows etcd from the floor of the history."""

    def __init__(self, client: EtcdClient, layout: Layout, broadcaster: Broadcaster, keep: Window) -> None:
        self._client = client
        self._layout = layout
        self._broadcaster = broadcaster
        self._keep = keep
        self._until_shrink = SHRINK_EVERY
        self.failure = ""
        """Why etcd cannot be followed at the moment; empty when it is."""

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._follow()
            except StorageError as error:
                self.failure = f"the watch on etcd is interrupted: {error}"
                log.warning("watch on etcd is interrupted", extra={"error": str(error)})
            except Exception as error:
                self.failure = f"the watch on etcd failed: {error!r}"
                log.exception("watch on etcd failed")
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        """Reads one stream until it ends."""
        request = pb.WatchCreateRequest(
            key=self._layout.start,
            range_end=self._layout.end,
            start_revision=max(1, self._layout.raw_revision(self._broadcaster.history.revision + 1)),
            prev_kv=True,
        )
        stream = await self._client.watch(request)
        try:
            while self._handle(await stream.read()):
                pass
        finally:
            stream.cancel()

    def _handle(self, response: pb.WatchResponse) -> bool:
        """Publishes the events of a response; returns False when the stream has to be reopened."""
        self.failure = ""
        history, revision = self._broadcaster.history, self._layout.revision
        if response.compact_revision:
            self._restart(revision(response.compact_revision), "etcd has compacted the next revision")
            return False
        if response.canceled:
            log.warning("etcd cancelled the watch", extra={"error": response.cancel_reason})
            return False
        if response.created and revision(response.header.revision) < history.revision:
            self._restart(revision(response.header.revision), "etcd has an older revision than before")
            return False
        events = [event for event in response.events if revision(event.kv.mod_revision) > history.revision]
        changes = [self._layout.change(event) for event in events]
        known = [change for change in changes if change is not None]
        if len(known) < len(changes):
            newest = revision(response.events[-1].kv.mod_revision)
            self._restart(newest, "etcd no longer has the previous value of a change")
            return False
        self._publish(known)
        return True

    def _publish(self, changes: Sequence[Change]) -> None:
        history = self._broadcaster.history
        for change in changes:
            history.append(change)
            self._until_shrink -= 1
        self._broadcaster.publish(changes)
        if self._until_shrink <= 0:
            self._until_shrink = SHRINK_EVERY
            history.forget(history.surplus(self._keep))

    def _restart(self, floor: int, reason: str) -> None:
        log.warning("ending all watches of the store", extra={"error": reason, "revision": floor})
        self._broadcaster.restart(floor)
