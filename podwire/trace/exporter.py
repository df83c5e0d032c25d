"""Sends spans to an OpenTelemetry collector in the background; no component waits for it.

A collector that is down, slow or full is retried with back-off. Spans that do not fit into the queue meanwhile are
dropped, the oldest first, and counted.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from podwire.trace import span_assembly
from podwire.trace.loss_log import LossLog
from podwire.trace.otlp import encoded, rejected
from podwire.trace.plain_text import cut, plain
from podwire.trace.record import Record
from podwire.trace.spans import Span
from podwire.transports.http_post import Posted, Unreachable

_log = logging.getLogger("podwire.trace.otlp")

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
"""HTTP statuses after which OTLP clients retry."""

Post = Callable[[bytes], Awaitable[Posted]]


@dataclass(frozen=True, slots=True)
class Limits:
    queue: int = 10_000
    """Spans in the queue."""
    batch: int = 512
    """Spans of one request."""
    first_pause: float = 1.0
    """Seconds before the first retry; doubled each time."""
    longest_pause: float = 30.0
    flush: float = 2.0
    """Seconds for sending the rest at shutdown."""
    spans: span_assembly.Limits = field(default_factory=span_assembly.Limits)


class Exporter:
    def __init__(self, post: Post, limits: Limits | None = None) -> None:
        self._post = post
        self._limits = limits or Limits()
        self._assembler = span_assembly.Assembler(self._limits.spans)
        self._queue: deque[Span] = deque()
        self._woken = asyncio.Event()
        self._pause = self._limits.first_pause
        self._losses = LossLog(_log, "dropped trace spans", "spans")
        self.sent = 0

    @property
    def dropped(self) -> int:
        return self._losses.total

    def offer(self, records: Sequence[Record]) -> None:
        """Takes records; returns at once."""
        try:
            self._assembler.learn(records, time.monotonic())
        except Exception as error:  # noqa: BLE001 - invalid records must not stop the collector
            self._losses.add(len(records), f"invalid records: {error}")
        self._woken.set()

    async def run(self) -> None:
        """Works until cancelled; then the rest has a short time to be sent."""
        try:
            while True:
                await self._wait_until_due()
                self._enqueue(time.monotonic())
                if self._queue and not await self._sent_all():
                    await asyncio.sleep(self._pause)
                    self._pause = min(self._limits.longest_pause, self._pause * 2)
        finally:
            self._enqueue(float("inf"))
            await self._flush()

    async def _wait_until_due(self) -> None:
        """Returns when there is something to send."""
        while not self._queue:
            due = self._assembler.next()
            now = time.monotonic()
            if due is not None and due <= now:
                return
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else due - now):
                    await self._woken.wait()

    def _enqueue(self, now: float) -> None:
        """Moves finished spans from the assembler into the queue."""
        self._queue.extend(self._assembler.due(now))
        over = len(self._queue) - self._limits.queue
        for _ in range(over):
            self._queue.popleft()
        lost, self._assembler.forgotten = max(0, over) + self._assembler.forgotten, 0
        if lost:
            self._losses.add(lost, "the collector is too slow")

    async def _sent_all(self) -> bool:
        """Returns False when the collector must be retried later; the rest stays in the queue."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(self._limits.batch, len(self._queue)))]
            try:
                posted = await self._post(encoded(batch))
            except Unreachable as error:
                self._requeue(batch, str(error))
                return False
            except asyncio.CancelledError:
                self._queue.extendleft(reversed(batch))
                raise
            if posted.status in RETRIED_STATUSES:
                self._requeue(batch, f"it answers {posted.status}", posted.retry_after)
                return False
            self._account(batch, posted)
        return True

    def _account(self, batch: Sequence[Span], posted: Posted) -> None:
        if not 200 <= posted.status < 300:
            self._losses.add(len(batch), f"the collector answers {posted.status}")
            return
        if self._pause > self._limits.first_pause:
            _log.info("OTLP collector accepts spans again")
        self._pause = self._limits.first_pause
        refused, why = rejected(posted.body)
        refused = min(refused, len(batch))
        self.sent += len(batch) - refused
        if refused:
            self._losses.add(refused, f"the collector refuses them: {cut(plain(why), 200)}")

    def _requeue(self, batch: Sequence[Span], why: str, after: float | None = None) -> None:
        self._queue.extendleft(reversed(batch))
        if self._pause == self._limits.first_pause:
            _log.warning("cannot send spans to OTLP collector", extra={"error": why, "waiting": len(self._queue)})
        if after is not None:
            self._pause = min(self._limits.longest_pause, max(self._pause, after))

    async def _flush(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.flush):
                await self._sent_all()
        if self._queue:
            self._losses.add(len(self._queue), "shutdown")
        self._losses.report()
        _log.info("trace export ended", extra={"sent": self.sent, "dropped": self.dropped})
