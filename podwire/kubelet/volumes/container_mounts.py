"""CRI mounts of a container's volumeMounts. Pure."""

import re
from collections.abc import Mapping

from podwire.kubelet.config.environment import expand
from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.steps import has_contents
from podwire.objects.containers import VolumeMount
from podwire.objects.volumes import Volume
from podwire.protocols.cri import cri_pb2 as pb

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_PROPAGATION: dict[str, pb.MountPropagation] = {
    "": pb.PROPAGATION_PRIVATE,
    "None": pb.PROPAGATION_PRIVATE,
    "HostToContainer": pb.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}


def cri_mount(
    mount: VolumeMount, volume: Volume, host_path: str, *, recursive: bool, read_only: bool = False
) -> pb.Mount:
    """`recursive`: whether the runtime supports recursive read-only mounts; `read_only`: the volume is."""
    if mount.mount_propagation not in _PROPAGATION:
        raise VolumeError(f'invalid MountPropagation mode: "{mount.mount_propagation}"')
    path = mount.mount_path if mount.mount_path.startswith("/") else f"/{mount.mount_path}"
    return pb.Mount(
        container_path=path,
        host_path=host_path,
        readonly=mount.read_only or read_only or has_contents(volume),  # only the kubelet changes these files
        recursive_read_only=_recursive_read_only(mount, supported=recursive),
        propagation=_PROPAGATION[mount.mount_propagation],
    )


def image_mount(mount: VolumeMount, image: pb.ImageSpec, path: str) -> pb.Mount:
    """The mount of an image volume, which the runtime makes; always read-only."""
    target = mount.mount_path if mount.mount_path.startswith("/") else f"/{mount.mount_path}"
    return pb.Mount(container_path=target, image=image, image_sub_path=path, readonly=True)


def _recursive_read_only(mount: VolumeMount, *, supported: bool) -> bool:
    match mount.recursive_read_only:
        case "" | "Disabled":
            return False
        case _ if not mount.read_only:
            raise VolumeError(f'volume "{mount.name}" requested recursive read-only mode, but it is not read-only')
        case _ if mount.mount_propagation not in ("", "None"):
            raise VolumeError(
                f'volume "{mount.name}" requested recursive read-only mode, '
                f"but it is not compatible with propagation {mount.mount_propagation}"
            )
        case "IfPossible":
            return supported
        case "Enabled" if supported:
            return True
        case "Enabled":
            raise VolumeError(
                f'volume "{mount.name}" requested recursive read-only mode, but it is not supported by the runtime'
            )
        case unknown:
            raise VolumeError(f'unknown recursive read-only mode "{unknown}"')


def sub_path(mount: VolumeMount, env: Mapping[str, str]) -> str:
    """The subPath, expanded; empty for the whole volume."""
    path = mount.sub_path
    if mount.sub_path_expr:
        missing = [name for name in _REFERENCE.findall(mount.sub_path_expr) if name and name not in env]
        if missing:
            raise VolumeError(f'missing value for "{missing[0]}"')
        path = expand(mount.sub_path_expr, env)
    if path.startswith("/"):
        raise VolumeError(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise VolumeError(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path
