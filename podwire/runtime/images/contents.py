"""Finds the images of an archive: an OCI image layout, or the output of `docker save`. Verifies every document."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from podwire.runtime.images import documents, references
from podwire.runtime.images.archives import Archive, read_document
from podwire.runtime.images.documents import Config, Descriptor, digest_of
from podwire.runtime.images.errors import BadImage, BadReference, OverLimit
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.platforms import Machine, Platform
from podwire.runtime.images.references import Reference

CONTAINERD_NAME, OCI_NAME = "io.containerd.image.name", "org.opencontainers.image.ref.name"
_NESTED = 4
_HEX_STEM = re.compile(r"(?:^|/)([0-9a-f]{64})(?:\.json)?$")


@dataclass(frozen=True, slots=True)
class Layer:
    """The path of a layer in the archive and its expected digest; docker's archives have no descriptor."""

    path: str
    diff_id: str
    descriptor: Descriptor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveImage:
    """One image of an archive. `digests` are what it can be asked for by; none for docker's, which has no manifest."""

    config: bytes
    layers: tuple[Layer, ...]
    manifest: bytes | None = None
    names: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()

    @property
    def diff_ids(self) -> list[str]:
        return [layer.diff_id for layer in self.layers]


def find(archive: Archive, machine: Machine, limits: Limits) -> list[ArchiveImage]:
    """The images that this machine can run, at least one. Raises BadImage."""
    if archive.has("oci-layout"):
        return _Layout(archive, machine, limits).find()
    if archive.has("manifest.json"):
        return _find_docker(archive, machine, limits)
    raise BadImage("archive", "has neither oci-layout nor manifest.json: it is not an archive of images")


class _LayoutVersion(msgspec.Struct, rename="camel"):
    image_layout_version: str = ""


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest that was reached, through which digests, and its config."""

    document: bytes
    digests: tuple[str, ...]
    platform: Platform
    config: bytes
    layers: tuple[Layer, ...]


class _Layout:
    """An OCI image layout: `index.json` leads to manifests, at times through further indexes."""

    def __init__(self, archive: Archive, machine: Machine, limits: Limits) -> None:
        self._archive = archive
        self._machine = machine
        self._limits = limits
        self._read = 0
        self._offered: set[str] = set()

    def find(self) -> list[ArchiveImage]:
        version = documents.decode(self._document("oci-layout"), _LayoutVersion, "oci-layout").image_layout_version
        if not version.startswith("1."):
            raise BadImage("oci-layout", f"version {version[:40]!r}; 1.0.0 is read")
        index = documents.parse_document(self._document("index.json"), documents.OCI_INDEX, "index.json")
        images = [image for descriptor in index.manifests or () for image in self._image(descriptor)]
        if not images:
            offered = ", ".join(sorted(self._offered)) or "nothing"
            raise BadImage("platform", f"nothing for {self._machine} in the archive; it has {offered}")
        return images

    def _image(self, descriptor: Descriptor) -> Iterator[ArchiveImage]:
        """The best of what one row of `index.json` leads to, if anything of it runs here."""
        ranked = [
            (rank, manifest)
            for manifest in self._manifests(descriptor, (), "index.json")
            if (rank := self._machine.rank(manifest.platform)) is not None
        ]
        if not ranked:
            return
        best = min(ranked, key=lambda pair: pair[0])[1]
        yield ArchiveImage(
            config=best.config,
            layers=best.layers,
            manifest=best.document,
            names=_annotated_names(descriptor.annotations or {}),
            digests=best.digests,
        )

    def _manifests(self, descriptor: Descriptor, through: tuple[str, ...], field: str) -> Iterator[_Manifest]:
        platform = descriptor.runs_on()
        if platform is not None and platform.os and self._machine.rank(platform) is None:
            self._offered.add(str(platform))
            return
        data = self._blob(descriptor, field)
        document = documents.parse_document(data, descriptor.media_type, descriptor.digest)
        through = (*through, descriptor.digest)
        if document.manifests is None:
            manifest = self._manifest(data, document, through, platform)
            self._offered.add(str(manifest.platform))
            yield manifest
            return
        if len(through) > _NESTED:
            raise OverLimit(descriptor.digest, f"indexes are nested more than {_NESTED} deep")
        for row in document.manifests:
            yield from self._manifests(row, through, descriptor.digest)

    def _manifest(
        self, data: bytes, document: documents.Document, through: tuple[str, ...], platform: Platform | None
    ) -> _Manifest:
        field = through[-1]
        config, layers = documents.check_manifest(document, self._limits, field)
        raw = self._blob(config, f"{field}.config")
        parsed = documents.parse_config(raw, len(layers), config.digest, self._limits)
        layers_of_image = tuple(
            Layer(_blob_path(layer.digest), diff_id, layer)
            for layer, diff_id in zip(layers, parsed.diff_ids, strict=True)
        )
        return _Manifest(data, tuple(dict.fromkeys(through)), platform or parsed.runs_on, raw, layers_of_image)

    def _blob(self, descriptor: Descriptor, field: str) -> bytes:
        data = self._document(_blob_path(descriptor.digest))
        if len(data) != descriptor.size:
            raise BadImage(field, f"{descriptor.digest} has {len(data)} bytes, not {descriptor.size}")
        if digest_of(data) != descriptor.digest:
            raise BadImage(field, f"{descriptor.digest} is something else in the archive")
        return data

    def _document(self, name: str) -> bytes:
        self._read += 1
        if self._read > self._limits.documents:
            raise OverLimit("index.json", f"leads to more than {self._limits.documents} documents")
        return read_document(self._archive, name, self._limits)


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _annotated_names(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """containerd's and docker's annotation has a whole name. The specification's may be a mere tag: that is none."""
    name = annotations.get(CONTAINERD_NAME, "")
    if not name:
        name = annotations.get(OCI_NAME, "")
        if not any(letter in name for letter in "/:@"):
            return ()
    return (_name(name, "index.json: annotations"),)


def _name(text: str, field: str) -> str:
    try:
        return str(references.parse(text))
    except BadReference as error:
        raise BadImage(field, str(error)) from error


def _find_docker(archive: Archive, machine: Machine, limits: Limits) -> list[ArchiveImage]:
    rows = documents.parse_docker_list(read_document(archive, "manifest.json", limits), "manifest.json")
    if not rows:
        raise BadImage("manifest.json", "names no image")
    if len(rows) > limits.documents:
        raise OverLimit("manifest.json", f"names more than {limits.documents} images")
    return [_docker_image(archive, row, number, machine, limits) for number, row in enumerate(rows)]


def _docker_image(
    archive: Archive, row: documents.DockerImage, number: int, machine: Machine, limits: Limits
) -> ArchiveImage:
    field = f"manifest.json[{number}]"
    raw = read_document(archive, row.config, limits)
    digest = _HEX_STEM.search(row.config)
    if digest and digest_of(raw) != f"sha256:{digest[1]}":
        raise BadImage(f"{field}.Config", f"{row.config[:200]} is something else in the archive")
    layers = row.layers or []
    documents.check_layer_count(len(layers), limits, f"{field}.Layers")
    config: Config = documents.parse_config(raw, len(layers), row.config[:200], limits)
    if machine.rank(config.runs_on) is None:
        raise BadImage("platform", f"{row.config[:200]} is for {config.runs_on}, and this is {machine}")
    return ArchiveImage(
        config=raw,
        layers=tuple(Layer(path, diff_id) for path, diff_id in zip(layers, config.diff_ids, strict=True)),
        names=tuple(dict.fromkeys(_name(tag, f"{field}.RepoTags") for tag in row.repo_tags or ())),
    )


def digest_names(names: tuple[str, ...], digests: tuple[str, ...]) -> list[str]:
    """`repository@digest` for each repository that an image has a name in."""
    repositories = dict.fromkeys(references.parse(name).repository for name in names)
    return [str(Reference(repository, digest=digest)) for repository in repositories for digest in digests]
