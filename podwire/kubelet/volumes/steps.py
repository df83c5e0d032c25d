"""Steps of setting a volume up, as values: planned before any of them is applied. Pure."""

from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.volumes.contents import Contents
from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.paths import IN_MEMORY, VolumePaths, type_of
from podwire.objects.pods import Pod
from podwire.objects.quantity import parse
from podwire.objects.volumes import EmptyDir, HostPath, Volume

MEMORY = "Memory"
UNSUPPORTED = ("nfs", "iscsi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that are kept up to date, on disk or in memory."""

    volume: str
    directory: Path
    contents: Contents
    group: int | None
    in_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDirectory:
    """An empty directory. Its sizeLimit is a matter of eviction, not of the file system."""

    volume: str
    directory: Path
    group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMount:
    """An empty tmpfs of its own; 0 is the kernel's default size."""

    volume: str
    directory: Path
    group: int | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A path of the node is checked, and created if its type says so."""

    volume: str
    source: HostPath


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A directory of the node is mounted below the pod's, and its files are given to the pod's fsGroup."""

    volume: str
    source: Path
    directory: Path
    read_only: bool
    group: int | None
    on_root_mismatch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """A path of the node must be a block device; containers get it as such."""

    volume: str
    path: Path


Step = Files | EmptyDirectory | MemoryMount | Check | BindMount | BlockDevice


def has_contents(volume: Volume) -> bool:
    return type_of(volume) not in ("", "empty-dir")


def check_type(volume: Volume) -> None:
    """Raises VolumeError for unsupported types."""
    if volume.host_path is not None or type_of(volume):
        return
    names = [name for name in UNSUPPORTED if getattr(volume, name) is not None]
    kind = f"of type {_camel(names[0])}" if names else "of this type"
    raise VolumeError(f"volumes {kind} are not supported by podwire")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def with_contents(paths: VolumePaths, pod: Pod, volume: Volume, contents: Contents) -> Files:
    return Files(
        volume=volume.name,
        directory=paths.volume(pod.uid, volume),
        contents=contents,
        group=pod.spec.security_context.fs_group,
        in_memory=type_of(volume) in IN_MEMORY,
    )


def without_contents(
    paths: VolumePaths, pod: Pod, volume: Volume, node: NodeFacts
) -> EmptyDirectory | MemoryMount | Check:
    if volume.host_path is not None:
        return Check(volume=volume.name, source=volume.host_path)
    source = volume.empty_dir or EmptyDir()
    directory, group = paths.volume(pod.uid, volume), pod.spec.security_context.fs_group
    if source.medium == MEMORY:
        size = memory_size(pod, source, node)
        return MemoryMount(volume=volume.name, directory=directory, group=group, size=size)
    if source.medium:
        raise VolumeError(f'an emptyDir of medium "{source.medium}" is not supported by podwire')
    return EmptyDirectory(volume=volume.name, directory=directory, group=group)


def memory_size(pod: Pod, source: EmptyDir, node: NodeFacts) -> int:
    """The minimum of its sizeLimit, the memory limits of all containers together, and the node's allocatable memory."""
    limits = [container.resources.limits.get("memory") for container in pod.spec.containers]
    together = sum(_bytes(limit) for limit in limits if limit is not None) if all(limits) else 0
    sizes = (_bytes(source.size_limit or 0), together, _bytes(node.allocatable.get("memory", 0)))
    return min((size for size in sizes if size), default=0)


def _bytes(amount: str | float) -> int:
    return parse(str(amount)).value()
