"""Imports an archive: unpacked in staging, synced, then put in place from the bottom up.

1. All documents of all images are read and validated; nothing is unpacked of an archive that is refused.
2. Missing layers are unpacked in staging; existing ones are only read, to verify the archive.
3. The file system is synced (syncfs).
4. Under the lock: layers, then manifest and config, then the record, then the names. A crash leaves at most layers and
   blobs without a record, which the next opening sweeps.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.linux.syscalls import syncfs
from podwire.runtime.images import archives, contents, layers, references
from podwire.runtime.images.archives import Archive
from podwire.runtime.images.contents import ArchiveImage
from podwire.runtime.images.documents import OCI_CONFIG, OCI_MANIFEST, Descriptor, chain_ids, digest_of
from podwire.runtime.images.errors import BadImage
from podwire.runtime.images.limits import Budget, Limits
from podwire.runtime.images.platforms import Machine
from podwire.runtime.images.records import ImageRecord, StoreRecords
from podwire.runtime.images.snapshots import Snapshots
from podwire.runtime.images.staging import StoreDirectory, translate_full_disk

UNPACKED = declare("images.unpacked", "an archive's layers are unpacked in staging; nothing is synced")
SYNCED = declare("images.synced", "they are synced; nothing is in place")
LAYER_PUT = declare("images.layer-put", "a layer is in place; no record names it")
BLOBS_PUT = declare("images.blobs-put", "an image's manifest and config are in place; it has no record")
RECORDED = declare("images.recorded", "an image has its record, and no names yet")
NAMED = declare("images.named", "an image has one of its names")


@dataclass(frozen=True, slots=True)
class Store:
    directory: StoreDirectory
    records: StoreRecords
    snapshots: Snapshots


@dataclass(slots=True)
class _Work:
    """The progress of one import, by chain id."""

    archive: Archive
    stage: Path
    limits: Limits
    budget: Budget
    verified: bool = False
    """Its digests were checked: layers that the store has already are not read to verify an archive."""
    pulled: bool = False
    """From a registry."""
    staged: dict[str, Path] = field(default_factory=dict)
    descriptors: dict[tuple[str, str], Descriptor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """`name` replaces the name in the archive; `must_have_name` refuses images without one."""

    name: str = ""
    must_have_name: bool = False


def import_archive(store: Store, path: Path, options: Options, limits: Limits, machine: Machine) -> list[str]:
    """Imports the images of an archive. Returns their ids. Raises BadImage, StoreFull."""
    with translate_full_disk(), store.directory.stage() as stage:
        (stage / "trash").mkdir()
        with archives.opened(path, stage / "archive", limits) as archive:
            images = _renamed(contents.find(archive, machine, limits), options.name)
            if options.must_have_name and not all(image.names for image in images):
                raise BadImage("name", "the archive does not name its image; name it with --name NAME")
            return _import(store, _Work(archive, stage, limits, Budget(limits)), images)


def import_verified(store: Store, archive: Archive, image: ArchiveImage, limits: Limits, *, pulled: bool) -> str:
    """Imports an image that was pulled or built; only missing layers are read. Returns its id."""
    with translate_full_disk(), store.directory.stage() as stage:
        (stage / "trash").mkdir()
        return _import(store, _Work(archive, stage, limits, Budget(limits), True, pulled), [image])[0]


def _import(store: Store, work: _Work, images: list[ArchiveImage]) -> list[str]:
    while True:
        for image in images:
            _unpack_missing(store, work, image)
        failpoint(UNPACKED)
        _sync(work.stage)
        failpoint(SYNCED)
        with store.directory.exclusive():
            # An existing layer may have been removed with its image meanwhile.
            chains = {chain for image in images for chain in chain_ids(image.diff_ids)}
            if all(chain in work.staged or store.snapshots.has(chain) for chain in chains):
                return [_commit(store, work, image) for image in images]


def _renamed(images: list[ArchiveImage], name: str) -> list[ArchiveImage]:
    if not name:
        return images
    if len(images) != 1:
        raise BadImage("name", f"the archive has {len(images)} images, and the name is for one")
    return [replace(images[0], names=(str(references.parse(name)),))]


def _unpack_missing(store: Store, work: _Work, image: ArchiveImage) -> None:
    lowers: list[Path] = []
    for layer, seen in zip(image.layers, _seen(image), strict=True):
        chain = seen[0]
        if chain in work.staged or store.snapshots.has(chain):
            if not work.verified and seen not in work.descriptors:
                work.descriptors[seen] = layers.verify(work.archive, layer)
        else:
            home = work.stage / chain.removeprefix("sha256:")
            (home / "fs").mkdir(parents=True)
            unpacked = layers.unpack_layer(
                work.archive, layer, home / "fs", lowers, work.stage / "trash", work.limits, work.budget
            )
            store.snapshots.write_facts(home, chain, unpacked.usage)
            work.staged[chain] = home
            work.descriptors[seen] = unpacked.descriptor
        lowers.insert(0, work.staged[chain] / "fs" if chain in work.staged else store.snapshots.path(chain))


def _sync(stage: Path) -> None:
    descriptor = os.open(stage, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syncfs(descriptor)
    finally:
        os.close(descriptor)


def _commit(store: Store, work: _Work, image: ArchiveImage) -> str:
    chain = chain_ids(image.diff_ids)
    for chain_id in chain:
        if chain_id in work.staged and not store.snapshots.has(chain_id):
            store.snapshots.put(chain_id, work.staged[chain_id], work.stage)
            failpoint(LAYER_PUT)
    store.directory.fsync("snapshots")
    manifest = image.manifest or _manifest(image, [work.descriptors[pair] for pair in _seen(image)])
    image_id = store.records.put_blob(image.config)
    record = ImageRecord(image_id, store.records.put_blob(manifest), tuple(chain))
    failpoint(BLOBS_PUT)
    is_new = not store.records.has(image_id)
    digests = contents.digest_names(image.names, image.digests or (record.manifest,))
    try:
        store.records.put(record)
        failpoint(RECORDED)
        for name in (*image.names, *digests):
            store.records.name(name, image_id, pulled=work.pulled)
            failpoint(NAMED)
    except Exception:
        if is_new:  # an image without all of its names could not be found, nor removed
            store.records.drop(image_id)
        raise
    return image_id


def _seen(image: ArchiveImage) -> list[tuple[str, str]]:
    """Returns the identity of each layer: its chain id, and the file that it was read from."""
    return list(zip(chain_ids(image.diff_ids), (layer.path for layer in image.layers), strict=True))


def _manifest(image: ArchiveImage, descriptors: list[Descriptor]) -> bytes:
    """Builds the manifest, which `docker save` does not write."""
    config = Descriptor(media_type=OCI_CONFIG, digest=digest_of(image.config), size=len(image.config))
    pieces = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _plain(config),
        "layers": [_plain(descriptor) for descriptor in descriptors],
    }
    return msgspec.json.encode(pieces)


def _plain(descriptor: Descriptor) -> dict[str, str | int]:
    return {"mediaType": descriptor.media_type, "digest": descriptor.digest, "size": descriptor.size}
