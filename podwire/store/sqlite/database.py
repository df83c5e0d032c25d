"""The database file: an append-only log of changes, one row each; compaction deletes superseded rows.

    log(revision INTEGER PRIMARY KEY AUTOINCREMENT, key, created, value, crc)    value NULL is a deletion
    meta(name, number)                                                           'compacted': the floor

No secondary index: memory knows which rows are superseded, so rows are only looked up by revision. AUTOINCREMENT
remembers the highest revision ever written, even when its row is deleted: a revision is never used twice.
`crc` covers the whole row, because SQLite has no checksum of its own for pages.

One connection, locking_mode=EXCLUSIVE: no second connection can exist, so SQLite's WAL-reset bug (before 3.51.3; it
takes two) cannot strike, and there is no -shm file to run out of space. synchronous=FULL: a commit is on disk
when it returns. We checkpoint ourselves (wal_autocheckpoint=0): SQLite ignores errors of its own checkpoints, and a
failed fsync of the database would then be retried, to which the kernel may answer with a false success.
"""

import ctypes
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.files import fsync_directory
from podwire.failpoints import declare, failpoint
from podwire.protocols.storage import Change, Item
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.encryption.providers import CannotDecrypt
from podwire.store.errors import CannotOpen
from podwire.store.history import FIRST_REVISION, History
from podwire.store.sqlite.reserve import restore
from podwire.store.versions import Versions

FORMAT = 1
APPLICATION_ID = 0x706F6477  # "podw"
FILE = "store.db"

BEFORE_COMMIT = declare("store.before-commit", "a batch of writes is in the transaction, not yet committed")
AFTER_COMMIT = declare("store.after-commit", "a batch of writes is durable, but not published yet")
COMPACTING = declare("store.compacting", "superseded rows are deleted, the deletion is not yet committed")

_SCHEMA = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, created INTEGER NOT NULL,
    value BLOB, crc INTEGER NOT NULL
);
CREATE TABLE meta (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
"""

_Row = tuple[int, str, int, bytes | None, int]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loaded state, and superseded rows that an interrupted compaction left."""

    versions: Versions
    superseded: list[int]


class Database:
    """The connection; used by one thread at a time."""

    def __init__(self, directory: Path, encryption: Encryption = PLAIN) -> None:
        """Opens or creates the file; raises CannotOpen."""
        self.path = directory / FILE
        self._encryption = encryption
        self._stale: list[tuple[int, str, int, bytes]] = []
        try:
            # Creates an empty file that only its owner can read: it will contain secrets.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            restore(self.path)
            self._connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise CannotOpen(f"{self.path}: {_reason(error)}") from error
        try:
            self._prepare()
            fsync_directory(str(directory))  # SQLite does that too, but ignores it when it fails
        except (OSError, sqlite3.Error) as error:
            self._connection.close()
            raise CannotOpen(f"{self.path}: {_reason(error)}") from error
        except CannotOpen:
            self._connection.close()
            raise

    def load(self) -> Loaded:
        """Loads the whole state; raises CannotOpen when a row or a page is damaged, or cannot be decrypted.

        Rows that an old key encrypted, or none, are encrypted anew: nothing of theirs is left in the file.
        """
        try:
            loaded = self._load()
            if self._stale:
                with _Transaction(self._connection):
                    for revision, key, created, value in self._stale:
                        stored = self._encryption.encrypt(key, _raw(key), value)
                        crc = _crc(revision, key, created, stored)
                        statement = "UPDATE log SET value = ?, crc = ? WHERE revision = ?"
                        self._connection.execute(statement, (stored, crc, revision))
                self._stale.clear()
                self.checkpoint(truncate=True)
        except CannotDecrypt as error:
            raise CannotOpen(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            raise CannotOpen(f"{self.path}: {_reason(error)}") from error
        return loaded

    def append(self, changes: Iterable[Change]) -> None:
        """Makes changes durable, all or none."""
        with _Transaction(self._connection):
            self._connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", map(self._row, changes))
            failpoint(BEFORE_COMMIT)
        failpoint(AFTER_COMMIT)

    def fill(self, items: Iterable[Item], revision: int) -> None:
        """Writes the state of a restore into an empty file: `revision` is the newest, and all below it is compacted.

        Raises CannotOpen.
        """
        changes = (Change(item.revision, item.key, item, None) for item in items)
        try:
            with _Transaction(self._connection):
                self._connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", map(self._row, changes))
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
                self._connection.execute("INSERT INTO sqlite_sequence VALUES ('log', ?)", (revision,))
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('compacted', ?)", (revision,))
            self.checkpoint(truncate=True)
        except sqlite3.Error as error:
            raise CannotOpen(f"{self.path}: {_reason(error)}") from error

    def remove(self, superseded: Iterable[int], *, compacted: int) -> None:
        """Deletes rows that are superseded as of revision `compacted`, which becomes the floor."""
        with _Transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('compacted', ?)", (compacted,))
            self._connection.executemany("DELETE FROM log WHERE revision = ?", ((revision,) for revision in superseded))
            failpoint(COMPACTING)

    def checkpoint(self, *, truncate: bool) -> None:
        """Moves the WAL into the database file; `truncate` also frees the WAL's disk space."""
        self._connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if truncate else 'PASSIVE'})").fetchall()

    def free_bytes(self) -> int:
        """Returns the size of the file's free pages, which the next writes use before the file grows."""
        return self._free_pages() * self._page_bytes()

    def size(self) -> int:
        """Returns the size in pages, in bytes: that of the file after the next checkpoint."""
        return _number(self._connection, "PRAGMA page_count") * self._page_bytes()

    def add_free_pages(self, size: int) -> None:
        """Makes free pages of so many bytes, which belong to the file: a table that is dropped as soon as it is filled.

        Takes as much of the WAL, and of the disk when the WAL is checkpointed.
        """
        with _Transaction(self._connection):
            self._connection.execute("CREATE TABLE spare (value BLOB)")
            self._connection.execute("INSERT INTO spare VALUES (zeroblob(?))", (size,))
            self._connection.execute("DROP TABLE spare")

    def vacuum(self, pages: int, *, keep_bytes: int = 0) -> bool:
        """Returns up to `pages` free pages to the file system, except so many bytes; returns whether there may be
        more."""
        free = self._free_pages() - keep_bytes // self._page_bytes()
        if free > 0:
            # Each page is a row without columns; execute() would stop after the first.
            self._connection.executescript(f"PRAGMA incremental_vacuum({min(free, pages)})")
        return free > pages

    def _free_pages(self) -> int:
        return _number(self._connection, "PRAGMA freelist_count")

    def _page_bytes(self) -> int:
        return _number(self._connection, "PRAGMA page_size")

    def close(self) -> None:
        self._connection.close()

    def abandon(self) -> None:
        """Never touches the file again: an extra reference prevents the connection from being closed, even at
        interpreter exit."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")  # before the first read, or a -shm file is created
        found = _number(self._connection, "PRAGMA user_version")
        if found > FORMAT:
            raise CannotOpen(
                f"{self.path}: written by a newer podwire (format {found}; this one supports up to {FORMAT})"
            )
        if found == 0:
            if _number(self._connection, "SELECT count(*) FROM sqlite_master"):
                raise CannotOpen(f"{self.path}: is a SQLite file of another program")
            execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect only in an empty file, before WAL
        if (mode := execute("PRAGMA journal_mode=WAL").fetchone()[0]) != "wal":
            raise CannotOpen(f"{self.path}: SQLite refuses the write-ahead log (journal_mode is {mode})")
        execute("PRAGMA synchronous=FULL")
        execute("PRAGMA wal_autocheckpoint=0")
        if self._encryption is not PLAIN:
            execute("PRAGMA secure_delete=ON")  # what was plain text does not stay in free pages
        if found == 0:  # otherwise nothing is written, so a full disk can still be read
            with _Transaction(self._connection):
                self._create()

    def _create(self) -> None:
        for statement in _SCHEMA.split(";"):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version={FORMAT}")
        self._connection.execute("INSERT INTO meta VALUES ('compacted', ?)", (FIRST_REVISION,))

    def _load(self) -> Loaded:
        damage = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise CannotOpen(f"{self.path}: damaged: {damage}")
        compacted = _number(self._connection, "SELECT number FROM meta WHERE name = 'compacted'")
        newest = _number(self._connection, "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'log'")
        items: dict[str, Item] = {}
        history = History(compacted)
        superseded: list[int] = []
        for change in self._changes(items):
            if change.revision > compacted:
                # Checks that the previous item of a change exists; above the floor no row may be missing.
                created = change.item.created if change.item else None
                if change.previous is None and created != change.revision:
                    raise CannotOpen(
                        f"{self.path}: damaged: the row that revision {change.revision} replaced is missing"
                    )
                history.append(change)
                continue
            if change.previous is not None:
                superseded.append(change.previous.revision)
            if change.item is None:
                superseded.append(change.revision)
        return Loaded(Versions(items.values(), history, newest), superseded)

    def _changes(self, items: dict[str, Item]) -> Iterator[Change]:
        """Yields the log as changes; updates `items` along the way."""
        row: _Row
        for row in self._connection.execute("SELECT revision, key, created, value, crc FROM log ORDER BY revision"):
            revision, key, created, value, crc = row
            if _crc(revision, key, created, value) != crc:
                raise CannotOpen(f"{self.path}: damaged: checksum mismatch at revision {revision}")
            previous = items.get(key)
            if value is None:
                items.pop(key, None)
                yield Change(revision, key, None, previous)
            else:
                value, stale = self._encryption.decrypt(key, _raw(key), value)
                if stale:
                    self._stale.append((revision, key, created, value))
                item = items[key] = Item(key, value, revision, created)
                yield Change(revision, key, item, previous)

    def _row(self, change: Change) -> _Row:
        item, key = change.item, change.key
        created, value = (item.created, item.value) if item else (0, None)
        if value is not None:
            value = self._encryption.encrypt(key, _raw(key), value)
        return change.revision, key, created, value, _crc(change.revision, key, created, value)


class _Transaction:
    """BEGIN … COMMIT, or ROLLBACK after any error, also of COMMIT."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _crc(revision: int, key: str, created: int, value: bytes | None) -> int:
    head = f"{revision} {created} {'-' if value is None else len(value)} {key}".encode()
    return zlib.crc32(value or b"", zlib.crc32(head))


def _number(connection: sqlite3.Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return int(row[0])


def _reason(error: OSError | sqlite3.Error) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    name = getattr(error, "sqlite_errorname", None)
    return f"{error} ({name})" if name else str(error)
