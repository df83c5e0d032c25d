"""Logs of running containers are rotated at their size, and old files go."""

import asyncio
import contextlib
import gzip
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from podwire.kubelet.log_rotation import LogRotation, LogSettings, remove_log, rotated_files
from podwire.protocols.grpc_status import Unavailable
from tests.eventually import eventually_async


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def wall(self):
        return self.now

    def monotonic(self):
        return asyncio.get_running_loop().time()


@dataclass
class Container:
    path: Path
    """A writer that keeps its file open until it is requested to open it again."""
    id: str = "c1"
    fails: list = field(default_factory=list)
    calls: int = 0

    def __post_init__(self):
        self.log_path = str(self.path)
        self.file = self.path.open("ab", buffering=0)

    def write(self, text):
        self.file.write(text.encode())

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        self.calls += 1
        if self.fails:
            raise self.fails.pop()
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def texts(self):
        return [
            gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
            for file in (*rotated_files(self.path), self.path)
        ]


@pytest.fixture
def container(tmp_path):
    made = Container(tmp_path / "0.log")
    yield made
    made.file.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def rotation(container, clock):
    observed = SimpleNamespace(running=[container])
    cache = SimpleNamespace(uids={"u"}, observed=lambda _: observed)
    settings = LogSettings(max_size=10, max_files=4, period=0.02, shortest_period=0.01)
    task = asyncio.create_task(LogRotation(container, cache, clock, settings).run())
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def rotated(container, calls):
    await eventually_async(lambda: container.calls == calls and container.path.exists())


async def test_a_log_is_rotated_compressed_and_removed(rotation, container):
    for number in range(6):
        container.write(f"number {number} and more")
        await rotated(container, number + 1)
    assert container.texts() == [*(f"number {number} and more" for number in (3, 4, 5)), ""]
    names = [file.name for file in rotated_files(container.path)]
    assert [name.endswith(".gz") for name in names] == [True, True, False]
    assert names[0] == "0.log.20270115-080003.gz"


async def test_a_clock_that_is_set_back_does_not_change_the_order(rotation, container, clock):
    container.write("first, before the clock was set back")
    await rotated(container, 1)
    clock.now -= 86400
    container.write("second, after the clock was set back")
    await rotated(container, 2)
    assert [text[:5] for text in container.texts()] == ["first", "secon", ""]


async def test_a_log_that_cannot_be_reopened_keeps_its_name(rotation, container, caplog):
    container.fails = [Unavailable("restarting")]
    container.write("more than ten bytes")
    await rotated(container, 2)
    assert container.texts() == ["more than ten bytes", ""]
    assert "cannot rotate container log" in caplog.text


async def test_a_removed_log_is_opened_again(rotation, container):
    container.path.unlink()
    await rotated(container, 1)
    assert rotated_files(container.path) == []


async def test_a_small_log_is_not_rotated(rotation, container):
    container.write("small")
    await asyncio.sleep(0.1)
    assert container.calls == 0


async def test_leftovers_of_a_killed_kubelet_are_removed(rotation, container):
    folder = container.path.parent
    (folder / "0.log.20260101-000000").write_text("old")
    (folder / "0.log.20260101-000000.gz").write_bytes(gzip.compress(b"old"))
    (folder / "0.log.20260101-000000.tmp").write_bytes(b"half")
    container.write("more than ten bytes")
    await rotated(container, 1)
    assert sorted(path.name for path in folder.iterdir()) == [
        "0.log", "0.log.20260101-000000.gz", "0.log.20270115-080000",
    ]  # fmt: skip


def test_a_log_is_removed_with_its_rotated_files(tmp_path):
    for name in ("0.log", "0.log.20260101-000000.gz", "10.log"):
        (tmp_path / name).touch()
    remove_log(tmp_path / "0.log")
    assert [path.name for path in tmp_path.iterdir()] == ["10.log"]


async def test_a_kubelet_rotates_the_logs_of_its_containers(world):
    await world.stop()
    world.log_settings = LogSettings(max_size=100, period=0.05, shortest_period=0.05)
    world.start()
    await world.make()
    await world.running()
    (container,) = world.runtime.containers.values()
    directory = world.logs / Path(container.log_path).parent.relative_to(world.logs)
    (directory / "0.log").write_bytes(b"x" * 200)
    await world.runtime.until("ReopenContainerLog")
    await eventually_async(lambda: (directory / "0.log").exists() and (directory / "0.log").stat().st_size == 0)
    assert len(list(directory.iterdir())) == 2
