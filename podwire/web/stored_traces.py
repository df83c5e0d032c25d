"""The recorded starts for the page: one index, read in a worker thread, one caller at a time."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.trace.follow import changes
from podwire.trace.index import Start, TraceIndex
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record

ABSENT_SECONDS = 1.0
"""How often a directory is looked for that does not exist: nothing was recorded yet."""


class StoredTraces:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._index = TraceIndex(directory)
        self._lock = asyncio.Lock()
        self.trouble = ""
        """Why the records cannot be read; empty if they can."""

    @property
    def starts(self) -> Mapping[str, Start]:
        return self._index.starts

    def last(self) -> Start | None:
        """Returns the start that began last and has a name."""
        named = [start for start in self._index.starts.values() if start.name]
        return max(named, key=lambda start: start.first, default=None)

    async def update(self) -> set[str]:
        """Reads new records; returns the pods whose traces changed."""
        async with self._lock:
            try:
                changed = await asyncio.to_thread(self._index.update)
            except OSError as error:
                self.trouble = str(error)
                return set()
            self.trouble = "; ".join(self._index.troubles())
            return changed

    async def trace(self, pod: str) -> tuple[PodTrace, list[Record]] | None:
        async with self._lock:
            return await asyncio.to_thread(self._index.trace, pod)

    async def call(self, id_: str) -> list[Record]:
        async with self._lock:
            return await asyncio.to_thread(self._index.call, id_)

    async def changes(self) -> AsyncGenerator[set[str], None]:
        """Yields the pods whose traces changed, for ever; a directory that does not exist yet is waited for."""
        while True:
            try:
                async for _ in changes(self._directory):
                    if changed := await self.update():
                        yield changed
            except (LinuxError, OSError) as error:
                self.trouble = str(error)
            await asyncio.sleep(ABSENT_SECONDS)
