"""Who may work on a network: any number that attach or detach, or one that collects garbage, and then nobody else.

Files are locked, so that this holds between threads and between processes, and the kernel lets go of what a dead
process held. Everyone passes a door first: who collects keeps it while those inside finish, so newcomers cannot keep
him waiting for ever.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podwire.linux import errors as linux

LOCKS = "locks"
"""Their directory, below the one where a runtime keeps its state of CNI."""


class GcLock:
    """Two files per network that are never removed: a lock on a removed file would exclude nobody."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def shared(self, network: str) -> Iterator[None]:
        """For ADD, DEL and CHECK."""
        with self._locked(f"{network}.room") as room:
            with self._locked(f"{network}.door") as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                fcntl.flock(room, fcntl.LOCK_SH)
            yield

    @contextmanager
    def exclusive(self, network: str) -> Iterator[None]:
        """For GC."""
        with self._locked(f"{network}.door") as door, self._locked(f"{network}.room") as room:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _locked(self, name: str) -> Iterator[int]:
        """An open file, whose lock goes when it is closed."""
        path = self._directory / name
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise linux.from_oserror(error, f"lock {path}") from error
        try:
            yield opened
        finally:
            os.close(opened)
