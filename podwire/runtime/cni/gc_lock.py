"""The lock between GC and the other verbs of a network.

ADD, DEL and CHECK share the lock; GC holds it alone, because GC releases whatever is not in its list of valid
attachments, and that list must not change meanwhile. The locks are files, so that the rule holds between the runtime
and `podwire cni` in other processes, and the kernel releases the lock of a process that dies.

Two files per network keep GC from starving: all take the gate (`NAME.gate`) before the lock (`NAME.lock`), and GC keeps
the gate while it waits for the holders of the lock, so that no new ones come in. Lock files are never removed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podwire.durable.locks import lock_file
from podwire.linux import errors as linux

LOCKS = "locks"
"""The directory of the lock files, below the runtime's state of CNI."""


class GcLock:
    """The locks of all networks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def shared(self, network: str) -> Iterator[None]:
        """For ADD, DEL and CHECK."""
        with lock_file(self._path(network, "gate"), wait=None):
            held = lock_file(self._path(network, "lock"), wait=None, shared=True)
        with held:
            yield

    @contextmanager
    def exclusive(self, network: str) -> Iterator[None]:
        """For GC."""
        with lock_file(self._path(network, "gate"), wait=None), lock_file(self._path(network, "lock"), wait=None):
            yield

    def _path(self, network: str, name: str) -> Path:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise linux.from_oserror(error, f"create {self._directory}") from error
        return self._directory / f"{network}.{name}"
