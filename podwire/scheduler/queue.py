"""Pending pods, by priority and then by waiting time.

| state | the pod | leaves it when |
|---|---|---|
| ACTIVE | waits in the heap | `pop` returns it |
| IN_FLIGHT | is scheduled, bound, or evicts others | the scheduler calls `drop`, `mark_unschedulable`, `back_off` |
| BACKOFF | failed with an error, or an event came soon after it fitted no node | 1 s passed, doubled up to 10 s |
| UNSCHEDULABLE | fits no node | a cluster event in its `retry_on` happens |

An event activates the first pods at once, whatever happened before. The others wait until 1 s, doubled with each
attempt up to 10 s, has passed since their last attempt, as upstream's do: with thousands of pending pods, a stream of
events would otherwise cause nothing but decisions in vain.
"""

import asyncio
import enum
import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from podwire.scheduler.framework import NOTHING, ClusterEvent
from podwire.scheduler.pod_info import PodInfo
from podwire.tasks.backoff import Pauses


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, where not said otherwise. The back-off doubles from `initial_backoff` up to `max_backoff`."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    flush: float = 300.0
    """All unschedulable pods are retried after this time, in case a watch event was missed."""
    volume_binding: float = 600.0
    """A pod's volumes must be bound within this time, or the pod is decided on again."""
    concurrent_bindings: int = 16
    """More would only wait in the server, and each needs a connection."""
    concurrent_reports: int = 4
    """Writes of conditions of pending pods at a time; one while bindings are in flight."""
    eager_retries: int = 100
    """How many pods an event activates without regard to their back-off."""


class _State(enum.Enum):
    ACTIVE = enum.auto()
    IN_FLIGHT = enum.auto()
    BACKOFF = enum.auto()
    UNSCHEDULABLE = enum.auto()


@dataclass(slots=True)
class _Entry:
    info: PodInfo
    state: _State
    sequence: int
    pauses: Pauses
    """After errors."""
    attempts: Pauses
    """After decisions that no node fits."""
    rested_at: float = 0.0
    """When the back-off after the last such decision ends, on the loop's clock."""
    retry_on: ClusterEvent = NOTHING
    timer: asyncio.TimerHandle | None = None
    added: int = 0
    """Its place in the order in which pods came; `sequence` changes with each attempt."""


class PodQueue:
    """Contains a pod at most once, by its uid."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._entries: dict[str, _Entry] = {}
        self._parked: dict[str, _Entry] = {}
        """The unschedulable ones: an event must not cost the more, the more pods wait for their first attempt."""
        self._heap: list[tuple[int, int, str]] = []
        self._sequence = itertools.count()
        self._not_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> dict[str, int]:
        """Returns the number of pods in each of upstream's queues; pods in flight are in none."""
        states = Counter(entry.state for entry in self._entries.values())
        names = {"active": _State.ACTIVE, "backoff": _State.BACKOFF, "unschedulable": _State.UNSCHEDULABLE}
        return {name: states[state] for name, state in names.items()}

    def add(self, info: PodInfo) -> None:
        """Adds a pending pod."""
        self.drop(info.pod.uid)
        pauses, attempts = (Pauses(self._limits.initial_backoff, self._limits.max_backoff) for _ in range(2))
        sequence = next(self._sequence)
        entry = _Entry(info, _State.ACTIVE, sequence, pauses, attempts, added=sequence)
        self._entries[info.pod.uid] = entry
        self._push(entry)

    def update(self, info: PodInfo, *, may_schedule: bool) -> None:
        """Replaces a pod; `may_schedule` says that the change itself may help it."""
        entry = self._entries.get(info.pod.uid)
        if entry is None:
            self.add(info)
            return
        entry.info = info
        if may_schedule and entry.state in (_State.UNSCHEDULABLE, _State.BACKOFF):
            self._activate_entry(entry)

    def refresh(self, info: PodInfo) -> None:
        """Replaces a pod if it is still in the queue."""
        if (entry := self._entries.get(info.pod.uid)) is not None:
            entry.info = info

    def drop(self, uid: str) -> None:
        """Removes a pod."""
        if (entry := self._entries.pop(uid, None)) is not None:
            self._parked.pop(uid, None)
            _cancel(entry)

    def is_unschedulable(self, uid: str) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.state is _State.UNSCHEDULABLE

    def is_about_to_be_decided(self, uid: str) -> bool:
        """Returns whether a pod waits for its next decision or is being decided on."""
        entry = self._entries.get(uid)
        return entry is not None and entry.state in (_State.ACTIVE, _State.IN_FLIGHT)

    def info(self, uid: str) -> PodInfo | None:
        """Returns the newest version of a pod that is in the queue."""
        entry = self._entries.get(uid)
        return entry.info if entry else None

    def mark_unschedulable(self, uid: str, retry_on: ClusterEvent) -> None:
        """Parks a pod until one of these cluster events happens."""
        if (entry := self._entries.get(uid)) is not None:
            entry.state, entry.retry_on = _State.UNSCHEDULABLE, retry_on
            self._parked[uid] = entry
            entry.pauses.reset()
            entry.rested_at = asyncio.get_running_loop().time() + entry.attempts.next()

    def back_off(self, uid: str) -> None:
        """Retries a pod after its back-off."""
        if (entry := self._entries.get(uid)) is None:
            return
        _cancel(entry)
        self._parked.pop(uid, None)
        entry.state = _State.BACKOFF
        entry.timer = asyncio.get_running_loop().call_later(entry.pauses.next(), self._activate_entry, entry)

    def activate(self, event: ClusterEvent, concerns: Callable[[PodInfo], bool] | None = None) -> None:
        """Activates the pods that an event may help; `concerns` narrows them."""
        helped = [
            entry
            for entry in self._parked.values()
            if entry.retry_on & event and (concerns is None or concerns(entry.info))
        ]
        if not helped:
            return
        helped.sort(key=lambda entry: entry.added)
        now = asyncio.get_running_loop().time()
        resting = [entry for entry in helped if entry.rested_at > now]
        resting.sort(key=lambda entry: (-entry.info.pod.spec.priority, entry.sequence))
        for entry in resting[self._limits.eager_retries :]:
            entry.state = _State.BACKOFF
            del self._parked[entry.info.pod.uid]
            entry.timer = asyncio.get_running_loop().call_at(entry.rested_at, self._activate_entry, entry)
        for entry in helped:
            if entry.state is _State.UNSCHEDULABLE:
                self._activate_entry(entry)

    def activate_pod(self, uid: str) -> None:
        """Activates a pod if it is unschedulable."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is _State.UNSCHEDULABLE:
            self._activate_entry(entry)

    def activate_all(self) -> None:
        for entry in sorted(self._parked.values(), key=lambda entry: entry.added):
            self._activate_entry(entry)

    async def pop(self) -> PodInfo:
        """Waits for and returns the next active pod."""
        while True:
            while self._heap:
                _priority, sequence, uid = heapq.heappop(self._heap)
                entry = self._entries.get(uid)
                if entry is not None and entry.state is _State.ACTIVE and entry.sequence == sequence:
                    entry.state = _State.IN_FLIGHT
                    return entry.info
            self._not_empty.clear()
            await self._not_empty.wait()

    def close(self) -> None:
        """Cancels all timers."""
        for entry in self._entries.values():
            _cancel(entry)

    def _activate_entry(self, entry: _Entry) -> None:
        _cancel(entry)
        self._parked.pop(entry.info.pod.uid, None)
        entry.state, entry.sequence = _State.ACTIVE, next(self._sequence)
        self._push(entry)

    def _push(self, entry: _Entry) -> None:
        pod = entry.info.pod
        heapq.heappush(self._heap, (-pod.spec.priority, entry.sequence, pod.uid))
        self._not_empty.set()


def _cancel(entry: _Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
