"""The state that a restore writes, from the entries of a backup. Pure.

Clients remember resourceVersions that were handed out after the backup was made. A restored store must not use one of
them again, and must answer watches that resume from one with 410, so that every client lists again. So the revision of
the store becomes higher than any of them could be (`bump`), and all history below it counts as compacted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.protocols.backup import BadBackup, Entry, Header
from podwire.protocols.storage import Item
from podwire.store.encryption import Encryption

ROOT = "/registry/"
BUMP = 1_000_000_000
"""Revisions to skip: with a thousand writes a second, the writes of eleven days after the backup."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Items with plain values, ordered by revision, no two with the same one; all are at or below `revision`."""

    items: tuple[Item, ...]
    revision: int


def snapshot(header: Header, entries: Iterable[Entry], encryption: Encryption, *, bump: int) -> Snapshot:
    """Raises BadBackup, or CannotDecrypt when the keys of an encrypted value are missing."""
    items: dict[str, Item] = {}
    for entry in entries:
        key = entry.key.decode("utf-8", "surrogateescape")
        if not key.startswith(ROOT) or key in items:
            raise BadBackup(f"key {key!r} {'is there twice' if key in items else f'is not below {ROOT}'}")
        if not 0 < entry.created <= entry.revision <= header.revision:
            raise BadBackup(f"{key}: revisions {entry.created} and {entry.revision} do not fit {header.revision}")
        value, _ = encryption.decrypt(key, entry.key, entry.value)
        items[key] = Item(key, value, entry.revision, entry.created)
    numbered, newest = _numbered(items.values(), header.revision)
    return Snapshot(numbered, newest + bump)


def _numbered(items: Iterable[Item], newest: int) -> tuple[tuple[Item, ...], int]:
    """Gives items that share a revision (several keys of one etcd transaction) revisions of their own, above all."""
    seen: set[int] = set()
    result: list[Item] = []
    shared: list[Item] = []
    for item in sorted(items, key=lambda item: item.revision):
        (shared if item.revision in seen else result).append(item)
        seen.add(item.revision)
    for item in shared:
        newest += 1
        result.append(Item(item.key, item.value, newest, item.created))
    return tuple(result), newest
