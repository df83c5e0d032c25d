"""The mounts of a container: kernel file systems, the pod's files, and the mounts of the request."""

import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwire.linux.fs.values import Mount as HostMount
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec.user_namespaces import IdRange, mount_mappings

Mount = dict[str, Any]

PROPAGATION = {
    pb.MountPropagation.Value("PROPAGATION_PRIVATE"): "rprivate",
    pb.MountPropagation.Value("PROPAGATION_HOST_TO_CONTAINER"): "rslave",
    pb.MountPropagation.Value("PROPAGATION_BIDIRECTIONAL"): "rshared",
}

TO_CONTAINER = pb.MountPropagation.Value("PROPAGATION_HOST_TO_CONTAINER")


def kernel_mounts(*, privileged: bool, shm: str) -> list[Mount]:
    """Returns the default mounts; /sys is writable for privileged containers only."""
    sys_mode = "rw" if privileged else "ro"
    safe = ["nosuid", "noexec", "nodev"]
    return [
        _mount("/proc", "proc", "proc", safe),
        _mount("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount(
            "/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        _mount("/dev/mqueue", "mqueue", "mqueue", safe),
        _mount("/sys", "sysfs", "sysfs", [*safe, sys_mode]),
        _mount("/sys/fs/cgroup", "cgroup", "cgroup", [*safe, "relatime", sys_mode]),
        bind(shm, "/dev/shm", ["rw", *safe]),  # noqa: S108  the container's path
    ]


def bind(source: str, destination: str, options: Iterable[str]) -> Mount:
    return _mount(destination, "bind", source, ["rbind", *options])


def _mount(destination: str, kind: str, source: str, options: list[str]) -> Mount:
    return {"destination": destination, "type": kind, "source": source, "options": options}


def requested_mounts(
    mounts: Iterable[pb.Mount], ids: IdRange | None = None, images: Mapping[int, str] | None = None
) -> list[Mount]:
    """Returns the mounts of a CRI request, shallow ones first, so that a deeper one is not hidden.

    `images` are the paths where image volumes are mounted, by the number of the mount.
    """
    by_depth = sorted(enumerate(mounts), key=lambda item: item[1].container_path.rstrip("/").count("/"))
    return [_requested(number, mount, ids, images or {}) for number, mount in by_depth]


def _requested(number: int, mount: pb.Mount, ids: IdRange | None, images: Mapping[int, str]) -> Mount:
    field = f"mounts[{number}]"
    path = clean_path(mount.container_path, f"{field}.container_path")
    if number in images:
        return bind(images[number], path, ["rprivate", "ro"])
    mappings = mount_mappings(mount, ids, field)
    clean_path(mount.host_path, f"{field}.host_path")
    if mount.recursive_read_only and not mount.readonly:
        raise InvalidArgument(f"{field}.recursive_read_only: only a readonly mount can have it")
    if mount.propagation not in PROPAGATION:
        raise InvalidArgument(f"{field}.propagation: {mount.propagation} is not supported")
    if mount.recursive_read_only and mount.propagation != 0:
        raise InvalidArgument(f"{field}.recursive_read_only: only with private propagation")
    mode = "rro" if mount.recursive_read_only else "ro" if mount.readonly else "rw"
    return {**bind(mount.host_path, path, [PROPAGATION[mount.propagation], mode]), **mappings}


def root_propagation(mounts: Iterable[pb.Mount]) -> str | None:
    """Returns the propagation of the root: mounts do not propagate through a private one."""
    requested = {PROPAGATION.get(mount.propagation) for mount in mounts}
    return next((kind for kind in ("rshared", "rslave") if kind in requested), None)


def check_mounts(
    mounts: Iterable[pb.Mount],
    host: Iterable[HostMount],
    *,
    recursive_read_only: bool,
    resolve: Callable[[str], str] = posixpath.normpath,
) -> None:
    """Refuses mounts that would silently be less than they ask for. Raises InvalidArgument.

    Propagation needs a host path below a shared mount (for both ways) or a shared or slave one (to the container).
    `resolve` follows the symlinks of the host.
    """
    points = sorted(host, key=lambda point: len(point.target), reverse=True)
    for number, mount in enumerate(mounts):
        field = f"mounts[{number}]"
        if mount.recursive_read_only and not recursive_read_only:
            raise InvalidArgument(f"{field}.recursive_read_only: not supported by this kernel and OCI runtime")
        if not mount.propagation:
            continue
        path = resolve(mount.host_path)
        point = next((point for point in points if _is_below(path, point.target)), None)
        kinds = {word.partition(":")[0] for word in point.propagation} if point else set()
        if "shared" in kinds or (mount.propagation == TO_CONTAINER and "master" in kinds):
            continue
        required = "a shared or slave" if mount.propagation == TO_CONTAINER else "a shared"
        place = point.target if point else "/"
        raise InvalidArgument(f"{field}.propagation: {path} is mounted on {place}, which is not {required} mount")


def _is_below(path: str, directory: str) -> bool:
    return directory in ("/", path) or path.startswith(f"{directory}/")


def clean_path(path: str, field: str) -> str:
    """Returns a normalized absolute path. Raises InvalidArgument."""
    if not path.startswith("/"):
        raise InvalidArgument(f"{field}: {path!r} is not an absolute path")
    if "\x00" in path or ".." in path.split("/"):
        raise InvalidArgument(f"{field}: {path!r} must not contain '..'")
    return posixpath.normpath(path)
