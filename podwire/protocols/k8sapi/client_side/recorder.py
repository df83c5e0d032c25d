"""Tells people what happens to objects: Events, sent in the background and thinned out where they repeat."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from podwire.interfaces import Clock
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.client import Client
from podwire.protocols.k8sapi.client_side.events import (
    CORE_V1,
    WARNING,
    Names,
    Note,
    RecordedEvent,
    Reference,
    Shape,
    Source,
    Tally,
    short,
)
from podwire.protocols.k8sapi.client_side.http import ClientError
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.events")

QUEUED = 1000
AWAY_SECONDS = 120.0
"""An event that could not be sent for so long is dropped: newer ones matter more."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
BATCH_SECONDS = 0.2
"""Seconds between the first of several events and their sending: a pod's start is not slowed by what is recorded of it.
Warnings go at once, and take along what waits."""

Pause = Callable[[float, asyncio.Event | None], Awaitable[None]]


class Recorder:
    """Never waits and never fails its caller. What is recorded again is counted in the event that was sent already."""

    def __init__(
        self,
        api: Client,
        clock: Clock,
        *,
        component: str,
        host: str | Callable[[Pod | Reference], str] = "",
        shape: Shape = CORE_V1,
        batch_seconds: float = BATCH_SECONDS,
        pause: Pause | None = None,
    ) -> None:
        """`host` is the node of the component, or says which of many nodes an event comes from. `pause` replaces the
        waiting in tests."""
        self._api, self._clock, self._shape = api, clock, shape
        self._source = Source(component, host if isinstance(host, str) else "")
        self._host_of = host if callable(host) else None
        self._batch_seconds, self._pause = batch_seconds, pause or _pause
        self._tally, self._names = Tally(), Names()
        self._queue: deque[tuple[RecordedEvent, float]] = deque()
        self._filled, self._pressing, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._dropped = 0

    def tell(
        self,
        about: Pod | Reference,
        type_: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
        action: str = "",
        related: Reference | None = None,
    ) -> None:
        """Say that this happened now; `field_path` as in `spec.containers{app}`.

        `action` and `related`, another object that caused it, are for events.k8s.io alone.
        """
        reference = Reference.to(about) if isinstance(about, Pod) else about
        note = Note(
            reference,
            type_,
            reason,
            short(message),
            field_path,
            action,
            related,
            self._host_of(about) if self._host_of else "",
        )
        now = self._clock.monotonic()
        recorded = self._tally.add(note, self._clock.wall(), now)
        if recorded is None or recorded.waiting:
            return
        if len(self._queue) >= QUEUED:
            self._dropped += 1
            return
        recorded.waiting = True
        self._queue.append((recorded, now))
        self._idle.clear()
        self._filled.set()
        if type_ == WARNING:
            self._pressing.set()

    async def idle(self) -> None:
        """Return when nothing is left to be sent."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send what is recorded, one after another, until cancelled."""
        while True:
            await self._filled.wait()
            await self._pause(self._batch_seconds, self._pressing)
            while self._queue:
                await self._deliver(*self._queue.popleft())
            if self._dropped:
                _log.warning("events were dropped, too many at once", extra={"count": self._dropped})
                self._dropped = 0
            self._filled.clear()
            self._pressing.clear()
            self._idle.set()

    async def _deliver(self, recorded: RecordedEvent, since: float) -> None:
        """Send one event, again and again while the API is away."""
        facts = {"about": recorded.note.about.name, "reason": recorded.note.reason}
        pause = FIRST_PAUSE
        while self._clock.monotonic() - since < AWAY_SECONDS:
            recorded.waiting = False  # recorded once more from here on, it is sent once more
            try:
                return await self._send(recorded)
            except (ApiError, ClientError) as error:
                if isinstance(error, ApiError) and not _passing(error):
                    return _log.info("API server rejected event", extra={**facts, "why": str(error)})
            except Exception:  # noqa: BLE001 - a fault in one event must not silence all others
                return _log.exception("event not sent", extra=facts)
            recorded.waiting = True
            await self._pause(pause, None)
            pause = min(pause * 2, LONGEST_PAUSE)
        recorded.waiting = False
        return _log.warning("event dropped, the API is away", extra=facts)

    async def _send(self, recorded: RecordedEvent) -> None:
        if recorded.sent_count == recorded.count:
            return  # recorded again during a try that failed, it went with the next
        if not (recorded.sent_count and await self._repeat(recorded)):
            await self._create(recorded)

    async def _create(self, recorded: RecordedEvent) -> None:
        recorded.name = recorded.name or self._names.new(recorded.note.about.name, self._clock.wall())
        count = recorded.count
        try:
            await self._api.create(self._shape.event(recorded, self._source))
        except ApiError as error:
            if error.code != 409:  # an earlier try arrived after all
                raise
        recorded.sent_count = count

    async def _repeat(self, recorded: RecordedEvent) -> bool:
        """Whether the event was there to be counted up."""
        count = recorded.count
        try:
            await self._api.patch(
                self._shape.kind, recorded.name, self._shape.repeat(recorded), recorded.note.namespace
            )
        except ApiError as error:
            if error.code != 404:  # events are forgotten after an hour
                raise
            recorded.forgotten()
            return False
        recorded.sent_count = count
        return True


async def _pause(seconds: float, event: asyncio.Event | None) -> None:
    """Waits; an event ends it earlier."""
    if event is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _passing(error: ApiError) -> bool:
    """Whether the same request may be welcome later."""
    return error.code == 429 or error.code >= 500
