"""The embedded store: state in memory, every change in a SQLite log before it is acknowledged."""

from podwire.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
