"""Maps keys, revisions and messages to etcd's and back. Pure.

Keys here always begin with /registry/; in etcd they are under the prefix of the store's URL.

A revision here is etcd's plus an offset. It is 0, unless a restore wrote the state of another store into this etcd:
then it lifts revisions above all that clients of the other store have seen. The offset is in the key that `offset_key`
names, and never changes. An API server that does not know it would hand out lower revisions, and must not share such
an etcd.
"""

from podwire.protocols.storage import Change, Item
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import PREFIX


class Layout:
    """The key map of one store."""

    def __init__(self, prefix: str, encryption: Encryption = PLAIN, offset: int = 0) -> None:
        self._root = prefix.encode()
        self._encryption = encryption
        self._offset = offset
        self.start = self._root + b"/"
        self.end = end_of(self.start)

    def raw(self, key: str) -> bytes:
        if not key.startswith(PREFIX + "/"):
            raise ValueError(f"{key!r} is not under {PREFIX}/")
        return self._root + key[len(PREFIX) :].encode("utf-8", "surrogateescape")

    def key(self, raw: bytes) -> str:
        return PREFIX + raw[len(self._root) :].decode("utf-8", "surrogateescape")

    def revision(self, raw: int) -> int:
        """Returns a revision of etcd as clients see it."""
        return raw + self._offset

    def raw_revision(self, revision: int) -> int:
        """Returns a revision as etcd has it; it is not above 0 if it is older than everything in this etcd."""
        return revision - self._offset

    def item(self, kv: pb.KeyValue) -> Item:
        """Raises CannotDecrypt."""
        key = self.key(kv.key)
        value, stale = self._encryption.decrypt(key, kv.key, kv.value)
        return Item(key, value, self.revision(kv.mod_revision), self.revision(kv.create_revision), stale)

    def stored(self, key: str, value: bytes) -> bytes:
        """Returns a value as etcd gets it."""
        return self._encryption.encrypt(key, self.raw(key), value)

    def change(self, event: pb.Event) -> Change | None:
        """Returns the change of an event; None when etcd no longer has the previous value."""
        kv = event.kv
        previous = self.item(event.prev_kv) if event.HasField("prev_kv") else None
        deleted = event.type == pb.Event.DELETE
        if previous is None and (deleted or kv.create_revision != kv.mod_revision):
            return None
        return Change(self.revision(kv.mod_revision), self.key(kv.key), None if deleted else self.item(kv), previous)


def offset_key(prefix: str) -> bytes:
    """Returns the key of the offset; it lies outside of what an API server lists or watches."""
    return b"podwire_revision_offset" + prefix.encode()


def restoring_key(prefix: str) -> bytes:
    """Returns the key that exists while a restore writes; a store that has it is incomplete."""
    return b"podwire_restoring" + prefix.encode()


def end_of(prefix: bytes) -> bytes:
    """Returns the first key after all that begin with `prefix`, which ends in '/'."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
