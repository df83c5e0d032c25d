"""The image store, with the calls of CRI's ImageService. Synchronous: a daemon calls it in a worker thread.

The disk is the source of truth: `podwire image` changes the store while a runtime is running.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from podwire.failpoints import declare, failpoint
from podwire.runtime.images import documents, importer, references
from podwire.runtime.images.archives import Archive
from podwire.runtime.images.contents import ArchiveImage
from podwire.runtime.images.directories import is_opaque
from podwire.runtime.images.errors import AmbiguousImage, BadImage, BadReference, ImageInUse, NoSuchImage
from podwire.runtime.images.image import Image, ImageConfig, image_config
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.platforms import Machine, this_machine
from podwire.runtime.images.records import DamagedFile, ImageRecord, StoreRecords
from podwire.runtime.images.references import Reference
from podwire.runtime.images.snapshots import Containers, Hold, Snapshots, Writable
from podwire.runtime.images.staging import StoreDirectory

log = logging.getLogger(__name__)

UNNAMED = declare("images.unnamed", "an image that is removed has lost its names, and has its record")
FORGOTTEN = declare("images.forgotten", "its record is gone; its layers and blobs are there")


@dataclass(frozen=True, slots=True)
class FsInfo:
    """Disk usage of all images."""

    mountpoint: Path
    used_bytes: int
    inodes_used: int


@dataclass(frozen=True, slots=True)
class _Content:
    """The immutable part of an image."""

    size: int
    config: ImageConfig


class Images:
    """The image store.

    `in_use` returns the ids of images that must stay, besides those of prepared containers. `owner` names the runtime
    that prepares containers, where several share a store.
    """

    def __init__(
        self,
        root: Path,
        *,
        in_use: Callable[[], Iterable[str]] = tuple,
        pinned: Collection[str] = (),
        limits: Limits | None = None,
        machine: Machine | None = None,
        owner: str = "",
    ) -> None:
        """Opens or creates the store at `root`, and removes leftovers of crashes."""
        self._directory = StoreDirectory(root)
        self._records = StoreRecords(self._directory)
        self._snapshots = Snapshots(self._directory)
        self._containers = Containers(self._directory)
        self._in_use = in_use
        self._owner = owner
        self._pinned = {str(references.parse(name)) for name in pinned}
        self.limits = limits or Limits()
        self.machine = machine or this_machine()
        self._contents: dict[ImageRecord, _Content] = {}
        self._sweep()
        for problem in self.problems():
            log.warning("image store has a damaged file", extra={"error": problem})

    def stage(self) -> AbstractContextManager[Path]:
        """Yields a temporary directory for building an image; it is swept after a crash."""
        return self._directory.stage()

    def close(self) -> None:
        """Ends the use of the store. Locks are held only during changes, so nothing is left to release."""

    # Reading

    def list(self, filter: str = "") -> Sequence[Image]:  # noqa: A002 - CRI's word
        """Returns all images, by id. A filter is a reference or id, or a repository for all of its tags."""
        names = self._names()
        images = [image for image_id in self._records.ids() if (image := self._image(image_id, names))]
        if not filter:
            return images
        named = self.status(filter)
        ids = {named.id} if named else set()
        if not references.has_tag_or_digest(filter):
            ids |= {image.id for image in images if self._is_in(image, filter)}
        return [image for image in images if image.id in ids]

    def status(self, reference: str) -> Image | None:
        """Returns the image of a name, a digest reference, an id or a prefix of one. Raises AmbiguousImage."""
        image_id = self._resolve(reference)
        return self._image(image_id, self._names()) if image_id else None

    def imported(self, reference: Reference) -> Image | None:
        """Returns the image of a name that came by import and not from a registry."""
        return self.status(str(reference)) if self._records.was_imported(str(reference)) else None

    def present_layers(self, chains: Iterable[str]) -> set[str]:
        """Returns those layers that are there already."""
        return {chain for chain in chains if self._snapshots.has(chain)}

    def rootfs_layers(self, image: Image) -> Sequence[Path]:
        """Returns the `lowerdir`s of an image's overlayfs, the highest first.

        overlayfs merges the roots of all layers, even if one is opaque; so the layers below that are left out here.
        """
        return self._lowers(image.layers)

    def layers_of(self, image_id: str) -> Sequence[Path]:
        """Returns the same as `rootfs_layers`, by id: nothing else of the image is read. Raises NoSuchImage."""
        try:
            return self._lowers(self._records.get(image_id).layers)
        except DamagedFile as error:
            raise NoSuchImage(image_id) from error

    def _lowers(self, layers: Sequence[str]) -> Sequence[Path]:
        paths = [self._snapshots.path(chain) for chain in reversed(layers)]
        hiding = next((number for number, path in enumerate(paths) if is_opaque(path)), len(paths))
        return paths[: hiding + 1]

    def documents_of(self, image_id: str) -> tuple[bytes, bytes]:
        """Returns the manifest and the config of an image as they are. Raises NoSuchImage."""
        try:
            return self._records.blob(self._records.get(image_id).manifest), self._records.blob(image_id)
        except DamagedFile as error:
            raise NoSuchImage(image_id) from error

    def fs_info(self) -> FsInfo:
        used = inodes = 0
        for chain in self._snapshots.chains():
            if self._snapshots.has(chain):
                usage = self._snapshots.usage(chain)
                used, inodes = used + usage.bytes, inodes + usage.inodes
        for digest in self._records.blob_digests():
            used, inodes = used + self._records.blob_size(digest), inodes + 1
        return FsInfo(self._directory.root, used, inodes)

    def problems(self) -> Sequence[str]:
        """Returns a sentence for each damaged file. It is ignored; importing the image again repairs it."""
        problems = [f"{path}: is damaged" for path in self._records.damaged_references()]
        problems += [str(hold) for _id, hold in self._containers.holds() if isinstance(hold, DamagedFile)]
        for image_id in self._records.ids():
            try:
                self._content(image_id)
            except DamagedFile as error:
                problems.append(str(error))
        return problems

    # Changing

    def import_archive(self, path: Path, *, name: str = "", must_have_name: bool = False) -> Sequence[Image]:
        """Imports the images of an OCI layout or of `docker save`; `name` replaces the name in the archive.

        `must_have_name`: an archive with an image that nothing could refer to but its id is refused.

        Raises BadImage, BadReference, StoreFull; the failed image leaves nothing.
        """
        store = importer.Store(self._directory, self._records, self._snapshots)
        try:
            options = importer.Options(name, must_have_name=must_have_name)
            ids = importer.import_archive(store, path, options, self.limits, self.machine)
        except Exception:
            self._sweep()
            raise
        names = self._names()
        return [image for image_id in dict.fromkeys(ids) if (image := self._image(image_id, names))]

    def import_pulled(self, archive: Archive, image: ArchiveImage) -> Image:
        """Imports an image of a registry, whose layers are the files of `archive`. Raises BadImage, StoreFull."""
        return self._import_verified(archive, image, pulled=True)

    def import_built(self, archive: Archive, image: ArchiveImage) -> Image:
        """Imports an image that was built here; `archive` has those layers that the store has not."""
        return self._import_verified(archive, image, pulled=False)

    def _import_verified(self, archive: Archive, image: ArchiveImage, *, pulled: bool) -> Image:
        store = importer.Store(self._directory, self._records, self._snapshots)
        try:
            image_id = importer.import_verified(store, archive, image, self.limits, pulled=pulled)
        except Exception:
            self._sweep()
            raise
        imported = self._image(image_id, self._names())
        if imported is None:
            raise NoSuchImage(image_id)
        return imported

    def keep_layers(self, stage: Path, chains: Sequence[str]) -> Sequence[Path]:
        """Keeps layers for as long as a stage is in use, whatever happens to their images. Returns their directories.

        Raises NoSuchImage when one is gone already.
        """
        with self._directory.exclusive():
            for chain in chains:
                if not self._snapshots.has(chain):
                    raise NoSuchImage(chain)
            self._directory.keep(stage, chains)
        return [self._snapshots.path(chain) for chain in chains]

    def remove(self, reference: str) -> bool:
        """Removes an image with all its names, and layers that no other uses. Returns whether it existed.

        Raises ImageInUse, without a change, while a container uses it.
        """
        with self._directory.stage() as stage, self._directory.exclusive():
            image_id = self._resolve(reference)
            if image_id is None:
                return False
            self._refuse_if_used(image_id)
            for named in self._records.names():
                if named.id == image_id:
                    self._records.unname(named.name)
            failpoint(UNNAMED)
            self._records.drop(image_id)
            failpoint(FORGOTTEN)
            self._contents.clear()
            self._drop_unneeded(stage)
        return True

    # Containers

    def prepare(self, container_id: str, image: Image, volumes: Sequence[Image] = ()) -> Writable:
        """Returns the writable layer of a container. Its image, and those that it mounts as volumes, cannot be removed
        until `release`.

        Raises NoSuchImage when one was removed since it was looked up.
        """
        with self._directory.stage() as stage, self._directory.exclusive():
            for needed in (image, *volumes):
                if not self._records.has(needed.id):
                    raise NoSuchImage(needed.id)
            layers = (*image.layers, *(chain for volume in volumes for chain in volume.layers))
            hold = Hold(image.id, layers, self._owner, tuple(volume.id for volume in volumes))
            return self._containers.prepare(container_id, hold, self.rootfs_layers(image)[0], stage)

    def release(self, container_id: str) -> None:
        """Removes the writable layer of a container, which must not be mounted any more. Idempotent."""
        with self._directory.stage() as stage, self._directory.exclusive():
            self._containers.release(container_id, stage)

    def held(self) -> Sequence[str]:
        """Returns the ids of our containers that have a writable layer; a damaged hold counts as ours."""
        holds = self._containers.holds()
        return [id_ for id_, hold in holds if isinstance(hold, DamagedFile) or hold.owner == self._owner]

    # Inside

    def _names(self) -> Mapping[str, Mapping[str, bool]]:
        """Returns the references of each image, by id, and whether each came from a registry."""
        names: dict[str, dict[str, bool]] = {}
        for reference in self._records.names():
            names.setdefault(reference.id, {})[reference.name] = reference.pulled
        return names

    def _is_in(self, image: Image, repository: str) -> bool:
        try:
            parsed = references.repository(repository)
        except BadReference:
            return False
        return any(references.parse(name).repository == parsed for name in (*image.names, *image.digests))

    def _resolve(self, reference: str) -> str | None:
        """Returns the id of a reference; of a damaged image, too."""
        text = reference.removeprefix("sha256:")
        exact = f"sha256:{text}"
        if references.is_digest(exact):
            return exact if self._records.has(exact) else None
        if reference == text:
            with contextlib.suppress(BadReference):
                if (named := self._records.named(str(references.parse(reference)))) is not None:
                    return named
        if len(text) < self.limits.shortest_id:
            return None
        matching = [image_id for image_id in self._records.ids() if image_id.startswith(exact)]
        if len(matching) > 1:
            raise AmbiguousImage(reference, matching)
        return matching[0] if matching else None

    def _image(self, image_id: str, names: Mapping[str, Mapping[str, bool]]) -> Image | None:
        try:
            record, content = self._content(image_id)
        except DamagedFile:
            return None
        pulled = names.get(image_id, {})
        mine = sorted(pulled)
        # Imported or built: no registry may have it, so nothing removes it for its space.
        is_ours = any(not pulled[name] for name in mine if "@" not in name)
        return Image(
            id=image_id,
            names=tuple(name for name in mine if "@" not in name),
            digests=tuple(name for name in mine if "@" in name),
            size=content.size,
            layers=record.layers,
            config=content.config,
            pinned=is_ours or any(name in self._pinned for name in mine),
        )

    def _content(self, image_id: str) -> tuple[ImageRecord, _Content]:
        """Raises Broken."""
        record = self._records.get(image_id)
        size = sum(self._snapshots.usage(chain).bytes for chain in record.layers)
        if record not in self._contents:
            manifest, config = self._records.blob(record.manifest), self._records.blob(image_id)
            try:
                parsed = documents.parse_config(config, len(record.layers), image_id)
            except BadImage as error:
                raise DamagedFile(self._directory.root / "records", str(error)) from error
            if tuple(documents.chain_ids(parsed.diff_ids)) != record.layers:
                raise DamagedFile(self._directory.root / "records", f"{image_id} has other layers than its config says")
            self._contents[record] = _Content(len(manifest) + len(config), image_config(parsed))
        content = self._contents[record]
        return record, _Content(size + content.size, content.config)

    def _refuse_if_used(self, image_id: str) -> None:
        for container_id, hold in self._containers.holds():
            if isinstance(hold, Hold) and image_id in (hold.image, *hold.volumes):
                raise ImageInUse(image_id, f"container {container_id}")
        if image_id in self._in_use():
            raise ImageInUse(image_id, "a container")

    def _sweep(self) -> None:
        """Removes leftovers of crashes and failures."""
        with self._directory.stage() as stage, self._directory.exclusive():
            self._directory.sweep()
            for reference in self._records.names():
                if not self._records.has(reference.id):
                    self._records.unname(reference.name)
            self._drop_unneeded(stage)

    def _drop_unneeded(self, stage: Path) -> None:
        """Removes layers and blobs that no image and no container uses. Only within `exclusive`."""
        layers: set[str] = self._directory.kept()
        blobs: set[str] = set()
        for image_id in self._records.ids():
            try:
                record = self._records.get(image_id)
            except DamagedFile:
                continue
            layers.update(record.layers)
            blobs.update((record.id, record.manifest))
        for _id, hold in self._containers.holds():
            if isinstance(hold, DamagedFile):
                return  # it may need any of them
            layers.update(hold.layers)
        for chain in set(self._snapshots.chains()) - layers:
            self._snapshots.drop(chain, stage)
        for digest in set(self._records.blob_digests()) - blobs:
            self._records.drop_blob(digest)
