"""Terminals: the size of the window."""

import fcntl
import struct
import termios


def set_window_size(terminal: int, columns: int, rows: int) -> None:
    """Sets the size of a terminal, which sends SIGWINCH to its foreground processes. Raises OSError."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
