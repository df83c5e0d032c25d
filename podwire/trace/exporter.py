"""Sends spans to a collector of OpenTelemetry, in the background; nobody ever waits for it.

A collector that is gone, slow or full is tried again; what does not fit into the queue meanwhile is dropped, the oldest
first, and counted.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from podwire.trace.loss_log import Losses
from podwire.trace.otlp import encoded, rejected
from podwire.trace.plain_text import cut, plain
from podwire.trace.record import Record
from podwire.trace.span_assembly import Assembler
from podwire.trace.spans import Span
from podwire.transports.posting import Posted, Unreachable

_log = logging.getLogger("podwire.trace.otlp")

WAITING = 10_000
"""Spans in the queue."""
BATCH = 512
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before the next try, doubled each time."""
FAREWELL = 2.0
"""Seconds for what is left when the exporter ends."""
TRY_AGAIN = frozenset({429, 502, 503, 504})
"""What a collector answers that wants to be asked again."""

Post = Callable[[bytes], Awaitable[Posted]]


class Exporter:
    def __init__(self, post: Post, *, waiting: int = WAITING) -> None:
        self._post = post
        self._most = waiting
        self._assembler = Assembler()
        self._queue: deque[Span] = deque()
        self._woken = asyncio.Event()
        self._pause = FIRST_PAUSE
        self._losses = Losses(_log, "spans are dropped", "spans")
        self.sent = 0

    @property
    def dropped(self) -> int:
        return self._losses.in_all

    def offer(self, records: Sequence[Record]) -> None:
        """Take these; returns at once, whatever becomes of them."""
        try:
            self._assembler.learn(records, time.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever somebody recorded, who keeps records goes on
            self._losses.add(len(records), f"they are no calls: {error}")
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled; what is left then has a short time to go."""
        try:
            while True:
                await self._until_due()
                self._enqueue(time.monotonic())
                if self._queue and not await self._sent_all():
                    await asyncio.sleep(self._pause)
                    self._pause = min(LONGEST_PAUSE, self._pause * 2)
        finally:
            self._enqueue(float("inf"))
            await self._say_farewell()

    async def _until_due(self) -> None:
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
        """What the assembler has until now."""
        self._queue.extend(self._assembler.due(now))
        over = len(self._queue) - self._most
        for _ in range(over):
            self._queue.popleft()
        lost, self._assembler.forgotten = max(0, over) + self._assembler.forgotten, 0
        if lost:
            self._losses.add(lost, "the collector does not keep up")

    async def _sent_all(self) -> bool:
        """False when the collector must be tried again later; the rest is in the queue."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            try:
                posted = await self._post(encoded(batch))
            except Unreachable as error:
                self._again(batch, str(error))
                return False
            except asyncio.CancelledError:
                self._queue.extendleft(reversed(batch))
                raise
            if posted.status in TRY_AGAIN:
                self._again(batch, f"it answers {posted.status}", posted.retry_after)
                return False
            self._judge(batch, posted)
        return True

    def _judge(self, batch: Sequence[Span], posted: Posted) -> None:
        if not 200 <= posted.status < 300:
            self._losses.add(len(batch), f"the collector answers {posted.status}")
            return
        if self._pause > FIRST_PAUSE:
            _log.info("the collector takes spans again")
        self._pause = FIRST_PAUSE
        refused, why = rejected(posted.body)
        refused = min(refused, len(batch))
        self.sent += len(batch) - refused
        if refused:
            self._losses.add(refused, f"the collector refuses them: {cut(plain(why), 200)}")

    def _again(self, batch: Sequence[Span], why: str, after: float | None = None) -> None:
        self._queue.extendleft(reversed(batch))
        if self._pause == FIRST_PAUSE:
            _log.warning("the collector does not take spans", extra={"reason": why, "waiting": len(self._queue)})
        if after is not None:
            self._pause = min(LONGEST_PAUSE, max(self._pause, after))

    async def _say_farewell(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._sent_all()
        if self._queue:
            self._losses.add(len(self._queue), "the end")
        self._losses.say()
        _log.info("spans", extra={"sent": self.sent, "dropped": self.dropped})
