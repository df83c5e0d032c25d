"""The clients of the watch benchmark: `python -m benchmarks.watchers PORT WATCHERS RATE SECONDS`.

The token comes in BENCH_TOKEN.

Watchers and the one that patches are raw connections on one event loop, so that the time between sent and seen is the
server's and not a client library's. Every patch carries the time at which it was sent.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections import deque
from typing import cast

import uvloop

from benchmarks.server import untrusting
from benchmarks.workload import PODS

MARK = b'"bench-sent":"'
PATIENCE = 30.0
"""Seconds besides the measurement after which it counts as hung."""

EVENTS_PER_SECOND = 5_000
"""Fewer than these count as hung, too."""

SETTLE = 1.0
"""Seconds in which the last events may arrive, and whatever is made on first use is made."""


def connections(rate: float) -> int:
    """How many pods are patched, each on a connection of its own: a connection answers one request at a time."""
    return max(1, int(rate) // 25)


class Watcher(asyncio.Protocol):
    """Notes how old every mark is that comes in."""

    def __init__(self, ages: list[float], path: str = f"{PODS}?watch=true") -> None:
        self.ages = ages
        self._path = path
        self.opened = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(_head("GET", self._path) + b"\r\n")

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        if not self.opened.done():
            self.opened.set_result(data.split(b"\r\n", 1)[0])
        data = self._rest + data
        at = data.find(MARK)
        while at >= 0 and (end := data.find(b'"', at + len(MARK))) >= 0:
            self.ages.append((now - int(data[at + len(MARK) : end])) / 1e6)
            data = data[end:]
            at = data.find(MARK)
        self._rest = data[at:] if at >= 0 else data[-len(MARK) :]


def _head(method: str, path: str) -> bytes:
    token = os.environ["BENCH_TOKEN"]
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n".encode()


class Patcher:
    """One connection that patches one pod; answers come in the order of the requests."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number = number
        self._writer = writer
        self._sent: deque[float] = deque()
        self.took: list[float] = []
        """Milliseconds of each request."""
        self._answers = asyncio.create_task(self._read(reader))

    def send(self, number: int | None = None) -> None:
        body = b'{"metadata":{"annotations":{"bench-sent":"%d"}}}' % time.perf_counter_ns()
        number = self._number if number is None else number
        head = _head("PATCH", f"{PODS}/pod-{number}") + b"Content-Type: application/merge-patch+json\r\n"
        self._sent.append(time.perf_counter())
        self._writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            now = time.perf_counter()
            self.took += [(now - self._sent.popleft()) * 1e3 for _ in range(data.count(b"HTTP/1.1 "))]

    def close(self) -> None:
        self._answers.cancel()
        self._writer.transport.abort()


async def patch(patchers: list[Patcher], rate: float, seconds: float) -> int:
    """Patch at a steady rate, late or not, each connection in its turn; the number of patches."""
    begin, count = time.perf_counter(), int(rate * seconds)
    for number in range(count):
        await asyncio.sleep(begin + number / rate - time.perf_counter())
        patchers[number % len(patchers)].send()
    await asyncio.sleep(SETTLE)
    return count


async def until_seen(ages: list[float], count: int) -> None:
    """Until `PATIENCE` ends."""
    while len(ages) < count:  # noqa: ASYNC110 - an Event would cost each mark of the measurement
        await asyncio.sleep(0.05)


async def main(port: int, watchers: int, rate: float, seconds: float) -> dict[str, float]:
    context, ages = untrusting(), list[float]()
    loop = asyncio.get_running_loop()
    wires = []
    for _ in range(watchers):
        wire, watcher = await loop.create_connection(lambda: Watcher(ages), "127.0.0.1", port, ssl=context)
        wires.append(wire)
        status = await watcher.opened
        if b" 200 " not in status:
            raise SystemExit(f"watch: {status.decode()}")
    patchers = [
        Patcher(number, *await asyncio.open_connection("127.0.0.1", port, ssl=context))
        for number in range(connections(rate))
    ]
    await until_seen(ages, watchers * await patch(patchers, rate, 0.5))
    ages.clear()
    gc.freeze()
    gc.disable()  # the clients' pauses are not the server's
    sent = await patch(patchers, rate, seconds)
    await until_seen(ages, watchers * sent)
    took = [milliseconds for patcher in patchers for milliseconds in patcher.took]
    for patcher in patchers:
        patcher.close()
    for wire in wires:
        wire.close()
    if len(ages) != sent * watchers:
        raise SystemExit(f"{sent} patches to {watchers} watchers, but {len(ages)} events were seen")
    cuts = statistics.quantiles(ages, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "max": max(ages), "write p50": statistics.median(took)}


if __name__ == "__main__":
    port_, watchers_, rate_, seconds_ = sys.argv[1:]
    work = main(int(port_), int(watchers_), float(rate_), float(seconds_))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        patience = PATIENCE + float(seconds_) * (1 + int(watchers_) * float(rate_) / EVENTS_PER_SECOND)
        delays = runner.run(asyncio.wait_for(work, patience))
    sys.stdout.write(json.dumps(delays) + "\n")
