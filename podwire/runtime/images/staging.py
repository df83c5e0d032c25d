"""The directory of the image store: one lock for changes, and a staging area where everything begins and ends.

lock           held (flock) while something is changed, by any process
staging/       layers being unpacked, and what is about to be removed; swept when the store is opened
blobs/sha256/  manifests and configs            records/     one file per image
references/    one file per name                snapshots/   layers, unpacked, by chain id
containers/    the writable layers of containers, and which image each holds
"""

import contextlib
import errno
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from podwire.durable import files
from podwire.durable.locks import LockHeld, lock_directory, lock_file
from podwire.linux import errors
from podwire.linux.fs.trees import remove_tree
from podwire.runtime.images.errors import StoreFull

KEPT = "kept-layers"
"""The file of a stage that names layers which its work needs."""
DIRECTORIES = ("staging", "blobs/sha256", "records", "references", "snapshots", "containers")


@contextlib.contextmanager
def translate_full_disk() -> Iterator[None]:
    """Raises StoreFull instead of an OSError of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"no space for images: {error}") from error
        raise


class StoreDirectory:
    """The directory, its lock and its staging area."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging = root / "staging"
        self._lock = threading.RLock()
        self._depth = 0
        self._numbers = itertools.count()
        with translate_full_disk():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in DIRECTORIES:
                (root / directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)  # other users must not run setuid programs of images from here

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lock, among threads and processes; reentrant. Raises StoreFull for a full disk."""
        with self._lock, translate_full_disk(), contextlib.ExitStack() as held:
            if not self._depth:
                held.enter_context(lock_file(self.root / "lock", wait=None))
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path]:
        """Yields a new directory in staging, which is removed with its content in the end.

        A lock on it shows `sweep` of other processes that it is in use; the kernel releases it after a crash.
        """
        with contextlib.ExitStack() as held:
            with self.exclusive():
                path = Path(tempfile.mkdtemp(prefix="work-", dir=self.staging))
                held.enter_context(lock_directory(path, wait=None))
            held.callback(self._remove, path)
            yield path

    def keep(self, stage: Path, chains: Sequence[str]) -> None:
        """Notes which layers the work in a stage needs. Only within `exclusive`."""
        (stage / KEPT).write_text("\n".join(chains), encoding="ascii")

    def kept(self) -> set[str]:
        """Returns the layers that work in progress needs. Only within `exclusive`."""
        layers: set[str] = set()
        for path in self.staging.glob(f"*/{KEPT}"):
            with contextlib.suppress(FileNotFoundError):
                if not _is_abandoned(path.parent):
                    layers.update(path.read_text(encoding="ascii").split())
        return layers

    def write(self, path: Path, data: bytes) -> None:
        """Writes a file atomically and durably. Only within `exclusive`."""
        files.write_durably(path, data)

    def fsync(self, directory: str) -> None:
        """Makes the names in one of the directories survive a power loss."""
        files.fsync_directory(str(self.root / directory))

    def discard(self, path: Path, stage: Path) -> None:
        """Moves a tree into a stage, with which it is removed; after a crash, with the sweep."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(stage / f"discarded-{next(self._numbers)}")

    def sweep(self) -> None:
        """Removes what crashes left in staging, and temporary files. Only within `exclusive`."""
        for path in self.staging.iterdir():
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            elif _is_abandoned(path):
                self._remove(path)
        for directory in ("blobs/sha256", "records", "references"):
            files.sweep(self.root / directory)

    def _remove(self, path: Path) -> None:
        parent = os.open(self.staging, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(parent, os.fsencode(path.name))
        finally:
            os.close(parent)


def _is_abandoned(path: Path) -> bool:
    """Whether no process works in this directory; one that is removed just now has ended by itself."""
    try:
        lock_directory(path).close()
    except (LockHeld, errors.NoSuchPath):
        return False
    return True
