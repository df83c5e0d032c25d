"""The files of an image that is built: config, manifest and layers; and an OCI archive of them."""

import io
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from podwire.protocols.containerfile import Platform
from podwire.runtime.builder.cache import COMMENT
from podwire.runtime.builder.pack import pack_layer
from podwire.runtime.images import Image, Images, documents
from podwire.runtime.images.contents import CONTAINERD_NAME, OCI_NAME, ArchiveImage, Layer
from podwire.runtime.images.documents import Descriptor, chain_ids, digest_of
from podwire.runtime.images.references import parse


@dataclass(frozen=True, slots=True)
class BuiltLayer:
    """A layer: its directory, as overlayfs mounts it, and its tar, unless the store has it already."""

    diff_id: str
    size: int
    directory: Path
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A step, and the key of the layer that it made; empty if it made none."""

    text: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """An image without its names. Without arguments: that of `FROM scratch`."""

    layers: tuple[Descriptor, ...] = ()
    diff_ids: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()
    """Of the layers, the lowest first."""
    tars: Mapping[str, Path] = field(default_factory=dict)
    """Those that were packed in this build, by their diff ids."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    platform: Platform | None = None
    time: int = 0

    @property
    def chains(self) -> list[str]:
        return chain_ids(list(self.diff_ids))

    @property
    def created(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.time))

    def extended(
        self,
        layers: Sequence[BuiltLayer],
        history: Sequence[History],
        settings: Mapping[str, Any],
        platform: Platform,
        built_at: int,
    ) -> "ImageFiles":
        """Returns this image with more layers over it, and other settings."""
        image = replace(self, settings=settings, platform=platform, time=built_at)
        entries = [
            {"created": image.created, "created_by": entry.text}
            | ({"comment": COMMENT + entry.key} if entry.key else {"empty_layer": True})
            for entry in history
        ]
        return replace(
            image,
            layers=(*self.layers, *(_layer(layer.diff_id, layer.size) for layer in layers)),
            diff_ids=(*self.diff_ids, *(layer.diff_id for layer in layers)),
            directories=(*self.directories, *(layer.directory for layer in layers)),
            tars={layer.diff_id: layer.file for layer in layers if layer.file is not None},
            history=(*self.history, *entries),
        )

    @property
    def config(self) -> bytes:
        platform = self.platform or Platform("linux", "")
        variant = {"variant": platform.variant} if platform.variant else {}
        return msgspec.json.encode(
            {
                "created": self.created,
                "architecture": platform.architecture,
                "os": platform.os,
                **variant,
                "config": dict(self.settings),
                "rootfs": {"type": "layers", "diff_ids": list(self.diff_ids)},
                "history": [dict(entry) for entry in self.history],
            }
        )

    @property
    def manifest(self) -> bytes:
        config = self.config
        return msgspec.json.encode(
            {
                "schemaVersion": 2,
                "mediaType": documents.OCI_MANIFEST,
                "config": _row(Descriptor(documents.OCI_CONFIG, digest_of(config), len(config))),
                "layers": [_row(layer) for layer in self.layers],
            }
        )

    def archive_image(self, names: tuple[str, ...]) -> ArchiveImage:
        pairs = zip(self.diff_ids, self.layers, strict=True)
        manifest = self.manifest
        return ArchiveImage(
            config=self.config,
            layers=tuple(Layer(diff_id, diff_id, layer) for diff_id, layer in pairs),
            manifest=manifest,
            names=names,
            digests=(digest_of(manifest),),
        )


class _BaseConfig(msgspec.Struct):
    config: dict[str, Any] | None = None
    history: list[dict[str, Any]] | None = None
    rootfs: dict[str, Any] | None = None


class _BaseManifest(msgspec.Struct):
    layers: list[Descriptor] = []


def base_of(images: Images, image: Image) -> ImageFiles:
    """Returns the files of an image that the store has."""
    manifest, config = images.documents_of(image.id)
    layers = documents.decode(manifest, _BaseManifest, image.id).layers
    parsed = documents.decode(config, _BaseConfig, image.id)
    diff_ids = documents.parse_config(config, len(layers), image.id).diff_ids
    history = parsed.history or []
    if sum(not entry.get("empty_layer") for entry in history) != len(diff_ids):
        history = [{"created_by": f"a layer of {image.id}"} for _ in diff_ids]
    return ImageFiles(
        layers=tuple(layers),
        diff_ids=tuple(diff_ids),
        settings=parsed.config or {},
        history=tuple(history),
    )


def write_archive(file: Path, image: ImageFiles, names: Sequence[str], stage: Path) -> None:
    """Writes an OCI layout as a tar. Layers of FROM are packed anew, so the image has another id there.

    Only unpacked layers are stored; what a registry sent in compressed form is not kept.
    """
    tars: list[tuple[Descriptor, Path]] = []
    diff_ids: list[str] = []
    for number, (diff_id, directory) in enumerate(zip(image.diff_ids, image.directories, strict=True)):
        path = image.tars.get(diff_id)
        if path is None:
            lowers = list(reversed(image.directories[:number]))
            path = stage / f"archive-{number}.tar"
            packed = pack_layer(directory, lowers, path, image.time, root=not number)
            tars.append((_layer(packed.diff_id, packed.size), path))
        else:
            tars.append((_layer(diff_id, path.stat().st_size), path))
        diff_ids.append(tars[-1][0].digest)
    image = replace(image, diff_ids=tuple(diff_ids), layers=tuple(layer for layer, _ in tars))
    manifest, config = image.manifest, image.config
    row = _row(Descriptor(documents.OCI_MANIFEST, digest_of(manifest), len(manifest)))
    platform = image.platform or Platform("linux", "")
    row["platform"] = {"os": platform.os, "architecture": platform.architecture}
    if platform.variant:
        row["platform"]["variant"] = platform.variant
    rows = [{**row, "annotations": {CONTAINERD_NAME: name, OCI_NAME: parse(name).tag}} for name in names] or [row]
    index = {"schemaVersion": 2, "mediaType": documents.OCI_INDEX, "manifests": rows}
    small = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": msgspec.json.encode(index),
        _blob_path(digest_of(config)): config,
        _blob_path(digest_of(manifest)): manifest,
    }
    temporary = file.with_name(f".{file.name}.new")
    try:
        with tarfile.open(temporary, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in small.items():
                tar.addfile(_member(name, len(data)), io.BytesIO(data))
            for descriptor, path in {layer.digest: (layer, path) for layer, path in tars}.values():
                with path.open("rb") as opened:
                    tar.addfile(_member(_blob_path(descriptor.digest), descriptor.size), opened)
        temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _layer(diff_id: str, size: int) -> Descriptor:
    return Descriptor(documents.OCI_LAYER, diff_id, size)


def _row(descriptor: Descriptor) -> dict[str, Any]:
    return {"mediaType": descriptor.media_type, "digest": descriptor.digest, "size": descriptor.size}
