"""Exec and attach: the channels, and what a client asks to be connected to."""

import enum
from dataclasses import dataclass


class Channel(enum.IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    """The outcome, at the end."""
    RESIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The connected streams. A terminal has no separate stderr."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
