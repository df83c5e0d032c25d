"""Colours and progress lines: only on a terminal, and no colours if $NO_COLOR is set (https://no-color.org)."""

import os
import shutil
import sys
import time
from typing import TextIO

COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "bold": 1, "dim": 2}
CLEAR_LINE = "\r\033[K"
INTERVAL = 0.1
"""Seconds between two updates of a progress line."""


def is_coloured(stream: TextIO | None = None) -> bool:
    """Whether a stream shows colours."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None = None) -> bool:
    stream = sys.stdout if stream is None else stream
    return stream is not None and stream.isatty()


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Returns the text in a colour, or as it is where colours are not shown."""
    return f"\033[{COLOURS[colour]}m{text}\033[0m" if is_coloured(stream) else text


class ProgressLine:
    """One line of a terminal that says how far the work is; prints nothing elsewhere."""

    def __init__(self, stream: TextIO | None = None, interval: float = INTERVAL) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._interval = interval
        self._wanted = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        self._shown_at = -interval
        self._is_shown = False

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Replaces the line; frequent updates are skipped."""
        now = time.monotonic()
        if not self._wanted or (now - self._shown_at < self._interval and not at_once):
            return
        self._shown_at, self._is_shown = now, True
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"{CLEAR_LINE}{text[:width]}")
        self._stream.flush()

    def clear(self) -> None:
        """Removes the line, so that other output can follow."""
        if self._is_shown:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
            self._is_shown = False
