"""Layers of earlier builds, by what went into them.

The key of a step is a digest of the step, of what it copies and of the key before it. An image carries the keys of its
layers in its history, so a cached layer exists exactly as long as an image that has it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from podwire.protocols.containerfile import Copy, MakeDirectory, Run
from podwire.runtime.images import ImageError, Images

COMMENT = "podwire build "
"""Before the key, in the comment of an entry of an image's history."""


def step_key(before: str, step: MakeDirectory | Copy | Run, copied: str, network: str) -> str:
    """Returns the key of a step. The line, and how the step was written, do not count."""
    inputs = dataclasses.asdict(step)
    del inputs["line"], inputs["text"]
    used = network if isinstance(step, Run) else ""
    words = [before, type(step).__name__, inputs, copied, used]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CachedLayer:
    diff_id: str
    size: int


class _Entry(msgspec.Struct):
    comment: str = ""
    empty_layer: bool = False


class _RootFs(msgspec.Struct):
    diff_ids: list[str] = []


class _Config(msgspec.Struct):
    history: list[_Entry] = []
    rootfs: _RootFs = msgspec.field(default_factory=_RootFs)


class _Layer(msgspec.Struct):
    size: int = 0


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


@dataclass(frozen=True, slots=True)
class Cache:
    layers: Mapping[str, CachedLayer]
    """By the key of the step."""

    @classmethod
    def of(cls, images: Images) -> "Cache":
        layers: dict[str, CachedLayer] = {}
        for image in images.list():
            with suppress(ImageError, msgspec.MsgspecError):
                documents = images.documents_of(image.id)
                manifest = msgspec.json.decode(documents[0], type=_Manifest)
                config = msgspec.json.decode(documents[1], type=_Config)
                entries = [entry for entry in config.history if not entry.empty_layer]
                if len(entries) == len(config.rootfs.diff_ids) == len(manifest.layers):
                    for entry, diff_id, layer in zip(entries, config.rootfs.diff_ids, manifest.layers, strict=True):
                        if entry.comment.startswith(COMMENT):
                            layers[entry.comment.removeprefix(COMMENT)] = CachedLayer(diff_id, layer.size)
        return cls(layers)
