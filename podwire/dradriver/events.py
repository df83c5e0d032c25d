"""Tells people what was done for a pod and its claims, or was not, as Events. In the background."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.dradriver.names import COMPONENT, EVENTS
from podwire.dradriver.offers import ClaimRef, PodRef
from podwire.dradriver.ports import Api
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.seams import Clock

_log = logging.getLogger("podwire.dradriver")

NORMAL, WARNING = "Normal", "Warning"
PREPARE_FAILED, ATTACH_FAILED = "ClaimPrepareFailed", "NetworkDeviceAttachFailed"
IS_ATTACHED, DETACH_FAILED = "NetworkDeviceAttached", "NetworkDeviceDetachFailed"
LEASE_LOST, LEASE_REGAINED = "DHCPLeaseLost", "DHCPLeaseRegained"
MOST_WAITING, MOST_KNOWN = 1000, 4096
"""Events above the first are dropped while the server does not take them; so many are remembered, to be counted."""
LONGEST_MESSAGE = 1024
NAME_ROOM = 253 - 17
FIRST_PAUSE, LONGEST_PAUSE, TRIES = 0.2, 10.0, 8


@dataclass(frozen=True, slots=True)
class Note:
    """What is told; the same of the same object again is counted, not told anew."""

    about: ClaimRef | PodRef
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Told:
    name: str
    first: float
    count: int


class Recorder:
    def __init__(self, api: Api, clock: Clock, node: str) -> None:
        self._api, self._clock, self._node = api, clock, node
        self._waiting: OrderedDict[Note, int] = OrderedDict()
        self._told: OrderedDict[Note, _Told] = OrderedDict()
        self._filled, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def tell(self, about: Iterable[ClaimRef | PodRef], type_: str, reason: str, message: str) -> None:
        for each in dict.fromkeys(about):
            note = Note(each, type_, reason, message[:LONGEST_MESSAGE])
            if note in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting[note] = self._waiting.get(note, 0) + 1
                self._filled.set()
                self._idle.clear()

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
            await self._deliver(*self._waiting.popitem(last=False))

    async def _deliver(self, note: Note, times: int) -> None:
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

    async def _send(self, note: Note, times: int) -> None:
        told, now = self._told.get(note), self._clock.wall()
        if told is not None and await self._count(note, told, times, now):
            return
        fresh = _Told(f"{note.about.name[:NAME_ROOM].rstrip('-.')}.{int(now * 1e9):x}", now, times)
        await self._api.create(self._event(note, fresh, now))
        self._told[note] = fresh
        if len(self._told) > MOST_KNOWN:
            self._told.popitem(last=False)

    async def _count(self, note: Note, told: _Told, times: int, now: float) -> bool:
        """False when the event that was told is gone by now."""
        patch = {"count": told.count + times, "lastTimestamp": rfc3339(now)}
        try:
            await self._api.patch(EVENTS, told.name, patch, note.about.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            del self._told[note]
            return False
        told.count += times
        return True

    def _event(self, note: Note, told: _Told, now: float) -> Object:
        about = note.about
        kind = ("resource.k8s.io/v1", "ResourceClaim") if isinstance(about, ClaimRef) else ("v1", "Pod")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": kind[0],
                "kind": kind[1],
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message,
            "source": {"component": COMPONENT, "host": self._node},
            "firstTimestamp": rfc3339(told.first),
            "lastTimestamp": rfc3339(now),
            "count": told.count,
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
        }
