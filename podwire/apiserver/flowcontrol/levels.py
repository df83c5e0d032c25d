"""Priority levels: seats for requests that run, queues for requests that wait. No store, no objects.

Each level has a share of the server's seats. A request takes a seat of its level while it runs, or several if it causes
much work (see estimation.py); one that needs more seats than its level has runs when nothing else of that level does.

1. A level below its share runs the request at once.
2. Above its share it borrows a seat, while the server has free ones and the lenders keep what they do not lend.
3. Otherwise the request waits in a queue of its level, or is answered 429 (limit response Reject, or a full queue).

A level that needs a seat which it has lent takes it at once: until the borrower is done, the server runs so many more
requests than its limit. So a level never waits for another.

Queues are chosen by *shuffle sharding*: a flow (a user, or a namespace) has a hand of a few queues of its level, and a
request goes into the shortest of them. A flow with thousands of requests fills its own queues; another flow has most
likely another hand. Seats go to the queues in turn, so each flow gets its part.
"""

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from podwire.protocols.k8sapi.status import ApiError, Reason

_KEY = secrets.token_bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queuing:
    """The queues of a level: how many, how many of them a flow has, and how many requests fit into one."""

    queues: int
    hand: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpec:
    """One PriorityLevelConfiguration."""

    name: str
    uid: str = ""
    exempt: bool = False
    shares: int = 0
    lendable_percent: int = 0
    borrowing_percent: int | None = None
    """The most that may be borrowed, in percent of the level's own seats; None for no limit of its own."""
    queuing: Queuing | None = None
    """None: requests above the limit are refused."""


MOST_SEATS, MOST_PERCENT = 10, 15
"""The most seats that one request takes, and the most in percent of its level; upstream's numbers."""


class Waiting(NamedTuple):
    """A request in a queue."""

    turn: "asyncio.Future[None]"
    seats: int


@dataclass(slots=True)
class Level:
    """The seats and the queues of one level."""

    spec: LevelSpec
    seats: int = 0
    """Its share."""
    kept: int = 0
    """The part of its share that it never lends."""
    most: int = 0
    """Its share and the most that it may borrow."""
    running: int = 0
    """Seats that are taken."""
    waiting: int = 0
    rejected: int = 0
    _queues: dict[int, deque[Waiting]] = field(default_factory=dict)
    """By number; a queue exists while it is not empty. Their order is the order of their turns."""

    @property
    def widest(self) -> int:
        """The most seats that one request takes."""
        return max(1, min(MOST_SEATS, self.seats * MOST_PERCENT // 100))

    def enqueue(self, flow: str, seats: int) -> tuple[Waiting, deque[Waiting]]:
        """Puts a request of a flow into its shortest queue; raises 429 when that is full."""
        queuing = self.spec.queuing
        if queuing is None:
            self.rejected += 1
            raise too_many_requests()
        number = min(hand(flow, queuing), key=lambda card: len(self._queues.get(card, ())))
        queue = self._queues.setdefault(number, deque())
        if len(queue) >= queuing.length:
            self.rejected += 1
            raise too_many_requests()
        request = Waiting(asyncio.get_running_loop().create_future(), seats)
        queue.append(request)
        self.waiting += 1
        return request, queue

    def first(self) -> Waiting | None:
        """Returns the request that is next: the first of the queue whose turn it is."""
        while self._queues:
            number, queue = next(iter(self._queues.items()))
            while queue and queue[0].turn.done():
                queue.popleft()
                self.waiting -= 1
            if queue:
                return queue[0]
            del self._queues[number]
        return None

    def take_first(self) -> None:
        """Removes the request that `first` has returned; the other queues are next."""
        number, queue = next(iter(self._queues.items()))
        queue.popleft()
        self.waiting -= 1
        del self._queues[number]
        if queue:
            self._queues[number] = queue


class Seats:
    """All levels of a server, and its seats."""

    def __init__(self, total: int, wait_seconds: float) -> None:
        self._total = total
        self._wait_seconds = wait_seconds
        self._running = 0
        self._any_waiting = False
        """May be true without need; `_dispatch` finds out."""
        self._levels: dict[str, Level] = {}

    @property
    def levels(self) -> Sequence[Level]:
        return tuple(self._levels.values())

    def level(self, name: str) -> Level | None:
        return self._levels.get(name)

    def configure(self, specs: Sequence[LevelSpec]) -> None:
        """Takes over new levels; those that stay keep their requests, and those that go away finish theirs."""
        shares = sum(spec.shares for spec in specs if not spec.exempt) or 1
        levels = {}
        for spec in specs:
            level = self._levels.get(spec.name)
            if level is None or level.spec.exempt != spec.exempt:
                level = Level(spec)
            level.spec = spec
            level.seats = -(-self._total * spec.shares // shares)  # rounded up, as upstream does
            level.kept = level.seats - level.seats * spec.lendable_percent // 100
            borrowing = spec.borrowing_percent
            level.most = self._total if borrowing is None else level.seats + level.seats * borrowing // 100
            levels[spec.name] = level
        gone = [level for name, level in self._levels.items() if levels.get(name) is not level]
        self._levels = levels
        for level in gone:
            while (request := level.first()) is not None:
                level.take_first()
                request.turn.set_exception(too_many_requests())
        self._dispatch()

    def take_free(self, level: Level, seats: int = 1) -> bool:
        """Takes seats if they are free and nobody waits for them; returns whether it did. `release` follows."""
        if level.spec.exempt:
            level.running += seats
            return True
        if level.waiting or not self._may_run(level, seats):
            return False
        self._take(level, seats)
        return True

    async def acquire(self, level: Level, flow: str, seats: int = 1) -> None:
        """Takes seats; waits for them if it must. Raises 429. `release` follows."""
        if self.take_free(level, seats):
            return
        request, queue = level.enqueue(flow, seats)
        turn = request.turn
        self._any_waiting = True
        late = asyncio.get_running_loop().call_later(self._wait_seconds, _give_up, turn, level)
        try:
            await turn  # `_dispatch` takes the seat
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(level, seats)
            raise
        finally:
            late.cancel()
            if request in queue:
                queue.remove(request)
                level.waiting -= 1

    def release(self, level: Level, seats: int = 1) -> None:
        level.running -= seats
        if not level.spec.exempt:
            self._running -= seats
        if self._any_waiting:
            self._dispatch(level)

    def _take(self, level: Level, seats: int) -> None:
        level.running += seats
        if not level.spec.exempt:
            self._running += seats

    def _may_run(self, level: Level, seats: int) -> bool:
        if level.running + seats <= level.seats or (level.seats and not level.running):
            return True
        if level.running + seats > level.most:
            return False
        kept = sum(max(0, other.kept - other.running) for other in self._levels.values() if other is not level)
        return self._running + kept + seats <= self._total

    def _dispatch(self, first: Level | None = None) -> None:
        """Hands free seats to requests that wait: of this level first, then of the others."""
        for level in (*((first,) if first else ()), *self._levels.values()):
            while level.waiting and (request := level.first()) is not None and self._may_run(level, request.seats):
                level.take_first()
                self._take(level, request.seats)
                request.turn.set_result(None)
        self._any_waiting = any(level.waiting for level in self._levels.values())


def _give_up(turn: "asyncio.Future[None]", level: Level) -> None:
    if not turn.done():
        level.rejected += 1
        turn.set_exception(too_many_requests())


def hand(flow: str, queuing: Queuing) -> Iterator[int]:
    """Deals a flow its queues: `hand` different ones, the same for the same flow, by a hash that nobody can aim."""
    digest = hashlib.blake2b(flow.encode("utf-8", "surrogateescape"), digest_size=16, key=_KEY).digest()
    number = int.from_bytes(digest)
    dealt: list[int] = []
    for card in range(min(queuing.hand, queuing.queues)):
        number, choice = divmod(number, queuing.queues - card)
        for taken in sorted(dealt):
            if choice >= taken:
                choice += 1
        dealt.append(choice)
        yield choice


def too_many_requests() -> ApiError:
    return ApiError(
        Reason.TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
        details={"retryAfterSeconds": 1},
        headers=(("Retry-After", "1"),),
    )
