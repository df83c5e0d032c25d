"""Tells people what was done to a pod, or was not, as Events of it. In the background: nobody waits for it."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

from podwire.nriplugins.network.kinds import EVENTS
from podwire.nriplugins.network.ports import Api
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.seams import Clock

_log = logging.getLogger("podwire.nriplugins.network")

COMPONENT = "podwire-nri-network"
NORMAL, WARNING = "Normal", "Warning"
MOST_WAITING = 1000
"""Events above this are dropped while the server does not take them."""
MOST_KNOWN = 4096
"""So many are remembered, to be counted when they happen again."""
LONGEST_MESSAGE = 1024
NAME_ROOM = 253 - 17
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
TRIES = 8
"""An event that the server did not take so often, within about half a minute, is lost."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is told; the same of the same pod again is counted, not told anew."""

    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Told:
    name: str
    first: float
    count: int = 1


class Recorder:
    def __init__(self, api: Api, clock: Clock, node: str) -> None:
        self._api, self._clock, self._node = api, clock, node
        self._waiting: OrderedDict[Note, int] = OrderedDict()
        self._told: OrderedDict[Note, _Told] = OrderedDict()
        self._filled = asyncio.Event()

    def tell(self, note: Note) -> None:
        if note in self._waiting or len(self._waiting) < MOST_WAITING:
            self._waiting[note] = self._waiting.get(note, 0) + 1
            self._filled.set()
        else:
            _log.debug("event dropped", extra={"pod": note.name, "reason": note.reason})

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._waiting:
                self._filled.clear()
                await self._filled.wait()
            await self._deliver(*self._waiting.popitem(last=False))

    async def _deliver(self, note: Note, times: int) -> None:
        pause = FIRST_PAUSE
        for _ in range(TRIES):
            try:
                return await self._send(note, times)
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    return _log.info("event refused", extra={"pod": note.name, "why": str(error)})
            except ClientError as error:
                _log.debug("event not sent yet", extra={"pod": note.name, "why": str(error)})
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return _log.warning("event lost", extra={"pod": note.name, "reason": note.reason})

    async def _send(self, note: Note, times: int) -> None:
        told, now = self._told.get(note), self._clock.wall()
        if told is not None and await self._count(note, told, times, now):
            return
        fresh = _Told(f"{note.name[:NAME_ROOM].rstrip('-.')}.{int(now * 1e9):x}", now, times)
        await self._api.create(self._event(note, fresh, now))
        self._told[note] = fresh
        if len(self._told) > MOST_KNOWN:
            self._told.popitem(last=False)

    async def _count(self, note: Note, told: _Told, times: int, now: float) -> bool:
        """False when the event that was told is gone by now."""
        patch = {"count": told.count + times, "lastTimestamp": rfc3339(now)}
        try:
            await self._api.patch(EVENTS, told.name, patch, note.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            del self._told[note]
            return False
        told.count += times
        return True

    def _event(self, note: Note, told: _Told, now: float) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": note.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": note.namespace,
                "name": note.name,
                "uid": note.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:LONGEST_MESSAGE],
            "source": {"component": COMPONENT, "host": self._node},
            "firstTimestamp": rfc3339(told.first),
            "lastTimestamp": rfc3339(now),
            "count": told.count,
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
        }
