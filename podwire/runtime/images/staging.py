"""The store's directory: one lock for changes, and staging, where everything begins and ends.

lock           held (flock) by whoever changes something, in any process, for as long as that takes
staging/       drafts, layers being unpacked, and what is on its way out; swept when the store is opened
blobs/sha256/  manifests and configs            records/     one file an image
references/    one file a name                  snapshots/   layers, unpacked, by chain id
containers/    what containers write, and which image each holds
"""

import contextlib
import fcntl
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from podwire.runtime.images import durable

PLACES = ("staging", "blobs/sha256", "records", "references", "snapshots", "containers")


class StoreDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging = root / "staging"
        self._lock = threading.RLock()
        self._depth = 0
        self._drafts = itertools.count()
        with durable.no_room_is_told():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for place in PLACES:
                (root / place).mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)  # setuid programs of images are nobody's to run from here
        self._lock_file = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else changes the store inside; a disk without room is StoreFull."""
        with self._lock, durable.no_room_is_told():
            self._depth += 1
            if self._depth == 1:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path]:
        """A directory of one's own; it and all that is left in it goes away in the end.

        A lock on it tells sweepers in other processes that somebody is at work; a crash lets go of it.
        """
        with self.exclusive():
            path = Path(tempfile.mkdtemp(prefix="work-", dir=self.staging))
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            try:
                self._remove(path)
            finally:
                os.close(held)

    def write(self, path: Path, data: bytes) -> None:
        """Put a file in place at once; durable on return. Only within `exclusive`."""
        durable.write(path, data, self.staging / f"draft-{os.getpid()}-{next(self._drafts)}")

    def sync(self, place: str) -> None:
        """Make durable which files one of the places has."""
        durable.sync_directory(self.root / place)

    def discard(self, path: Path, stage: Path) -> None:
        """Take a tree out of its place at once; it goes away with the stage, or after a crash with the sweep."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(stage / f"discarded-{next(self._drafts)}")

    def sweep(self) -> None:
        """Remove what crashes have left in staging. Only within `exclusive`: so no draft is anybody's."""
        for path in self.staging.iterdir():
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            elif _is_abandoned(path):
                self._remove(path)

    def _remove(self, path: Path) -> None:
        parent = os.open(self.staging, os.O_RDONLY | os.O_DIRECTORY)
        try:
            durable.remove_tree(parent, os.fsencode(path.name))
        finally:
            os.close(parent)


def _is_abandoned(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
