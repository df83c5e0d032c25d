"""Bursts of events cause one action."""

import asyncio
import os

from podwire.tasks.debounce import Debounce, debounced_reader


async def test_a_burst_causes_one_action_that_comes_in_time():
    calls = []
    debounce = Debounce(0.05, lambda: calls.append(asyncio.get_running_loop().time()))
    began = asyncio.get_running_loop().time()
    for _ in range(8):
        debounce.trigger()
        await asyncio.sleep(0.01)
    assert len(calls) >= 1
    assert calls[0] - began >= 0.045
    debounce.cancel()


async def test_with_quiet_each_event_moves_the_action():
    calls = []
    debounce = Debounce(0.05, lambda: calls.append(1), quiet=True)
    for _ in range(8):
        debounce.trigger()
        await asyncio.sleep(0.01)
    assert (calls, debounce.pending) == ([], True)
    await asyncio.sleep(0.1)
    assert (calls, debounce.pending) == ([1], False)


async def test_flush_acts_at_once_and_cancel_never():
    calls = []
    debounce = Debounce(60, lambda: calls.append(1))
    debounce.flush()
    debounce.trigger()
    debounce.flush()
    debounce.trigger()
    debounce.cancel()
    assert (calls, debounce.pending) == ([1], False)


async def test_a_descriptor_is_read_once_per_burst():
    reading, writing = os.pipe()
    reads = []
    with debounced_reader(reading, 0.03, lambda: reads.append(os.read(reading, 100))):
        for _ in range(3):
            os.write(writing, b"x")
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        os.write(writing, b"y")
        await asyncio.sleep(0.1)
        os.write(writing, b"z")
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert reads == [b"xxx", b"y"]
    os.close(reading)
    os.close(writing)
