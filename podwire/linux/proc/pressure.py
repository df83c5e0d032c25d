"""Events of memory pressure: tasks of the machine that wait for memory (PSI)."""

import os
import select
from contextlib import suppress

from podwire.linux import errors

STALLED_MICROSECONDS, WINDOW_MICROSECONDS = 200_000, 2_000_000
"""An event when some task waited for memory for a tenth of two seconds. A window of two seconds needs no privilege."""


class MemoryPressure:
    """Readable, for an event loop, while there is an unread event; at most one in each window. Must be closed.

    Unsupported on a kernel without PSI, and where /proc is read-only.
    """

    def __init__(self, path: str = "/proc/pressure/memory") -> None:
        operation = "watch memory pressure"
        try:
            self._trigger = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise errors.Unsupported(error.errno or 0, operation, path) from error
        try:
            os.write(self._trigger, f"some {STALLED_MICROSECONDS} {WINDOW_MICROSECONDS}\0".encode())
            self._poll = select.epoll()
            # An event loop waits for input, and a trigger reports POLLPRI: an epoll between them translates.
            self._poll.register(self._trigger, select.EPOLLPRI)
        except OSError as error:
            os.close(self._trigger)
            raise errors.Unsupported(error.errno or 0, operation, path) from error

    def fileno(self) -> int:
        return self._poll.fileno()

    def read(self) -> bool:
        """Returns whether there was an event since the last call."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._poll.close()
        with suppress(OSError):
            os.close(self._trigger)
