"""Tells people what happened to a pod, as Events. In the background: nobody waits for it and nothing fails with it."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.scheduler.kinds import EVENTS
from podwire.scheduler.ports import Api
from podwire.seams import Clock

log = logging.getLogger("podwire.scheduler")

MOST_WAITING = 1000
"""Events above this are dropped while the server does not take them; the newest are worth least."""
MOST_KNOWN = 4096
"""So many are remembered, to be counted when they happen again."""
LONGEST_NOTE = 1024
MANNERS = 0.2
"""Seconds between the first of several events and their sending: those who start the pod come first."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is told; the same of the same pod again is counted, not told anew."""

    pod: Pod
    type: str
    reason: str
    action: str
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.pod.uid, self.reason, self.text


class _Times(NamedTuple):
    """How often it happened since it was told, and when it did last."""

    note: Note
    often: int
    last: float


@dataclass(slots=True)
class _Told:
    name: str
    count: int = 1


class Recorder:
    def __init__(self, api: Api, clock: Clock, controller: str, instance: str) -> None:
        self._api = api
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self._waiting: OrderedDict[tuple[str, str, str], _Times] = OrderedDict()
        self._told: OrderedDict[tuple[str, str, str], _Told] = OrderedDict()
        self._filled = asyncio.Event()

    def tell(self, note: Note) -> None:
        if note.key in self._waiting:
            self._waiting[note.key] = _Times(note, self._waiting[note.key].often + 1, self._clock.wall())
        elif len(self._waiting) < MOST_WAITING:
            self._waiting[note.key] = _Times(note, 1, self._clock.wall())
            self._filled.set()
        else:
            log.debug("event dropped", extra={"pod": note.pod.ref, "reason": note.reason})

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._waiting:
                self._filled.clear()
                await self._filled.wait()
                await asyncio.sleep(MANNERS)
            _key, times = self._waiting.popitem(last=False)
            note = times.note
            try:
                await self._send(times)
            except (ApiError, ClientError) as error:
                log.debug("event lost", extra={"pod": note.pod.ref, "reason": note.reason, "why": str(error)})
            except Exception:  # an answer that is none is no reason to stop placing pods
                log.exception("event lost", extra={"pod": note.pod.ref, "reason": note.reason})

    async def _send(self, times: _Times) -> None:
        note, last = times.note, times.last
        told = self._told.get(note.key)
        if told is not None and await self._count(times, told):
            return
        told = _Told(f"{note.pod.name}.{int(self._clock.wall() * 1e9):x}", times.often)
        series = self._series(told, last) if times.often > 1 else {}
        await self._api.create({**self._event(note, told.name, last), **series})
        self._remember(note, told)

    async def _count(self, times: _Times, told: _Told) -> bool:
        """False when the event that was told is gone by now."""
        note, counted = times.note, _Told(told.name, told.count + times.often)
        patch = self._series(counted, times.last)
        try:
            await self._api.patch(EVENTS, told.name, patch, note.pod.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        self._remember(note, counted)
        return True

    def _remember(self, note: Note, told: _Told) -> None:
        self._told[note.key] = told
        self._told.move_to_end(note.key)
        if len(self._told) > MOST_KNOWN:
            self._told.popitem(last=False)

    def _series(self, told: _Told, now: float) -> dict[str, Any]:
        return {"series": {"count": told.count, "lastObservedTime": rfc3339_micro(now)}}

    def _event(self, note: Note, name: str, now: float) -> Object:
        pod = note.pod
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "eventTime": rfc3339_micro(now),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": note.action,
            "reason": note.reason,
            "type": note.type,
            "note": note.text[:LONGEST_NOTE],
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "resourceVersion": pod.metadata.resource_version,
            },
        }
