"""How a daemon runs: until it ends or a signal asks it to, and with a garbage collector that keeps out of its way."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Iterable

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


def run_until_stopped(work: Awaitable[None], signals: Iterable[signal.Signals]) -> None:
    """Run it; a signal cancels it, which is a clean stop."""

    async def watched() -> None:
        task = asyncio.ensure_future(work)
        for each in signals:
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())
