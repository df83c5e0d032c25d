"""Time that passes when a test says so, and a container that answers as a test says."""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.probes import ExecResult, Probes
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.client_side import Reply

WALL = 1_800_000_000.0
TURNS = 20
"""Turns of the loop in which everybody who can go on has gone on."""


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Time:
    """A clock and its sleepers. `wall_jump` moves what people see, and nothing else."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.wall_jump = 0.0

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return WALL + self._now + self.wall_jump

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def pass_(self, seconds: float) -> None:
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = end

    @property
    def sleepers(self) -> int:
        return sum(not each.done() for _, _, each in self._sleepers)


class Answers:
    """A Prober: exit codes by the command's first word, 0 by default. Each request is kept with its time."""

    def __init__(self, time: Time) -> None:
        self.codes: dict[str, int | Exception] = {}
        self.asked: list[tuple[float, str, str]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.urls: list[str] = []
        self._time = time

    async def exec(self, container_id: str, command: Sequence[str], seconds: float | None) -> ExecResult:
        self.asked.append((self._time.monotonic() - 1000.0, container_id, command[0]))
        if (hold := self.held.get(command[0])) is not None:
            await hold.wait()
        code = self.codes.get(command[0], 0)
        if isinstance(code, Exception):
            raise code
        return ExecResult(code, f"said {command[0]}")

    async def http(self, url: str, headers: Any, seconds: float | None) -> Reply:
        self.urls.append(url)
        return Reply(200, {}, b"")

    async def tcp(self, host: str, port: int, seconds: float | None) -> None:
        raise NotImplementedError

    async def grpc(self, host: str, port: int, service: str, seconds: float | None) -> int:
        raise NotImplementedError

    def times(self, word: str) -> list[float]:
        return [at for at, _, command in self.asked if command == word]


class Bench:
    """Probes that run, with all that they need and all that they reported."""

    def __init__(self) -> None:
        self.time = Time()
        self.answers = Answers(self.time)
        self.changed: list[str] = []
        self.reported: list[tuple[str, str, str]] = []
        self.chance = 0.5
        self.probes = Probes(
            self.answers,
            self.time,
            self.changed.append,
            lambda pod, container, type_, reason, message: self.reported.append((container.name, reason, message)),
            sleep=self.time.sleep,
            chance=lambda: self.chance,
        )

    def follow(self, pod: pods.Pod, *running: ObservedContainer) -> None:
        self.probes.follow(pod, {item.name: item for item in running}, ("10.1.2.3",))

    def seen(self, id_: str = "c1", name: str = "app", state: int = pb.CONTAINER_RUNNING) -> ObservedContainer:
        """A container that was started right now."""
        started = int(self.time.wall() * 1e9)
        return ObservedContainer(id=id_, name=name, sandbox="s", state=state, started_at=started)


@pytest.fixture
def bench_idle() -> Bench:
    return Bench()


@pytest.fixture
async def bench(bench_idle: Bench) -> AsyncIterator[Bench]:
    running = asyncio.create_task(bench_idle.probes.run())
    await settle()
    yield bench_idle
    assert not running.done(), running
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.fixture
def pod() -> Callable[..., pods.Pod]:
    """A pod whose only container has the probes given, each by the word that its command is."""

    def make(status: dict[str, Any] | None = None, deleting: bool = False, **probes: dict[str, Any]) -> pods.Pod:
        container: dict[str, Any] = {"name": "app"}
        for word, numbers in probes.items():
            container[f"{word}Probe"] = {"exec": {"command": [word]}, **numbers}
        meta: dict[str, Any] = {"name": "web", "namespace": "default", "uid": "u1"}
        if deleting:
            meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
        return pods.read({"metadata": meta, "spec": {"containers": [container]}, "status": status or {}})

    return make
