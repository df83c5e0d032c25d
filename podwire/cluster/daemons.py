"""Runs a daemon until it ends or a signal arrives, with a garbage collector that does not delay requests."""

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine
from typing import Any

import uvloop

from podwire.linux.syscalls import return_freed_memory

YOUNG = 5_000
"""New objects after which the garbage collector inspects the young generation: 1 ms at most."""
OLD = 50
"""Collections of the middle generation, 10 * YOUNG objects each, after which all objects are inspected. All requests
wait for that, so that it must not happen once for each large object, as it does with CPython's 10."""


def tune_memory() -> None:
    """Called by a daemon that is up: objects that exist now stay, so the garbage collector need not visit them.

    Visiting them was most of the work of every full collection, during which all requests wait. Requests leave hardly
    any cycles, so that collecting less often costs nothing. Large buffers of requests go back to the kernel.
    """
    return_freed_memory()
    gc.freeze()
    gc.set_threshold(YOUNG, gc.get_threshold()[1], OLD)
    gc.enable()


def run_until_stopped(work: Awaitable[None], signals: Collection[signal.Signals]) -> None:
    """Runs a coroutine; a signal cancels it, which is a clean stop. Later signals are ignored: the process ends.

    The handlers are not those of the loop: a closing loop restores the default, and a second signal would then kill the
    process while it ends.
    """

    async def run() -> None:
        task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
        for number in signals:
            signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(task.cancel))
        try:
            await task
        except asyncio.CancelledError:
            return
        finally:
            for number in signals:
                signal.signal(number, signal.SIG_IGN)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@contextlib.asynccontextmanager
async def background(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs endless coroutines besides the body; one that fails ends the body, and the end of the body cancels them."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
