"""Checks that a path of the node has the type of its hostPath volume; creates it for the …OrCreate types."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from podwire.kubelet.volumes.errors import MountFailed, VolumeError
from podwire.objects.volumes import HostPath

_DIRECTORY, _FILE = 0o755, 0o644

_KINDS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}
"""Check and name of each type. Links are followed."""


def check(source: HostPath) -> None:
    """Raises VolumeError. A source without a type is not checked."""
    if ".." in source.path.split("/"):
        raise VolumeError(f"invalid HostPath `{source.path}`: must not contain '..'")
    if not source.type:
        return
    if source.type not in _KINDS:
        raise VolumeError(f"{source.type} is an invalid volume type")
    is_kind, words = _KINDS[source.type]
    if source.type.endswith("OrCreate"):
        _create(source)
    try:
        right = is_kind(Path(source.path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        right = False
    if not right:
        raise VolumeError(f"hostPath type check failed: {source.path} is not {words}")


def _create(source: HostPath) -> None:
    """Create it unless something exists there; the parent directories of a file must exist."""
    if os.path.lexists(source.path):
        return
    try:
        if source.type == "DirectoryOrCreate":
            Path(source.path).mkdir(_DIRECTORY, parents=True, exist_ok=True)
        else:
            os.close(os.open(source.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
    except OSError as error:
        raise VolumeError(f"hostPath type check failed: {source.path}: {error.strerror}") from error


def check_local(volume: str, path: Path) -> None:
    """Checks the directory of a local persistent volume. Raises VolumeError."""
    if ".." in path.parts:
        raise VolumeError(f"invalid path: {path} must not contain '..'")
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        reason = f'path "{path}" does not exist'
        raise MountFailed("MountVolume.NewMounter initialization failed", volume, reason) from error
    if stat.S_ISBLK(mode):
        raise VolumeError(f"{path} is a block device; file systems on local devices are not supported by podwire")
    if not stat.S_ISDIR(mode):
        raise VolumeError("only directory and block device are supported")


def check_block_device(volume: str, path: Path) -> None:
    """Checks the device of a local persistent volume in volumeMode Block. Raises MountFailed."""
    try:
        block = stat.S_ISBLK(path.stat().st_mode)
    except OSError as error:
        raise MountFailed("MapVolume.MapPodDevice failed", volume, f"{path}: {error.strerror}") from error
    if not block:
        raise MountFailed("MapVolume.MapPodDevice failed", volume, f"{path} is not a block device")
