"""What is lost is counted, and said now and then: a log must not grow as fast as what it tells of."""

import logging
import time

SAID_EVERY = 30.0
"""Seconds between two sentences about the same."""


class Losses:
    def __init__(self, log: logging.Logger, message: str, noun: str) -> None:
        """`noun` is what is counted, as the log names it."""
        self._log = log
        self._message = message
        self._noun = noun
        self._said = float("-inf")
        self._unsaid = 0
        self._why = ""
        self.in_all = 0

    def add(self, number: int, why: str) -> None:
        self.in_all += number
        self._unsaid += number
        self._why = why
        if time.monotonic() >= self._said + SAID_EVERY:
            self.say()

    def say(self) -> None:
        """All that was not said yet, with the last reason; nothing where there is none."""
        if self._unsaid:
            counted = {self._noun: self._unsaid, "in_all": self.in_all, "reason": self._why}
            self._log.warning(self._message, extra=counted)
            self._said, self._unsaid = time.monotonic(), 0
