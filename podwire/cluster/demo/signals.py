"""Signals that end a demo: handled once, and never while something is half created or half removed."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalGuard:
    """Defers signals, so that the demo cleans up first.

    A signal is noted when it arrives, and raises SystemExit only where the demo waits. So nothing is left half created,
    and a second Ctrl-C changes nothing.
    """

    def __init__(self) -> None:
        self.code = 0
        """The exit code after a signal."""
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
        """Raises SystemExit if a signal has arrived."""
        if self.code:
            self._waits = False
            raise SystemExit(self.code)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Here a signal takes effect at once."""
        self._waits = True
        try:
            self.heed()
            yield
        finally:
            self._waits = False
