"""How a daemon runs: until it ends or a signal asks it to, and with a garbage collector that keeps out of its way."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Collection

import uvloop

YOUNG = 5_000
"""So many objects more than at the last look, and the garbage collector looks at the new ones: 1 ms at most."""


def settle() -> None:
    """Told by a daemon that is up: what it has made so far stays, so nobody needs to look through it for garbage.

    That was most of the work of every full collection, in which all requests wait. Requests themselves leave next to
    no cycles behind, so looking less often costs nothing.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    gc.enable()


def run_until_stopped(work: Awaitable[None], signals: Collection[signal.Signals]) -> None:
    """Run it; a signal cancels it, which is a clean stop. The process ends after this: later signals change nothing.

    The handlers are not the loop's own: when a loop closes, those leave the default behind, and whoever asks again
    while the process ends would kill it.
    """

    async def watched() -> None:
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
        runner.run(watched())
