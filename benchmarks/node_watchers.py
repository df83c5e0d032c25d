"""Many watches as kubelets have them: `python -m benchmarks.node_watchers PORT WATCHES NODES PATCHES`.

The token comes in BENCH_TOKEN. Each watch is of the pods of one node, so that a change reaches few of them. A patch
carries the time at which it was sent.
"""

import asyncio
import json
import statistics
import sys
import time

import uvloop

from benchmarks.server import untrusting
from benchmarks.watchers import Patcher, Watcher
from benchmarks.workload import PODS

CONNECTING = 50
"""Connections that are made at a time."""
PATIENCE = 60.0


async def main(port: int, watches: int, nodes: int, patches: int) -> dict[str, float]:
    context, ages, loop = untrusting(), list[float](), asyncio.get_running_loop()
    slots, wires = asyncio.Semaphore(CONNECTING), list[asyncio.BaseTransport]()

    async def watch(number: int) -> None:
        path = f"{PODS}?watch=true&resourceVersion=0&fieldSelector=spec.nodeName%3Dhollow-{number % nodes}"
        async with slots:
            wire, watcher = await loop.create_connection(lambda: Watcher(ages, path), "127.0.0.1", port, ssl=context)
            wires.append(wire)
            status = await watcher.opened
            if b" 200 " not in status:
                raise SystemExit(f"watch: {status.decode()}")

    begun = time.perf_counter()
    await asyncio.gather(*(watch(number) for number in range(watches)))
    opened = time.perf_counter() - begun
    patched = [number for number in range(patches) if number < watches]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    patcher = Patcher(0, reader, writer)
    for sent, number in enumerate(patched, 1):
        patcher.send(number)
        while len(patcher.took) < sent:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.005)
    expected = sum(1 for number in range(watches) if number % nodes in set(patched))
    end = time.perf_counter() + PATIENCE
    while len(ages) < expected and time.perf_counter() < end:  # noqa: ASYNC110 - an Event would cost each mark
        await asyncio.sleep(0.05)
    patcher.close()
    for wire in wires:
        wire.close()
    if len(ages) < expected:
        raise SystemExit(f"{len(ages)} of {expected} events were seen")
    cuts = statistics.quantiles(ages, n=100)
    return {"opened": opened, "p50": cuts[49], "p99": cuts[98]}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(main(*map(int, sys.argv[1:])))
    sys.stdout.write(json.dumps(figures) + "\n")
