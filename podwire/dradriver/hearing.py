"""Hears what the kernel tells, in beats: who does what it tells of, often this process, is not kept from its work."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def heard(fileno: int, seconds: float, listen: Callable[[], None]) -> Iterator[None]:
    """`listen` is called so long after something came, and reads all there is by then."""
    loop = asyncio.get_running_loop()
    later: asyncio.TimerHandle | None = None

    def came() -> None:
        nonlocal later
        loop.remove_reader(fileno)
        later = loop.call_later(seconds, hear)

    def hear() -> None:
        loop.add_reader(fileno, came)
        listen()

    loop.add_reader(fileno, came)
    try:
        yield
    finally:
        loop.remove_reader(fileno)
        if later is not None:
            later.cancel()
