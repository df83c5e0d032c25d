"""Warnings about volumes: types that nobody mounts any more, and files of one volume that overwrite each other.

The words are upstream's (pkg/api/pod/warnings.go).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Part = Mapping[str, Any]
Source = tuple[str, str]
"""The path of a file in a volume, and what it comes from."""

REMOVED_VOLUMES: Mapping[str, str] = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
PATH_NAMES: Mapping[str, str] = {"storageos": "storageOS"}
"""Upstream's warnings write these fields otherwise than the API does."""


def removed_volume_warnings(volume: Part, path: str) -> Iterator[str]:
    """Warns about a volume of a type that was removed."""
    for kind in sorted(REMOVED_VOLUMES.keys() & volume.keys()):
        if volume[kind] is not None:
            yield f"{path}.{PATH_NAMES.get(kind, kind)}: {REMOVED_VOLUMES[kind]}"


def volume_warnings(volumes: Sequence[Part], path: str) -> Iterator[str]:
    """Yields the warnings about the volumes of a pod."""
    for index, volume in enumerate(volumes):
        yield from removed_volume_warnings(volume, f"{path}[{index}]")
    for volume in volumes:
        name = volume.get("name", "")
        for kind, described in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
            if source := volume.get(kind):
                label = _source_name(described, source, "secretName" if kind == "secret" else "name")
                yield from _overlaps(name, label, [(item.get("path", ""), "") for item in source.get("items") or ()])
        if projected := volume.get("projected"):
            yield from _projected(name, projected.get("sources") or ())


def _projected(name: str, sources: Sequence[Part]) -> Iterator[str]:
    files: list[Source] = []
    for source in sources:
        if not any(value is not None for value in source.values()):
            yield f'volume "{name}" (Projected) has no sources provided'
        files += _projected_files(source)
    yield from _overlaps(name, "Projected", files)


def _projected_files(source: Part) -> list[Source]:
    for kind, described in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
        if part := source.get(kind):
            label = _source_name(described, part, "name")
            return [(item.get("path", ""), label) for item in part.get("items") or ()]
    if token := source.get("serviceAccountToken"):
        return [(token.get("path", ""), "ServiceAccountToken")]
    if bundle := source.get("clusterTrustBundle"):
        owner = bundle.get("name") or bundle.get("signerName") or ""
        return [(bundle.get("path", ""), f'ClusterTrustBundle "{owner}"')]
    if certificate := source.get("podCertificate"):
        fields = {
            "certificateChainPath": "PodCertificate chain",
            "keyPath": "PodCertificate key",
            "credentialBundlePath": "PodCertificate credential bundle",
        }
        return [(certificate[field], label) for field, label in fields.items() if certificate.get(field)]
    return []


def _source_name(described: str, source: Part, key: str) -> str:
    return described if described == "DownwardAPI" else f'{described} "{source.get(key) or ""}"'


def _overlaps(volume: str, described: str, files: Sequence[Source]) -> Iterator[str]:
    """Warns about files of which one is the other, or is in the place of the other's directory.

    In their order as text, all paths below a directory follow it at once: the stack has those that contain the next.
    """
    if len(files) < 2:
        return
    ordered = sorted((f"{path.rstrip('/')}/", number, source) for number, (path, source) in enumerate(files))
    outer: list[tuple[str, int, str]] = []
    for file in ordered:
        if file[0] == "/":
            continue
        while outer and not file[0].startswith(outer[-1][0]):
            outer.pop()
        for other in outer:
            first, second = sorted((file, other), key=_number)
            yield f'volume "{volume}" ({described}): overlapping paths: {_shown(second)} with {_shown(first)}'
        outer.append(file)


def _number(file: tuple[str, int, str]) -> int:
    return file[1]


def _shown(file: tuple[str, int, str]) -> str:
    path, _number, source = file
    return f'"{path[:-1]}" ({source})' if source else f'"{path[:-1]}"'
