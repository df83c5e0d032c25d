"""Pods that wait for a node: the most important first, then the one that waited longest.

ready     in line
in hand   taken; whoever took it says how it went on
pausing   an error met it: tried again after 1 s, doubled up to 10 s
asleep    no node will do: until something happens that may help
"""

import asyncio
import enum
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from podwire.scheduler.framework import NOTHING, Happening
from podwire.scheduler.pod_info import PodInfo

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0


class _State(enum.Enum):
    READY = enum.auto()
    IN_HAND = enum.auto()
    PAUSING = enum.auto()
    ASLEEP = enum.auto()


@dataclass(slots=True)
class _Entry:
    info: PodInfo
    state: _State
    ticket: int
    helped_by: Happening = NOTHING
    failures: int = 0
    timer: asyncio.TimerHandle | None = None


class PodQueue:
    """Holds a pod at most once, by its uid."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._line: list[tuple[int, int, str]] = []
        self._tickets = itertools.count()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, info: PodInfo) -> None:
        """A pod that waits from now on."""
        self.drop(info.pod.uid)
        entry = _Entry(info, _State.READY, next(self._tickets))
        self._entries[info.pod.uid] = entry
        self._stand_in_line(entry)

    def update(self, info: PodInfo, *, worth_a_try: bool) -> None:
        """A pod as it is now; `worth_a_try` when the change itself may help it."""
        entry = self._entries.get(info.pod.uid)
        if entry is None:
            self.add(info)
            return
        entry.info = info
        if worth_a_try and entry.state in (_State.ASLEEP, _State.PAUSING):
            self._ready(entry)

    def refresh(self, info: PodInfo) -> None:
        """A pod as it is now, if it is still waited for."""
        if (entry := self._entries.get(info.pod.uid)) is not None:
            entry.info = info

    def drop(self, uid: str) -> None:
        """A pod that waits no longer."""
        if (entry := self._entries.pop(uid, None)) is not None:
            _cancel(entry)

    def asleep(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.state is _State.ASLEEP

    def sleep(self, uid: str, helped_by: Happening) -> None:
        """No node will do before one of these happens."""
        if (entry := self._entries.get(uid)) is not None:
            entry.state, entry.helped_by, entry.failures = _State.ASLEEP, helped_by, 0

    def pause(self, uid: str) -> None:
        """Something failed; the same again a little later."""
        if (entry := self._entries.get(uid)) is None:
            return
        _cancel(entry)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(entry.failures, 10))
        entry.state, entry.failures = _State.PAUSING, entry.failures + 1
        entry.timer = asyncio.get_running_loop().call_later(pause, self._ready, entry)

    def wake(self, happening: Happening, concerns: Callable[[PodInfo], bool] | None = None) -> None:
        """All whom it may help; or those of them whom it concerns."""
        for each in self._entries.values():
            if each.state is _State.ASLEEP and each.helped_by & happening and (concerns is None or concerns(each.info)):
                self._ready(each)

    def wake_all(self) -> None:
        for each in self._entries.values():
            if each.state is _State.ASLEEP:
                self._ready(each)

    async def take(self) -> PodInfo:
        """The next pod, when there is one."""
        while True:
            while self._line:
                _priority, ticket, uid = heapq.heappop(self._line)
                entry = self._entries.get(uid)
                if entry is not None and entry.state is _State.READY and entry.ticket == ticket:
                    entry.state = _State.IN_HAND
                    return entry.info
            self._filled.clear()
            await self._filled.wait()

    def close(self) -> None:
        """Nobody will be tried again."""
        for each in self._entries.values():
            _cancel(each)

    def _ready(self, entry: _Entry) -> None:
        _cancel(entry)
        entry.state, entry.ticket = _State.READY, next(self._tickets)
        self._stand_in_line(entry)

    def _stand_in_line(self, entry: _Entry) -> None:
        pod = entry.info.pod
        heapq.heappush(self._line, (-pod.spec.priority, entry.ticket, pod.uid))
        self._filled.set()


def _cancel(entry: _Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
