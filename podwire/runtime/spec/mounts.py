"""What is mounted where in a container: the kernel's own file systems, the pod's files, and what CRI asks for."""

import posixpath
from collections.abc import Iterable
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

Mount = dict[str, Any]

PROPAGATION = {
    pb.MountPropagation.Value("PROPAGATION_PRIVATE"): "rprivate",
    pb.MountPropagation.Value("PROPAGATION_HOST_TO_CONTAINER"): "rslave",
    pb.MountPropagation.Value("PROPAGATION_BIDIRECTIONAL"): "rshared",
}


def kernel_mounts(*, privileged: bool, shm: str) -> list[Mount]:
    """What every Linux program expects; /sys can be written by privileged containers only."""
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
        bind(shm, "/dev/shm", ["rw", *safe]),  # noqa: S108  the container's path
    ]


def bind(source: str, destination: str, options: Iterable[str]) -> Mount:
    return _mount(destination, "bind", source, ["rbind", *options])


def _mount(destination: str, kind: str, source: str, options: list[str]) -> Mount:
    return {"destination": destination, "type": kind, "source": source, "options": options}


def asked_mounts(asked: Iterable[pb.Mount]) -> list[Mount]:
    """The mounts that CRI names, shallow ones first, so that a deeper one is not hidden."""
    return [_asked(number, each) for number, each in _by_depth(asked)]


def _by_depth(asked: Iterable[pb.Mount]) -> list[tuple[int, pb.Mount]]:
    return sorted(enumerate(asked), key=lambda each: each[1].container_path.rstrip("/").count("/"))


def _asked(number: int, asked: pb.Mount) -> Mount:
    field = f"mounts[{number}]"
    path = clean_path(asked.container_path, f"{field}.container_path")
    if asked.HasField("image"):
        raise InvalidArgument(f"{field}.image: image volumes are not supported by podwire yet")
    if asked.uidMappings or asked.gidMappings:
        raise InvalidArgument(f"{field}.uidMappings: mapped mounts are not supported by podwire yet")
    clean_path(asked.host_path, f"{field}.host_path")
    if asked.recursive_read_only and not asked.readonly:
        raise InvalidArgument(f"{field}.recursive_read_only: only a readonly mount can be")
    if asked.propagation not in PROPAGATION:
        raise InvalidArgument(f"{field}.propagation: {asked.propagation} is not known")
    if asked.recursive_read_only and asked.propagation != 0:
        raise InvalidArgument(f"{field}.recursive_read_only: only with private propagation")
    mode = "rro" if asked.recursive_read_only else "ro" if asked.readonly else "rw"
    return bind(asked.host_path, path, [PROPAGATION[asked.propagation], mode])


def root_propagation(asked: Iterable[pb.Mount]) -> str | None:
    """How the container's whole tree hangs on the host's: nothing passes through a root that is private."""
    wanted = {PROPAGATION.get(each.propagation) for each in asked}
    return next((each for each in ("rshared", "rslave") if each in wanted), None)


def clean_path(path: str, field: str) -> str:
    """An absolute path without tricks."""
    if not path.startswith("/"):
        raise InvalidArgument(f"{field}: {path!r} is not an absolute path")
    if "\x00" in path or ".." in path.split("/"):
        raise InvalidArgument(f"{field}: {path!r} must not contain '..'")
    return posixpath.normpath(path)
