"""Image volumes: the files of an image, mounted read-only into a container of another one (KEP-4639).

    ID/lower/volume-N        the image's layers, for the mount number N of the container
    ID/lower/volume-N-path   a path in it, if the mount names one
    ID/lower/volume-N.M      layer M with mapped owners, until the layers are mounted over each other

They are mounted at each start and unmounted with the root file system. The image cannot be removed while the container
exists: the image store holds it for the container.
"""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.overlay import mount_overlay
from podwire.linux.fs.paths import open_in_root
from podwire.linux.proc.namespaces import open_namespace
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.images import Image


@dataclass(frozen=True, slots=True)
class ImageVolume:
    """An image that a container mounts; `number` is that of the mount."""

    number: int
    image: Image
    path: str


def requested(mounts: Iterable[pb.Mount], find: Callable[[str, str], Image]) -> tuple[ImageVolume, ...]:
    """The image volumes of a container. `find` gets a reference and the field for its errors. InvalidArgument."""
    volumes = []
    for number, mount in enumerate(mounts):
        if not mount.HasField("image"):
            continue
        field = f"mounts[{number}]"
        if not mount.readonly:
            raise InvalidArgument(f"{field}.readonly: an image volume is read-only")
        if mount.host_path:
            raise InvalidArgument(f"{field}.host_path: an image volume has none")
        if mount.propagation:
            raise InvalidArgument(f"{field}.propagation: an image volume has only private propagation")
        path = mount.image_sub_path
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise InvalidArgument(f"{field}.image_sub_path: {path!r} must be relative and not contain '..'")
        volumes.append(ImageVolume(number, find(mount.image.image, f"{field}.image.image"), path))
    return tuple(volumes)


def sources(lower: Path, volumes: Iterable[ImageVolume]) -> dict[int, str]:
    """The paths that are mounted into the container, by the number of the mount."""
    return {volume.number: str(_source(lower, volume.number, volume.path)) for volume in volumes}


def _source(lower: Path, number: int, path: str) -> Path:
    return lower / (f"volume-{number}-path" if path else f"volume-{number}")


def check_paths(lower: Path, volumes: Iterable[ImageVolume], layers: Callable[[Image], Sequence[Path]]) -> None:
    """Checks that the paths exist in their images, by mounting these for a moment. Raises InvalidArgument."""
    mounts = KernelMounts()
    for volume in volumes:
        if volume.path:
            target = lower / f"volume-{volume.number}"
            with ExitStack() as mounted:
                _mount_layers(mounts, target, layers(volume.image), "", mounted)
                mounted.callback(mounts.unmount, target, lazily=True)
                os.close(_open(target, volume.number, volume.path))


def mount(
    mounts: KernelMounts, lower: Path, number: int, layers: Sequence[Path], path: str, user_namespace: str
) -> None:
    """Mounts an image, and the path in it. `user_namespace` is the path of the pod's own one, or empty. Raises
    LinuxError, InvalidArgument."""
    target = lower / f"volume-{number}"
    with ExitStack() as mounted:
        _mount_layers(mounts, target, layers, user_namespace, mounted)
        if not path:
            return
        descriptor = _open(target, number, path)
        mounted.callback(os.close, descriptor)
        source = _source(lower, number, path)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            source.mkdir(mode=0o700, exist_ok=True)
        else:
            source.touch(mode=0o600)
        mounts.bind(f"/proc/self/fd/{descriptor}", source)


def _mount_layers(
    mounts: KernelMounts, target: Path, layers: Sequence[Path], user_namespace: str, mounted: ExitStack
) -> None:
    """One layer is bound, several are overlaid. Mapped layers are unmounted with `mounted`, the overlay keeps them."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not user_namespace:
        if len(layers) == 1:
            mounts.bind(layers[0], target, read_only=True)
        else:
            mount_overlay(target, layers)
        return
    namespace = open_namespace(user_namespace, "user")
    mounted.callback(os.close, namespace)
    if len(layers) == 1:
        mounts.bind_mapped(layers[0], target, namespace)
        mounts.make_read_only(target)
        return
    mapped = []
    for position, layer in enumerate(layers):
        place = target.with_name(f"{target.name}.{position}")
        place.mkdir(mode=0o700, exist_ok=True)
        mounts.bind_mapped(layer, place, namespace)
        mounted.callback(mounts.unmount, place, lazily=True)
        mapped.append(place)
    mount_overlay(target, mapped)


def _open(root: Path, number: int, path: str) -> int:
    """A descriptor of a path of the image; its links lead to the image's own files. Raises InvalidArgument."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_in_root(descriptor, path, os.O_PATH)
    except OSError as error:
        raise InvalidArgument(f"mounts[{number}].image_sub_path: {path!r} does not exist in the image") from error
    finally:
        os.close(descriptor)
