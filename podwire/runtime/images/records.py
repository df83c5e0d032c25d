"""Files of the store: blobs by digest, image records by id, references by name.

Blobs are verified by their digest. Records and references are durable records; a damaged one is quarantined, and
affects no other. Files of version 0.1.0 had no envelope and are still read.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from podwire.durable.codecs import json_codec
from podwire.durable.records import Records
from podwire.runtime.images.documents import digest_of
from podwire.runtime.images.references import is_digest
from podwire.runtime.images.staging import StoreDirectory

FORMAT = 1


class ImageRecord(msgspec.Struct, frozen=True):
    """An image; its id is its config's digest. Layers are listed here, too, in case a blob is damaged."""

    id: str
    manifest: str
    layers: tuple[str, ...]


class NamedImage(msgspec.Struct, frozen=True):
    """A reference: a name, the id of its image, and whether it came from a registry."""

    name: str
    id: str
    pulled: bool = False


_Type = TypeVar("_Type")


class DamagedFile(Exception):
    """A file of the store that is missing or cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StoreRecords:
    """Blobs, image records and references. Changes need the lock of the store."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._blobs = store.root / "blobs" / "sha256"
        self._images = Records(
            store.root / "records",
            json_codec(ImageRecord),
            format=FORMAT,
            migrate=_plain_json(ImageRecord),
            check=_check_image,
        )
        self._references = Records(
            store.root / "references",
            json_codec(NamedImage),
            format=FORMAT,
            migrate=_plain_json(NamedImage),
            check=_check_reference,
        )

    # Blobs

    def put_blob(self, data: bytes) -> str:
        """Stores a blob, unless it exists. Returns its digest."""
        digest = digest_of(data)
        try:
            self.blob(digest)
        except DamagedFile:
            self._store.write(self._blob_path(digest), data)
        return digest

    def blob(self, digest: str) -> bytes:
        """Returns a blob. Raises DamagedFile."""
        path = self._blob_path(digest)
        data = read(path)
        if digest_of(data) != digest:
            raise DamagedFile(path, "digest mismatch")
        return data

    def blob_digests(self) -> Iterator[str]:
        return (f"sha256:{path.name}" for path in self._blobs.iterdir() if not path.name.startswith("."))

    def blob_size(self, digest: str) -> int:
        return self._blob_path(digest).stat().st_size

    def drop_blob(self, digest: str) -> None:
        self._blob_path(digest).unlink(missing_ok=True)

    def _blob_path(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    # Images

    def put(self, record: ImageRecord) -> None:
        self._images.put(_image_key(record.id), record)
        self._images.discard_quarantined(_image_key(record.id))

    def ids(self) -> list[str]:
        """Returns the ids of all images, damaged or not."""
        return [f"sha256:{key}" for key in sorted({*self._images.keys(), *self._images.quarantined()})]

    def has(self, image_id: str) -> bool:
        key = _image_key(image_id)
        return Path(self._images.path(key)).exists() or key in self._images.quarantined()

    def get(self, image_id: str) -> ImageRecord:
        """Returns the record of an image. Raises DamagedFile."""
        key = _image_key(image_id)
        record = self._images.get(key)
        if record is None:
            damaged = key in self._images.quarantined()
            raise DamagedFile(Path(self._images.path(key)), "is damaged" if damaged else "does not exist")
        return record

    def drop(self, image_id: str) -> None:
        self._images.remove(_image_key(image_id))
        self._images.discard_quarantined(_image_key(image_id))

    # References

    def name(self, name: str, image_id: str, *, pulled: bool = False) -> None:
        """Lets a name mean this image, whatever it meant before."""
        self._references.put(_reference_key(name), NamedImage(name, image_id, pulled))
        self._references.discard_quarantined(_reference_key(name))

    def named(self, name: str) -> str | None:
        """Returns the id of the image that has a name."""
        reference = self._references.get(_reference_key(name))
        return reference.id if reference is not None else None

    def was_imported(self, name: str) -> bool:
        """Whether a name exists that came by import and not from a registry."""
        reference = self._references.get(_reference_key(name))
        return reference is not None and not reference.pulled

    def names(self) -> list[NamedImage]:
        return list(self._references.load().values())

    def damaged_references(self) -> list[str]:
        """Returns the paths of quarantined references."""
        return [path for paths in self._references.quarantined().values() for path in paths]

    def unname(self, name: str) -> None:
        self._references.remove(_reference_key(name))


def _image_key(image_id: str) -> str:
    return image_id.removeprefix("sha256:")


def _reference_key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _check_image(key: str, record: ImageRecord) -> None:
    if _image_key(record.id) != key or not all(map(is_digest, (record.id, record.manifest, *record.layers))):
        raise ValueError("is not the record of this image")


def _check_reference(key: str, reference: NamedImage) -> None:
    if _reference_key(reference.name) != key or not is_digest(reference.id):
        raise ValueError("is not the file of this name")


def _plain_json(type_: type[_Type]) -> Callable[[int, bytes], _Type]:
    """Reads files of version 0.1.0."""

    def migrate(_format: int, data: bytes) -> _Type:
        try:
            return msgspec.json.decode(data, type=type_)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error

    return migrate


def read(path: Path) -> bytes:
    """Reads a file. Raises DamagedFile."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedFile(path, error.strerror or str(error)) from error


def decode(path: Path, type_: type[_Type]) -> _Type:
    """Reads a JSON file. Raises DamagedFile."""
    try:
        return msgspec.json.decode(read(path), type=type_)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"cannot be decoded: {error}") from error
