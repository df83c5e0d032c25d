"""Writes a snapshot into a data directory as a new database; a present one is exchanged for it and kept.

| step                                                     | killed before the step: the directory has           |
|----------------------------------------------------------|-----------------------------------------------------|
| 1. lock the directory                                    | what it had                                         |
| 2. write the new database into `restore.PID/`, fsync it  | what it had; the next restore removes `restore.*`   |
| 3. fold the WAL of the present database into it          | what it had                                         |
| 4. exchange the two files, or rename the new one         | what it had                                         |
| 5. rename `restore.PID/` to `replaced.TIME/`             | the new database, the old one in `restore.PID/`     |
"""

import os
import shutil
import time
from pathlib import Path

from podwire.durable.files import fsync_directory
from podwire.linux import syscalls
from podwire.store.encryption import Encryption
from podwire.store.errors import CannotOpen
from podwire.store.snapshot import Snapshot
from podwire.store.sqlite.database import FILE, Database
from podwire.store.sqlite.store import lock_directory

STAGING, REPLACED = "restore.", "replaced."


def restore(directory: Path, snapshot: Snapshot, encryption: Encryption, *, replace: bool) -> Path | None:
    """Returns where the replaced database is, None if there was none. Raises CannotOpen and OSError."""
    with lock_directory(directory):
        present = (directory / FILE).exists()
        if present and not replace:
            raise CannotOpen(f"{directory / FILE} exists; with --replace it is kept beside the restored one")
        for left in directory.glob(f"{STAGING}*"):
            shutil.rmtree(left)
        staging = directory / f"{STAGING}{os.getpid()}"
        staging.mkdir(mode=0o700)
        database = Database(staging, encryption)
        try:
            database.fill(snapshot.items, snapshot.revision)
        finally:
            database.close()
        fsync_directory(str(staging))
        if not present:
            (staging / FILE).rename(directory / FILE)
            fsync_directory(str(directory))
            shutil.rmtree(staging)
            return None
        old = Database(directory, encryption)  # its WAL must not be applied to the new file
        try:
            old.checkpoint(truncate=True)
        finally:
            old.close()
        if not syscalls.exchange(str(staging / FILE), str(directory / FILE)):
            shutil.rmtree(staging)
            raise CannotOpen(f"{directory}: its file system cannot exchange two files: move {FILE} away first")
        replaced = directory / f"{REPLACED}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.{os.getpid()}"
        staging.rename(replaced)
        fsync_directory(str(directory))
        return replaced
