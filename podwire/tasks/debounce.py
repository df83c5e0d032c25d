"""Debouncing: a burst of events causes one action, so that events which we cause ourselves do not starve us."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator


class Debounce:
    """Calls `action` once, `delay` seconds after an event.

    Events during the delay are part of the burst. By default they do not move the time of the action, so that it comes
    at most `delay` seconds late however long the burst is; with `quiet` the action waits for `delay` seconds without
    events.
    """

    def __init__(self, delay: float, action: Callable[[], None], *, quiet: bool = False) -> None:
        self._delay, self._action, self._quiet = delay, action, quiet
        self._timer: asyncio.TimerHandle | None = None

    def trigger(self) -> None:
        """An event came."""
        if self._timer is not None:
            if not self._quiet:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._delay, self.flush)

    @property
    def pending(self) -> bool:
        return self._timer is not None

    def flush(self) -> None:
        """Do at once what is pending, if anything is."""
        if self._timer is not None:
            self.cancel()
            self._action()

    def cancel(self) -> None:
        """Forget what is pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@contextlib.contextmanager
def debounced_reader(fileno: int, delay: float, read: Callable[[], None]) -> Iterator[None]:
    """Call `read` `delay` seconds after a descriptor became readable; it reads all that has come by then.

    The event loop does not look at the descriptor meanwhile: a netlink or inotify socket that is always readable costs
    one wakeup per delay.
    """
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        loop.remove_reader(fileno)
        debounce.trigger()

    def action() -> None:
        loop.add_reader(fileno, on_readable)
        read()

    debounce = Debounce(delay, action)
    loop.add_reader(fileno, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(fileno)
        debounce.cancel()
