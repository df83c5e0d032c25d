"""Signals that end a demo: once, and never in the middle of what must be whole."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalGuard:
    """Whoever ends the demo politely gets it to clean up first.

    A signal is noted when it comes, and felt where the demo waits: there it is SystemExit. So nothing that is being
    made or removed is left halfway, and a second Ctrl-C changes nothing.
    """

    def __init__(self) -> None:
        self.code = 0
        """The exit code of who was stopped by a signal."""
        self._waits = False
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._undo.callback(signal.signal, number, signal.signal(number, self._note))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._undo.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.code = self.code or 128 + number
        if self._waits:
            self.heed()

    def heed(self) -> None:
        """Raise SystemExit if somebody wants us to end."""
        if self.code:
            self._waits = False
            raise SystemExit(self.code)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Here a signal is felt at once."""
        self._waits = True
        try:
            self.heed()
            yield
        finally:
            self._waits = False
