"""GET /podwire/backup: the whole state of the store at one revision, for `podwire backup`.

Only those may read it who may read everything: no role but cluster-admin has this URL. Values leave the server as they
are at rest, so that a backup of an encrypted store is encrypted with the same keys.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from podwire.apiserver.ports import Store
from podwire.interfaces import Clock
from podwire.protocols.backup import BackupEncoder, Entry, Header
from podwire.protocols.k8sapi.server_side import Stream
from podwire.protocols.storage import Item

PATH = "/podwire/backup"
CONTENT_TYPE = "application/vnd.podwire.backup"
ROOT = "/registry/"
PAGE = 500
"""Items that are read together; other requests are answered in between."""

AtRest = Callable[[Item], bytes]
"""Returns a value as the store keeps it."""


class Backup:
    """Serves backups of one store."""

    def __init__(self, store: Store, clock: Clock, at_rest: AtRest, scheme: str) -> None:
        self._store = store
        self._clock = clock
        self._at_rest = at_rest
        self._scheme = scheme

    def answer(self) -> Stream:
        return Stream(chunks=self._chunks(), content_type=CONTENT_TYPE, whole=True)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Reads pages at the revision of the first one.

        A reader so slow that the store has compacted this revision gets a stream without its end, and notices.
        """
        encoder = BackupEncoder()
        page = await self._store.list(ROOT, limit=PAGE)
        revision = page.revision
        yield encoder.header(Header(revision, self._clock.wall(), self._scheme))
        while page.items:
            yield b"".join(
                encoder.entry(Entry(_raw(item.key), self._at_rest(item), item.revision, item.created))
                for item in page.items
            )
            if not page.more:
                break
            await asyncio.sleep(0)
            page = await self._store.list(ROOT, at=revision, after=page.items[-1].key, limit=PAGE)
        yield encoder.end()


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
