"""kill -9 of a server under fifty writers: what was acknowledged is there, and nobody notices more than a pause."""

import asyncio
import contextlib
import json
import os
import random
import sys
from dataclasses import dataclass, field

import aiohttp
import pytest

from tests.eventually import eventually_async

SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**9)
ROUNDS = 20 if os.environ.get("PODWIRE_SOAK") else 2
WRITERS = 50
READY_SECONDS = 30.0
"""A start takes a third of a second on an idle machine; this one is busy."""
MAPS = "/api/v1/namespaces/default/configmaps"

Broken = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass
class Progress:
    """Writes that the server acknowledged."""

    versions: list[int] = field(default_factory=list)
    lost_answers: int = 0
    written: int = 0


@dataclass
class Writer:
    """Creates, replaces, patches and deletes one object after the other, and knows what the server must hold."""

    number: int
    http: aiohttp.ClientSession
    chance: random.Random
    progress: Progress
    object: dict | None = None
    """As last acknowledged; None when it is not there."""
    count: int = 0

    @property
    def name(self):
        return f"writer-{self.number}"

    async def work(self, stop):
        while not stop.is_set():
            self.count += 1
            try:
                await self.once()
            except Broken:
                self.progress.lost_answers += 1
                await self.find_out()

    async def once(self):
        if self.object is None:
            body = {"metadata": {"name": self.name}, "data": {"count": str(self.count)}}
            self.keep(await self.ask("POST", MAPS, 201, body))
            return
        how = self.chance.choices(("replace", "patch", "delete"), (4, 4, 1))[0]
        path = f"{MAPS}/{self.name}"
        if how == "delete":
            await self.ask("DELETE", path, 200)
            self.progress.written += 1
            self.object = None
        elif how == "replace":
            body = {**self.object, "data": {"count": str(self.count)}}
            self.keep(await self.ask("PUT", path, 200, body))
        else:
            self.keep(await self.ask("PATCH", path, 200, {"data": {"count": str(self.count)}}))

    def keep(self, answer):
        assert answer["data"] == {"count": str(self.count)}
        self.object = answer
        self.progress.versions.append(int(answer["metadata"]["resourceVersion"]))
        self.progress.written += 1

    async def find_out(self):
        """The answer was lost: the object is as it was, or as it should have become."""
        found = await self.read_when_back()
        before = self.object and self.object["metadata"]["resourceVersion"]
        unchanged = found and found["metadata"]["resourceVersion"] == before
        done = found is None or found["data"] == {"count": str(self.count)}
        assert (found is None and before is None) or unchanged or done, f"{self.name}: {self.object} became {found}"
        self.object = found

    async def read_when_back(self):
        while True:
            with contextlib.suppress(*Broken):
                async with self.http.get(f"{MAPS}/{self.name}") as answer:
                    if answer.status in (200, 404):
                        return await answer.json() if answer.status == 200 else None
            await asyncio.sleep(0.02)

    async def ask(self, method, path, expected, body=None):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            document = await answer.json()
            assert answer.status == expected, f"{method} {path}: {document}"
            return document


class Watcher:
    """Follows every change; when the stream breaks, goes on after the last revision that it saw."""

    def __init__(self, http, after):
        self.http = http
        self.events = []
        self.seen = after
        self.breaks = 0
        self.task = asyncio.create_task(self.follow())

    async def follow(self):
        while True:
            with contextlib.suppress(*Broken):
                await self.read()
            self.breaks += 1
            await asyncio.sleep(0.02)

    async def read(self):
        query = {"watch": "true", "resourceVersion": str(self.seen)}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.http.get(MAPS, params=query, timeout=timeout) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if not line.endswith(b"\n"):
                    return  # cut in the middle
                self.take(json.loads(line))

    def take(self, event):
        kind, object_ = event["type"], event["object"]
        assert kind in ("ADDED", "MODIFIED", "DELETED"), event
        version = int(object_["metadata"]["resourceVersion"])
        assert version > self.seen, f"{version} after {self.seen}: twice, or back in time"
        self.seen = version
        self.events.append((version, kind, object_))

    async def until(self, version):
        await eventually_async(lambda: self.seen >= version or self.task.done())
        assert self.seen >= version, self.task.exception()

    async def close(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def replayed(self, start):
        """Applies the changes to the objects that existed before."""
        state = dict(start)
        for _, kind, object_ in self.events:
            name = object_["metadata"]["name"]
            if kind == "DELETED":
                assert state.pop(name, None), f"{name} was deleted but not there"
            else:
                assert (name in state) == (kind == "MODIFIED"), f"{kind} of {name}"
                state[name] = object_
        return state


async def listed(http):
    async with http.get(MAPS) as answer:
        assert answer.status == 200
        page = await answer.json()
    objects = {item["metadata"]["name"]: item for item in page["items"]}
    return objects, int(page["metadata"]["resourceVersion"])


@contextlib.asynccontextmanager
async def connected(server):
    connector = aiohttp.TCPConnector(limit=0, ssl=server.tls)
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(server.url, connector=connector, timeout=timeout) as http:
        yield http


# A connection that a kill cuts in the midst of its TLS handshake is left to the garbage collector by asyncio itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(start_server, round_):
    seed = SEED + round_
    chance = random.Random(seed)
    sys.stdout.write(f"PODWIRE_CRASH_SEED={seed}\n")
    server = await asyncio.to_thread(start_server)
    progress, stop = Progress(), asyncio.Event()
    async with connected(server) as http:
        start, revision = await listed(http)
        watcher = Watcher(http, revision)
        writers = [Writer(number, http, random.Random(f"{seed} {number}"), progress) for number in range(WRITERS)]
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.work(stop))
            for _ in range(2):
                ready = await killed_and_started(server, progress, chance)
                assert ready < READY_SECONDS
            await more_writes(progress, 500)
            stop.set()
        now, revision = await listed(http)
        await watcher.until(max(progress.versions))
        await watcher.close()
    check(progress, writers, watcher, start, now, revision)
    sys.stdout.write(f"{progress.written} writes, {progress.lost_answers} answers lost, {len(watcher.events)} events\n")


async def killed_and_started(server, progress, chance):
    """Kill it in the middle of the work, start it again; seconds until it is ready."""
    await more_writes(progress, chance.randint(100, 800))
    await asyncio.sleep(chance.random() * 0.05)
    await asyncio.to_thread(server.kill)
    newest = max(progress.versions)
    ready = await asyncio.to_thread(server.start)
    count = len(progress.versions)
    await more_writes(progress, 1)
    assert min(progress.versions[count:], default=newest + 1) > newest, "a revision went back"
    return ready


async def more_writes(progress, count):
    async with asyncio.timeout(60):
        wanted = progress.written + count
        while progress.written < wanted:  # noqa: ASYNC110 - it is a number that grows, not an event
            await asyncio.sleep(0.005)


def check(progress, writers, watcher, start, now, revision):
    assert progress.lost_answers, "the server was not killed in the middle of anything"
    assert len(set(progress.versions)) == len(progress.versions), "a revision was given twice"
    assert revision >= max(progress.versions)
    for writer in writers:
        assert now.get(writer.name) == writer.object, f"{writer.name} is not as acknowledged"
    versions = [version for version, _, _ in watcher.events]
    assert set(progress.versions) <= set(versions), "the watch has a gap"
    assert watcher.replayed(start) == now
