"""Unpacks one layer of an archive into a directory, and verifies it by the manifest and the config."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.runtime.images.archives import Archive
from podwire.runtime.images.contents import Layer
from podwire.runtime.images.documents import LAYERS, OCI_LAYER, Descriptor, check_compression
from podwire.runtime.images.errors import BadImage
from podwire.runtime.images.limits import Budget, Limits
from podwire.runtime.images.streams import Decompressed, Hashing, Pieces, Readable, compression
from podwire.runtime.images.unpack import DiskUsage, unpack

_BEGINNING = 16


@dataclass(frozen=True, slots=True)
class Unpacked:
    descriptor: Descriptor
    usage: DiskUsage


def verify(archive: Archive, layer: Layer) -> Descriptor:
    """Reads a layer that is unpacked already, to verify the archive. Returns its descriptor."""
    packed = _packed(archive, layer)
    with archive.open(layer.path) as file:
        raw = Hashing(file)
        raw.read_all()
    return _checked(layer, raw, packed)


def unpack_layer(
    archive: Archive, layer: Layer, target: Path, lowers: Sequence[Path], trash: Path, limits: Limits, budget: Budget
) -> Unpacked:
    """Unpacks a layer into the empty directory `target`, over `lowers`, the highest first. Raises BadImage."""
    packed = _packed(archive, layer)
    with contextlib.ExitStack() as held:
        raw = Hashing(held.enter_context(archive.open(layer.path)))
        source: Readable = Decompressed(raw, packed, limits, layer.path) if packed else raw
        plain = Hashing(source)
        root, bin_, *below = (_directory(held, path) for path in (target, trash, *lowers))
        usage = unpack(Pieces(plain, layer.path), root, below, bin_, limits=limits, budget=budget, field=layer.path)
    descriptor = _checked(layer, raw, packed)
    if plain.digest != layer.diff_id:
        raise BadImage(layer.path, f"unpacks to {plain.digest}, and the config says {layer.diff_id}")
    return Unpacked(descriptor, usage)


def _directory(held: contextlib.ExitStack, path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    held.callback(os.close, descriptor)
    return descriptor


def _packed(archive: Archive, layer: Layer) -> str:
    """Returns the compression of a layer. Raises BadImage when its media type says another."""
    descriptor = layer.descriptor
    if descriptor and archive.size(layer.path) != descriptor.size:
        raise BadImage(layer.path, f"has {archive.size(layer.path)} bytes, not {descriptor.size}")
    with archive.open(layer.path) as file:
        packed = compression(file.read(_BEGINNING))
    check_compression(packed, layer.path)
    if descriptor and LAYERS[descriptor.media_type] != packed:
        raise BadImage(layer.path, f"its media type {descriptor.media_type!r} does not match its content")
    return packed


def _checked(layer: Layer, raw: Hashing, packed: str) -> Descriptor:
    if layer.descriptor is None:
        return Descriptor(media_type=OCI_LAYER + (f"+{packed}" if packed else ""), digest=raw.digest, size=raw.size)
    if (raw.digest, raw.size) != (layer.descriptor.digest, layer.descriptor.size):
        raise BadImage(layer.path, f"is {raw.digest} with {raw.size} bytes, which does not match its descriptor")
    return layer.descriptor
