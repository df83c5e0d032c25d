"""Key-value stores with revisions and watches: memory, SQLite, etcd. Speaks: storage."""

from podwire.store.errors import BadUrl, CannotOpen
from podwire.store.factory import AnyStore, check_url, open_store
from podwire.store.history import Window
from podwire.store.memory import MemoryStore

__all__ = ["AnyStore", "BadUrl", "CannotOpen", "MemoryStore", "Window", "check_url", "open_store"]
