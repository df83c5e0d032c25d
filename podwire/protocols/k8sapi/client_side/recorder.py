"""Tells people what happened to an object, as Events. In the background: nobody waits for it or is slowed by it."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side.http import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.seams import Clock

_log = logging.getLogger("podwire.events")

NORMAL, WARNING = "Normal", "Warning"
MOST_WAITING = 1000
"""Events above this are dropped while the server does not take them."""
MOST_KNOWN = 4096
"""So many are remembered, to be counted when they happen again."""
LONGEST_MESSAGE = 1024
NAME_ROOM = 253 - 17
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
MANNERS = 0.2
"""Seconds between the first of several events and their sending."""
TRIES = 8
"""An event that the server did not take so often, within about half a minute, is lost."""
EVENTS = Kind(group="", version="v1", resource="events", kind="Event")


class Api(Protocol):
    async def create(self, object_: Object) -> Object: ...

    async def patch(self, kind: Kind, name: str, patch: object, namespace: str = "") -> Object: ...


class Reference(NamedTuple):
    """The object that an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"


class _Note(NamedTuple):
    """What is told; the same of the same object again is counted, not told anew."""

    about: Reference
    type: str
    reason: str
    message: str


class _Times(NamedTuple):
    """How often it happened since it was told, and when it did last."""

    often: int
    last: float


@dataclass(slots=True)
class _Told:
    name: str
    first: float
    count: int


class Recorder:
    def __init__(self, api: Api, clock: Clock, *, component: str, host: str) -> None:
        self._api, self._clock, self._component, self._host = api, clock, component, host
        self._waiting: OrderedDict[_Note, _Times] = OrderedDict()
        self._told: OrderedDict[_Note, _Told] = OrderedDict()
        self._filled, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def tell(self, about: Reference, type_: str, reason: str, message: str) -> None:
        note = _Note(about, type_, reason, message[:LONGEST_MESSAGE])
        if note in self._waiting or len(self._waiting) < MOST_WAITING:
            before = self._waiting.get(note)
            self._waiting[note] = _Times((before.often if before else 0) + 1, self._clock.wall())
            self._filled.set()
            self._idle.clear()
        else:
            _log.debug("event dropped", extra={"about": about.name, "reason": reason})

    async def idle(self) -> None:
        """Return when nothing is left to be told."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._waiting:
                self._filled.clear()
                self._idle.set()
                await self._filled.wait()
                await asyncio.sleep(MANNERS)
            await self._deliver(*self._waiting.popitem(last=False))

    async def _deliver(self, note: _Note, times: _Times) -> None:
        pause = FIRST_PAUSE
        for _ in range(TRIES):
            try:
                return await self._send(note, times)
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    return _log.info("event refused", extra={"about": note.about.name, "why": str(error)})
            except ClientError as error:
                _log.debug("event not sent yet", extra={"about": note.about.name, "why": str(error)})
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return _log.warning("event lost", extra={"about": note.about.name, "reason": note.reason})

    async def _send(self, note: _Note, times: _Times) -> None:
        told = self._told.get(note)
        if told is not None and await self._count(note, told, times):
            return
        name = f"{note.about.name[:NAME_ROOM].rstrip('-.')}.{int(self._clock.wall() * 1e9):x}"
        fresh = _Told(name, times.last, times.often)
        await self._api.create(self._event(note, fresh, times.last))
        self._told[note] = fresh
        if len(self._told) > MOST_KNOWN:
            self._told.popitem(last=False)

    async def _count(self, note: _Note, told: _Told, times: _Times) -> bool:
        """False when the event that was told is gone by now."""
        patch = {"count": told.count + times.often, "lastTimestamp": rfc3339(times.last)}
        try:
            await self._api.patch(EVENTS, told.name, patch, note.about.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            del self._told[note]
            return False
        told.count += times.often
        return True

    def _event(self, note: _Note, told: _Told, last: float) -> Object:
        about = note.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message,
            "source": {"component": self._component, "host": self._host},
            "firstTimestamp": rfc3339(told.first),
            "lastTimestamp": rfc3339(last),
            "count": told.count,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
