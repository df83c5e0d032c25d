"""Joins the trace's collector with a collector of OpenTelemetry."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from podwire.trace.exporter import Exporter
from podwire.trace.otlp import CONTENT_TYPE
from podwire.trace.record import Record
from podwire.transports.http_post import posting


@contextlib.asynccontextmanager
async def exported(url: str) -> AsyncIterator[Callable[[Sequence[Record]], None]]:
    """Whom to tell of records, so that their spans are posted to this URL for as long as the context is open."""
    async with posting(url, CONTENT_TYPE) as post:
        exporter = Exporter(post)
        working = asyncio.create_task(exporter.run(), name="otlp")
        try:
            yield exporter.offer
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
