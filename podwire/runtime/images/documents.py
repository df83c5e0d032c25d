"""The JSON of an image: index, manifest, config, and docker's list. Bytes to values, and what is refused on the way."""

import hashlib
from typing import Any, TypeVar

import msgspec

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.platforms import Platform
from podwire.runtime.images.references import is_digest

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
INDEXES = {OCI_INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"}
MANIFESTS = {OCI_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"}
CONFIGS = {OCI_CONFIG, "application/vnd.docker.container.image.v1+json"}
LAYERS = {
    OCI_LAYER: "",
    f"{OCI_LAYER}+gzip": "gzip",
    f"{OCI_LAYER}+zstd": "zstd",
    "application/vnd.oci.image.layer.nondistributable.v1.tar": "",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip": "gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": "zstd",
    "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip": "gzip",
}
"""A layer's media type to what it is packed with."""


class _Platform(msgspec.Struct):
    os: str = ""
    architecture: str = ""
    variant: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    """A reference to another piece, which is verified when it is read."""

    media_type: str = ""
    digest: str = ""
    size: int = -1
    annotations: dict[str, str] | None = None
    platform: _Platform | None = None

    def runs_on(self) -> Platform | None:
        asked = self.platform
        return Platform(asked.os, asked.architecture, asked.variant) if asked else None


class Document(msgspec.Struct, rename="camel"):
    """An index or a manifest, whichever it turns out to be."""

    schema_version: int = 0
    media_type: str = ""
    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None
    fs_layers: msgspec.Raw = msgspec.Raw()


class Settings(msgspec.Struct, rename="pascal"):
    """The part of a config that says how to run: the workload's own data, and never anything else."""

    user: str = ""
    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    working_dir: str = ""
    stop_signal: str = ""
    volumes: dict[str, Any] | None = None
    exposed_ports: dict[str, Any] | None = None
    labels: dict[str, str] | None = None


class _RootFs(msgspec.Struct):
    type: str = ""
    diff_ids: list[str] | None = None


class Config(msgspec.Struct):
    os: str = ""
    architecture: str = ""
    variant: str = ""
    config: Settings | None = None
    rootfs: _RootFs | None = None

    @property
    def diff_ids(self) -> list[str]:
        return (self.rootfs and self.rootfs.diff_ids) or []

    @property
    def runs_on(self) -> Platform:
        return Platform(self.os, self.architecture, self.variant)


class DockerImage(msgspec.Struct, rename="pascal"):
    """One row of `manifest.json` in what `docker save` writes."""

    config: str = ""
    repo_tags: list[str] | None = None
    layers: list[str] | None = None


_Wanted = TypeVar("_Wanted")


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def chain_ids(diff_ids: list[str]) -> list[str]:
    """The names of a layer together with all below it, lowest first."""
    chain: list[str] = []
    for diff_id in diff_ids:
        chain.append(digest_of(f"{chain[-1]} {diff_id}".encode()) if chain else diff_id)
    return chain


def decode(data: bytes, wanted: type[_Wanted], field: str) -> _Wanted:
    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadImage(field, f"is invalid: {error}") from error


def parse_docker_list(data: bytes, field: str) -> list[DockerImage]:
    return decode(data, list[DockerImage], field)


def parse_document(data: bytes, media_type: str, field: str) -> Document:
    """Parses an index or a manifest; both at once is an error. `media_type` is that of the descriptor, or empty."""
    document = decode(data, Document, field)
    if document.schema_version != 2 or document.fs_layers:
        raise BadImage(field, f"schema version {document.schema_version}; only 2 is read")
    is_index = document.manifests is not None
    if is_index and (document.config or document.layers is not None):
        raise BadImage(field, "is an index and a manifest at once")
    allowed = INDEXES if is_index else MANIFESTS
    if any(type_ and type_ not in allowed for type_ in (document.media_type, media_type)):
        raise BadImage(field, f"media type {document.media_type or media_type!r} does not match the content")
    for number, descriptor in enumerate(document.manifests or document.layers or ()):
        _check(descriptor, f"{field}.{'manifests' if is_index else 'layers'}[{number}]")
    return document


def check_manifest(document: Document, limits: Limits, field: str) -> tuple[Descriptor, list[Descriptor]]:
    """The config and the layers of a manifest of a container image."""
    config, layers = document.config, document.layers or []
    if config is None:
        raise BadImage(field, "has no config")
    _check(config, f"{field}.config")
    if config.media_type not in CONFIGS:
        raise BadImage(f"{field}.config.mediaType", f"{config.media_type!r} is not that of a container image")
    check_layer_count(len(layers), limits, f"{field}.layers")
    for number, layer in enumerate(layers):
        if layer.media_type not in LAYERS:
            raise BadImage(f"{field}.layers[{number}].mediaType", f"{layer.media_type!r} is not that of a layer")
        check_compression(LAYERS[layer.media_type], f"{field}.layers[{number}].mediaType")
    return config, layers


def check_compression(name: str, field: str) -> None:
    if name not in ("", "gzip", "zstd"):
        raise BadImage(field, f"{name} is not supported; gzip, zstd and plain tars are")


def check_layer_count(count: int, limits: Limits, field: str) -> None:
    if not count:
        raise BadImage(field, "an image without layers")
    if count > limits.layers:
        raise OverLimit(field, f"more than {limits.layers} layers")


def parse_config(data: bytes, layers: int, field: str, limits: Limits | None = None) -> Config:
    """A config whose diff ids are as many as the layers, and whose settings are within the limits."""
    config = decode(data, Config, field)
    if config.rootfs is None or config.rootfs.type != "layers" or len(config.diff_ids) != layers:
        raise BadImage(f"{field}.rootfs", f"does not describe {layers} layers")
    for number, diff_id in enumerate(config.diff_ids):
        if not is_digest(diff_id):
            raise BadImage(f"{field}.rootfs.diff_ids[{number}]", f"{diff_id[:80]!r} is not a sha256: digest")
    _check_settings(config.config or Settings(), f"{field}.config", limits)
    return config


def _check_settings(settings: Settings, field: str, limits: Limits | None) -> None:
    """Strings hold no NUL: they become arguments and paths."""
    arguments = [*(settings.env or ()), *(settings.entrypoint or ()), *(settings.cmd or ())]
    for text in (settings.user, settings.working_dir, settings.stop_signal, *(settings.volumes or ()), *arguments):
        if "\0" in text:
            raise BadImage(field, "a text with a NUL in it")
    if limits is None:  # checked at import
        return
    for name in ("env", "entrypoint", "cmd", "volumes", "exposed_ports", "labels"):
        if len(getattr(settings, name) or ()) > limits.settings:
            raise OverLimit(f"{field}.{name}", f"more than {limits.settings} entries")
    if sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in arguments) > limits.arguments:
        raise OverLimit(field, f"variables, entrypoint and command are larger than {limits.arguments} bytes together")
    for name, most in (("user", 2 * limits.name), ("working_dir", limits.path), ("stop_signal", limits.name)):
        if len(getattr(settings, name)) > most:
            raise OverLimit(f"{field}.{name}", f"longer than {most} characters")


def _check(descriptor: Descriptor, field: str) -> None:
    if not is_digest(descriptor.digest):
        raise BadImage(f"{field}.digest", f"{descriptor.digest[:80]!r} is not a sha256: digest")
    if not 0 <= descriptor.size < 1 << 63:
        raise BadImage(f"{field}.size", f"{descriptor.size} is not a valid size")
