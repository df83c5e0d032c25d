"""Tells people what happens to objects: Events, sent in the background and thinned out where they repeat."""

import asyncio
import contextlib
import logging
from collections import deque
from typing import Protocol

from podwire.interfaces import Clock
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.events import (
    CORE_V1,
    WARNING,
    Names,
    Note,
    Reference,
    Shape,
    Source,
    Tally,
    Told,
    short,
)
from podwire.protocols.k8sapi.client_side.http import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

_log = logging.getLogger("podwire.events")

QUEUED = 1000
AWAY_SECONDS = 120.0
"""An event that could not be sent for so long is dropped: newer ones matter more."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
MANNERS = 0.2
"""Seconds between the first of several events and their sending: a pod's start is not slowed by what is told of it.
Warnings go at once, and take along what waits."""


class Api(Protocol):
    """Refusals are ApiErrors, no answer a ClientError."""

    async def create(self, object_: Object) -> Object: ...

    async def patch(self, kind: Kind, name: str, patch: object, namespace: str = "") -> Object: ...


class Recorder:
    """Never waits and never fails its caller. What is told again is counted in the event that was sent already."""

    def __init__(self, api: Api, clock: Clock, *, component: str, host: str = "", shape: Shape = CORE_V1) -> None:
        self._api, self._clock, self._source, self._shape = api, clock, Source(component, host), shape
        self._tally, self._names = Tally(), Names()
        self._queue: deque[tuple[Told, float]] = deque()
        self._filled, self._pressing, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._dropped = 0

    def tell(
        self, about: Pod | Reference, type_: str, reason: str, message: str, *, field_path: str = "", action: str = ""
    ) -> None:
        """Say that this happened now; `field_path` as in `spec.containers{app}`, `action` for events.k8s.io alone."""
        reference = Reference.to(about) if isinstance(about, Pod) else about
        note = Note(reference, type_, reason, short(message), field_path, action)
        now = self._clock.monotonic()
        told = self._tally.add(note, self._clock.wall(), now)
        if told is None or told.waiting:
            return
        if len(self._queue) >= QUEUED:
            self._dropped += 1
            return
        told.waiting = True
        self._queue.append((told, now))
        self._idle.clear()
        self._filled.set()
        if type_ == WARNING:
            self._pressing.set()

    async def idle(self) -> None:
        """Return when nothing is left to be sent."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send what is told, one after another, until cancelled."""
        while True:
            await self._filled.wait()
            await _wait(self._pressing, MANNERS)
            while self._queue:
                await self._deliver(*self._queue.popleft())
            if self._dropped:
                _log.warning("events were dropped, too many at once", extra={"count": self._dropped})
                self._dropped = 0
            self._filled.clear()
            self._pressing.clear()
            self._idle.set()

    async def _deliver(self, told: Told, since: float) -> None:
        """Send one event, again and again while the API is away."""
        facts = {"about": told.note.about.name, "reason": told.note.reason}
        pause = FIRST_PAUSE
        while self._clock.monotonic() - since < AWAY_SECONDS:
            told.waiting = False  # told once more from here on, it is sent once more
            try:
                return await self._send(told)
            except (ApiError, ClientError) as error:
                if isinstance(error, ApiError) and not _passing(error):
                    return _log.info("event refused", extra={**facts, "why": str(error)})
            except Exception:  # noqa: BLE001 - a fault in one event must not silence all others
                return _log.exception("event not sent", extra=facts)
            told.waiting = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        told.waiting = False
        return _log.warning("event dropped, the API is away", extra=facts)

    async def _send(self, told: Told) -> None:
        if told.heard == told.count:
            return  # told again during a try that failed, it went with the next
        if not (told.heard and await self._repeat(told)):
            await self._create(told)

    async def _create(self, told: Told) -> None:
        told.name = told.name or self._names.new(told.note.about.name, self._clock.wall())
        count = told.count
        try:
            await self._api.create(self._shape.event(told, self._source))
        except ApiError as error:
            if error.code != 409:  # an earlier try arrived after all
                raise
        told.heard = count

    async def _repeat(self, told: Told) -> bool:
        """Whether the event was there to be counted up."""
        count = told.count
        try:
            await self._api.patch(self._shape.kind, told.name, self._shape.repeat(told), told.note.namespace)
        except ApiError as error:
            if error.code != 404:  # events are forgotten after an hour
                raise
            told.forgotten()
            return False
        told.heard = count
        return True


async def _wait(event: asyncio.Event, most: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most):
            await event.wait()


def _passing(error: ApiError) -> bool:
    """Whether the same request may be welcome later."""
    return error.code == 429 or error.code >= 500
