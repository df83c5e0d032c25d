"""Maps keys and messages to etcd's and back. Pure.

Keys here always begin with /registry/; in etcd they are under the prefix of the store's URL.
"""

from podwire.protocols.storage import Change, Item
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import PREFIX


class Layout:
    """The key map of one store."""

    def __init__(self, prefix: str, encryption: Encryption = PLAIN) -> None:
        self._root = prefix.encode()
        self._encryption = encryption
        self.start = self._root + b"/"
        self.end = end_of(self.start)

    def raw(self, key: str) -> bytes:
        if not key.startswith(PREFIX + "/"):
            raise ValueError(f"{key!r} is not under {PREFIX}/")
        return self._root + key[len(PREFIX) :].encode("utf-8", "surrogateescape")

    def key(self, raw: bytes) -> str:
        return PREFIX + raw[len(self._root) :].decode("utf-8", "surrogateescape")

    def item(self, kv: pb.KeyValue) -> Item:
        """Raises CannotDecrypt."""
        key = self.key(kv.key)
        value, stale = self._encryption.decrypt(key, kv.key, kv.value)
        return Item(key, value, kv.mod_revision, kv.create_revision, stale)

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
        return Change(kv.mod_revision, self.key(kv.key), None if deleted else self.item(kv), previous)


def end_of(prefix: bytes) -> bytes:
    """Returns the first key after all that begin with `prefix`, which ends in '/'."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
