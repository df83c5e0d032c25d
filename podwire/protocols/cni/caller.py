"""The caller of a plugin, as a variable of the plugin's environment, which all processes that it starts inherit.

Not part of the specification. It serves two sides: a restarted runtime finds the processes of calls that its
predecessor did not finish, and a plugin of ours can find out whether somebody still waits for its answer.
"""

from typing import NamedTuple, Self

VARIABLE = "PODWIRE_CNI_CALLER"


class Caller(NamedTuple):
    """One call of one process. A number means something only in the pid namespace that it is of."""

    pid: int
    started: int
    """When the process started, in clock ticks since boot: with the pid, its identity until the next boot."""
    pid_namespace: int
    """The inode of its pid namespace."""
    state: str
    """The directory in which the caller records attachments, by device and inode: `DEVICE-INODE`."""
    call: int = 0
    """The number of the call among those of this process."""

    def encode(self) -> str:
        """The variable's value: `PID:STARTED:PID_NAMESPACE:STATE:CALL`."""
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The caller that a value names; None when it names none."""
        parts = text.split(":")
        if len(parts) != len(cls._fields):
            return None
        pid, started, namespace, state, call = parts
        if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in (pid, started, namespace, call)):
            return None
        return cls(int(pid), int(started), int(namespace), state, int(call))
