"""Backups of the API server's store: read online or from a store at rest, verified, and restored into any store."""

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from podwire.apiserver.backup import CONTENT_TYPE, PATH, AtRest, Backup
from podwire.durable.files import fsync_directory
from podwire.kinds.catalog import storage_prefixes
from podwire.protocols.backup import BackupDecoder, BadBackup, Entry, Header
from podwire.protocols.k8sapi.client_side.calls import Calls, Patience
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.storage import Item
from podwire.store import open_store, snapshot
from podwire.store.encryption import PLAIN, Encryption, read_encryption_configuration
from podwire.transports import http_client
from podwire.transports.clock import SystemClock

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """A backup that was read to its end and is intact."""

    header: Header
    entries: int
    kinds: Counter[str]
    """The number of objects by resource, such as `pods` or `apps/deployments`."""


@dataclass(frozen=True, slots=True)
class Restored:
    """`replaced` is where the present database was kept, if there was one."""

    revision: int
    objects: int
    replaced: Path | None = None


def read_encryption(path: Path) -> Encryption:
    """Raises BadConfig and OSError."""
    return read_encryption_configuration(path, storage_prefixes)


def at_rest(encryption: Encryption) -> AtRest:
    """Returns how backups show values: encrypted as in the store, bound to the key as it is in a backup."""
    if encryption is PLAIN:
        return _value
    return lambda item: encryption.encrypt(item.key, item.key.encode("utf-8", "surrogateescape"), item.value)


def _value(item: Item) -> bytes:
    return item.value


def scheme(url: str | None) -> str:
    return (url or "sqlite://").partition("://")[0]


async def save_online(access: Access, path: Path) -> Contents:
    """Saves the state of a running API server. Raises ApiError, ClientError, BadBackup and OSError."""
    async with http_client.connect(access, user_agent="podwire-backup") as http:
        incoming = await Calls(http, Patience()).open(PATH, query=(), headers={"accept": CONTENT_TYPE})
        with contextlib.closing(incoming):

            async def chunks() -> AsyncIterator[bytes]:
                while chunk := await incoming.read():
                    yield chunk

            return await _save(chunks(), path)


async def save_at_rest(url: str | None, directory: Path, encryption: Encryption, path: Path) -> Contents:
    """Saves the state of an etcd, or of a data directory that no API server has open.

    Raises BadUrl, CannotOpen, StorageError, BadBackup and OSError.
    """
    store = await open_store(url, directory, encryption)
    try:
        backup = Backup(store, SystemClock(), at_rest(encryption), scheme(url))
        return await _save(backup.answer().chunks, path)
    finally:
        await store.close()


async def _save(chunks: AsyncIterator[bytes], path: Path) -> Contents:
    """Writes a backup beside its path; it gets its name only after it was read again from there and is intact."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
            contents = await asyncio.to_thread(_complete, file)
        await asyncio.to_thread(os.link, temporary, path)  # and not a rename, which could replace another backup
        fsync_directory(str(path.parent))
    finally:
        await asyncio.to_thread(os.unlink, temporary)
    return contents


def _complete(file: BinaryIO) -> Contents:
    file.flush()
    os.fsync(file.fileno())
    file.seek(0)
    return _verify(file)


def verify(path: Path) -> Contents:
    """Raises BadBackup and OSError."""
    with path.open("rb") as file:
        return _verify(file)


def _verify(file: BinaryIO) -> Contents:
    header, kinds, entries = None, Counter[str](), 0
    for record in _records(file):
        if isinstance(record, Header):
            header = record
        else:
            entries += 1
            kinds[_resource(record.key)] += 1
    if header is None:
        raise BadBackup("it is empty")
    return Contents(header, entries, kinds)


def _records(file: BinaryIO) -> Iterator[Header | Entry]:
    decoder = BackupDecoder()
    while chunk := file.read(CHUNK):
        yield from decoder.feed(chunk)
    decoder.close()


def _resource(key: bytes) -> str:
    """Returns the resource of a key such as /registry/pods/default/web, with its group if the key has one."""
    parts = key.decode("utf-8", "replace").split("/")[2:]
    return "/".join(parts[:2]) if "." in parts[0] else parts[0]


async def restore(
    path: Path,
    *,
    url: str | None,
    directory: Path,
    encryption: Encryption,
    bump: int,
    replace: bool,
) -> Restored:
    """Restores a backup into a data directory that no API server has open, or into an empty prefix of an etcd.

    It is verified as a whole before anything is written. Raises BadBackup, BadUrl, CannotOpen, StorageError, OSError.
    """
    state = await asyncio.to_thread(_load, path, encryption, bump)
    if scheme(url) == "etcd":
        from podwire.store.etcd import restoring as etcd  # noqa: PLC0415 - gRPC takes 0.1 s to import

        return Restored(await etcd.restore(url or "", state, encryption), len(state.items))
    from podwire.store.sqlite import restoring as sqlite  # noqa: PLC0415 - imported only when used

    replaced = await asyncio.to_thread(sqlite.restore, directory, state, encryption, replace=replace)
    return Restored(state.revision, len(state.items), replaced)


def _load(path: Path, encryption: Encryption, bump: int) -> snapshot.Snapshot:
    with path.open("rb") as file:
        records = list(_records(file))
    header, *entries = records
    if not isinstance(header, Header):
        raise BadBackup("it has no header")
    return snapshot.snapshot(header, (entry for entry in entries if isinstance(entry, Entry)), encryption, bump=bump)
