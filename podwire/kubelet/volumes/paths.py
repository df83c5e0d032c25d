"""Paths of volumes below the kubelet's root. Pure.

    pods/UID/volumes/kubernetes.io~TYPE/NAME    as with the stock kubelet
    pods/UID/volume-subpaths/NAME/CONTAINER/N   bind mount of a volumeMount with a subPath
    secrets/UID/NAME                            a volume that may hold a secret or a token

`secrets` is one tmpfs for the whole node, so that no secret touches the disk. The stock kubelet mounts a tmpfs for each
such volume below `pods`. The mount itself is cheap (some 10 µs); but every pod has a token, and every container begins
with a copy of the whole mount table, so a node with a hundred pods would copy a hundred more mounts at each start. And
directories on a busy disk are not cheap (up to a millisecond each), so none are created there for volumes in memory.
"""

from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects.volumes import Volume

EMPTY_DIR, CONFIG_MAP, SECRET, DOWNWARD, PROJECTED = "empty-dir", "configmap", "secret", "downward-api", "projected"
IN_MEMORY = (SECRET, PROJECTED)


@dataclass(frozen=True, slots=True)
class VolumePaths:
    root: Path

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    def pod(self, uid: str) -> Path:
        return self.pods / plain(uid)

    def pod_secrets(self, uid: str) -> Path:
        return self.secrets / plain(uid)

    def volume(self, uid: str, volume: Volume) -> Path:
        if volume.host_path is not None:
            return Path(volume.host_path.path)
        if type_of(volume) in IN_MEMORY:
            return self.pod_secrets(uid) / plain(volume.name)
        return self.pod(uid) / "volumes" / f"kubernetes.io~{type_of(volume)}" / plain(volume.name)

    def persistent(self, uid: str, plugin: str, name: str) -> Path:
        """The mount point of a persistent volume, by the name of the volume, not of the pod's."""
        return self.pod(uid) / "volumes" / f"kubernetes.io~{plugin}" / plain(name)

    def subpaths(self, uid: str) -> Path:
        return self.pod(uid) / "volume-subpaths"

    def subpath(self, uid: str, volume: str, container: str, index: int) -> Path:
        return self.subpaths(uid) / plain(volume) / plain(container) / str(index)


def plain(name: str) -> str:
    """Checks that a name is a single path component, although the API server has validated it. Raises VolumeError."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise VolumeError(f"{name!r} is not a name of a directory")
    return name


def type_of(volume: Volume) -> str:
    """The last part of the volume plugin's name; empty for a host path, which has no directory, and for other types."""
    sources = {
        EMPTY_DIR: volume.empty_dir,
        CONFIG_MAP: volume.config_map,
        SECRET: volume.secret,
        DOWNWARD: volume.downward_api,
        PROJECTED: volume.projected,
    }
    return next((name for name, source in sources.items() if source is not None), "")
