"""Counts losses and logs them at intervals: a log must not grow as fast as the losses that it reports."""

import logging
import time
from collections.abc import Callable

REPORT_INTERVAL = 30.0
"""Seconds between two log lines about the same loss."""


class LossLog:
    def __init__(
        self, log: logging.Logger, message: str, noun: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`noun` is the log field that has the count."""
        self._log = log
        self._clock = clock
        self._message = message
        self._noun = noun
        self._reported = float("-inf")
        self._unreported = 0
        self._error = ""
        self.total = 0

    def add(self, number: int, error: str) -> None:
        self.total += number
        self._unreported += number
        self._error = error
        if self._clock() >= self._reported + REPORT_INTERVAL:
            self.report()

    def report(self) -> None:
        """Logs the losses since the last report, with the last cause."""
        if self._unreported:
            counted = {self._noun: self._unreported, "total": self.total, "error": self._error}
            self._log.warning(self._message, extra=counted)
            self._reported, self._unreported = self._clock(), 0
