"""Paths of CSI volumes, and the files `vol_data.json` that say to which driver a directory belongs."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.files import remove_durably, sweep, write_durably
from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.paths import VolumePaths, plain
from podwire.linux.errors import NoSuchPath
from podwire.linux.fs.regular_files import read_head

log = logging.getLogger(__name__)

FILE, MOUNT, GLOBAL = "vol_data.json", "mount", "globalmount"
MAX_FILE = 64 << 10
_PLUGIN = "kubernetes.io~csi"


@dataclass(frozen=True, slots=True)
class VolumeData:
    """The driver and the handle of a volume; all that is needed to undo its calls."""

    driver: str
    handle: str
    mode: str = ""

    @property
    def key(self) -> str:
        return f"{self.driver}^{self.handle}"


@dataclass(frozen=True, slots=True)
class CsiPaths:
    volumes: VolumePaths

    @property
    def staged(self) -> Path:
        return self.volumes.root / "plugins" / "kubernetes.io" / "csi"

    def pod(self, uid: str) -> Path:
        """The directory with the CSI volumes of a pod."""
        return self.volumes.pod(uid) / "volumes" / _PLUGIN

    def published(self, uid: str, name: str) -> Path:
        return self.volumes.persistent(uid, "csi", name) / MOUNT

    def staging(self, data: VolumeData) -> Path:
        return self.staged / plain(data.driver) / hashlib.sha256(data.handle.encode()).hexdigest() / GLOBAL

    def published_volumes(self, uid: str) -> list[Path]:
        """Directories of the CSI volumes of a pod."""
        with suppress(FileNotFoundError):
            return sorted(path for path in self.pod(uid).iterdir() if path.is_dir())
        return []

    def staged_volumes(self) -> Iterator[tuple[Path, VolumeData]]:
        for path in sorted(self.staged.glob(f"*/*/{FILE}")):
            if (data := read(path.parent)) is not None:
                yield path.parent / GLOBAL, data

    def users(self, data: VolumeData) -> Iterator[Path]:
        """Directories of pods' volumes that are this volume, published or about to be."""
        for path in self.volumes.pods.glob(f"*/volumes/{_PLUGIN}/*/{FILE}"):
            if (other := read(path.parent)) is not None and other.key == data.key:
                yield path.parent


def write(directory: Path, content: Mapping[str, str]) -> None:
    """Write the file of a volume; it is on the disk when this returns. Raises OSError."""
    directory.mkdir(0o750, parents=True, exist_ok=True)
    write_durably(directory / FILE, json.dumps(content).encode())


def read(directory: Path) -> VolumeData | None:
    """None if the file does not exist, or is not one of a volume."""
    path = directory / FILE
    try:
        content = json.loads(read_head(path, MAX_FILE))
        handle, mode = str(content["volumeHandle"]), str(content.get("volumeLifecycleMode", ""))
        return VolumeData(plain(content["driverName"]), handle, mode)
    except (FileNotFoundError, NoSuchPath):
        return None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError, VolumeError) as error:
        log.warning("cannot read CSI volume data", extra={"path": str(path), "error": str(error)})
        return None


def remove(directory: Path, mount: str) -> None:
    """Remove the empty mount point, then the file, then the directory: in this order a killed kubelet finds it again.
    Raises OSError if the mount point is not empty or still mounted."""
    with suppress(FileNotFoundError):
        target = directory / mount
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        else:
            target.unlink()
    remove_durably(directory / FILE)
    with suppress(FileNotFoundError):
        sweep(directory)
        directory.rmdir()
