"""What the store remembers, a file each: blobs by digest, images by id, references by name.

A file that is not what it must be is `Broken`: it is named, and harms nobody else.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from podwire.runtime.images.documents import digest_of
from podwire.runtime.images.references import is_digest
from podwire.runtime.images.staging import StoreDirectory


class Record(msgspec.Struct, frozen=True):
    """An image: its id is its config's digest. Layers are here too, so that they are safe when a blob is broken."""

    id: str
    manifest: str
    layers: tuple[str, ...]


class _Named(msgspec.Struct, frozen=True):
    name: str
    id: str


_Wanted = TypeVar("_Wanted")


class DamagedFile(Exception):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Records:
    def __init__(self, disk: StoreDirectory) -> None:
        self._disk = disk
        self._blobs = disk.root / "blobs" / "sha256"
        self._records = disk.root / "records"
        self._references = disk.root / "references"

    # Blobs

    def put_blob(self, data: bytes) -> str:
        digest = digest_of(data)
        path = self._blob_path(digest)
        try:
            self.blob(digest)
        except DamagedFile:
            self._disk.write(path, data)
        return digest

    def blob(self, digest: str) -> bytes:
        path = self._blob_path(digest)
        data = read(path)
        if digest_of(data) != digest:
            raise DamagedFile(path, "holds something else than its name says")
        return data

    def blob_digests(self) -> Iterator[str]:
        return (f"sha256:{each.name}" for each in self._blobs.iterdir())

    def blob_size(self, digest: str) -> int:
        return self._blob_path(digest).stat().st_size

    def drop_blob(self, digest: str) -> None:
        self._blob_path(digest).unlink(missing_ok=True)

    def _blob_path(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    # Images

    def put(self, record: Record) -> None:
        self._disk.write(self._path(record.id), msgspec.json.encode(record))

    def ids(self) -> list[str]:
        """Every id that has a record, broken or not."""
        return sorted(f"sha256:{each.stem}" for each in self._records.iterdir())

    def has(self, image_id: str) -> bool:
        return self._path(image_id).exists()

    def get(self, image_id: str) -> Record:
        path = self._path(image_id)
        record = decode(path, Record)
        if record.id != image_id or not all(map(is_digest, (record.manifest, *record.layers))):
            raise DamagedFile(path, "is not the record of this image")
        return record

    def drop(self, image_id: str) -> None:
        self._path(image_id).unlink(missing_ok=True)

    def _path(self, image_id: str) -> Path:
        return self._records / f"{image_id.removeprefix('sha256:')}.json"

    # Names

    def name(self, name: str, image_id: str) -> None:
        """Let a name mean this image, whatever it meant before."""
        self._disk.write(self._reference_path(name), msgspec.json.encode(_Named(name, image_id)))

    def named(self, name: str) -> str | None:
        """The id that a name means."""
        path = self._reference_path(name)
        try:
            return self._named(path).id
        except DamagedFile:
            if path.exists():
                raise
            return None

    def names(self) -> Iterator[_Named | DamagedFile]:
        """All names, and those files that should be one."""
        for path in sorted(self._references.iterdir()):
            try:
                yield self._named(path)
            except DamagedFile as error:
                yield error

    def unname(self, name: str) -> None:
        self._reference_path(name).unlink(missing_ok=True)

    def _named(self, path: Path) -> _Named:
        found = decode(path, _Named)
        if self._reference_path(found.name) != path or not is_digest(found.id):
            raise DamagedFile(path, "is not the file of this name")
        return found

    def _reference_path(self, name: str) -> Path:
        return self._references / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedFile(path, error.strerror or str(error)) from error


def decode(path: Path, wanted: type[_Wanted]) -> _Wanted:
    try:
        return msgspec.json.decode(read(path), type=wanted)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"cannot be read: {error}") from error
