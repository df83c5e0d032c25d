"""Images made by hand, by code that shares nothing with what reads them."""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwire.runtime.images import Images

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
OCI = "application/vnd.oci.image"


def entry(name: str, data: bytes = b"", **values: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar; a file unless `type` says otherwise."""
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.size = 0o644, 1_600_000_000, len(data)
    for key, value in values.items():
        setattr(info, key, value)
    return info, data


def folder(name: str, mode: int = 0o755, **values: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=mode, **values)


def symlink(name: str, target: str, **values: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target, **values)


def hardlink(name: str, target: str, **values: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE, linkname=target, **values)


def device(name: str, major: int, minor: int, kind: bytes = tarfile.CHRTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, devmajor=major, devminor=minor)


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return whole.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def described(blob: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob), **more}


class Made:
    """An image whose every part can be put wrong before it is written."""

    def __init__(self, *layers: bytes, name: str = "example.test/made:1", packed: bool = True, **settings: Any) -> None:
        self.name = name
        self.plain = list(layers)
        self.layers = [gzip.compress(layer, mtime=0) if packed else layer for layer in layers]
        self.config: dict[str, Any] = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
        suffix = "+gzip" if packed else ""
        self.manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": None,
            "layers": [described(layer, f"{OCI}.layer.v1.tar{suffix}") for layer in self.layers],
        }
        self.annotations = {"io.containerd.image.name": name} if name else {}
        self.platform: dict[str, Any] | None = None

    @property
    def config_blob(self) -> bytes:
        return json.dumps(self.config).encode()

    @property
    def manifest_blob(self) -> bytes:
        result = dict(self.manifest)
        if result.get("config", 0) is None:
            result["config"] = described(self.config_blob, f"{OCI}.config.v1+json")
        return json.dumps(result).encode()

    @property
    def row(self) -> dict[str, Any]:
        row = described(self.manifest_blob, f"{OCI}.manifest.v1+json", annotations=self.annotations)
        return {**row, "platform": self.platform} if self.platform else row

    def blobs(self) -> dict[str, bytes]:
        return {digest(item): item for item in (self.config_blob, self.manifest_blob, *self.layers)}

    def files(self, *rows: dict[str, Any], blobs: dict[str, bytes] | None = None) -> dict[str, bytes]:
        """An OCI layout."""
        index = {"schemaVersion": 2, "manifests": list(rows) or [self.row]}
        held = {**self.blobs(), **(blobs or {})}
        return {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{f"blobs/{name.replace(':', '/')}": blob for name, blob in held.items()},
        }

    def docker_files(self) -> dict[str, bytes]:
        """The archive that `docker save` writes."""
        config = f"{hashlib.sha256(self.config_blob).hexdigest()}.json"
        paths = [f"{number:064x}/layer.tar" for number, _ in enumerate(self.plain)]
        row = {"Config": config, "RepoTags": [self.name] if self.name else None, "Layers": paths}
        return {
            **dict(zip(paths, self.plain, strict=True)),
            config: self.config_blob,
            "manifest.json": json.dumps([row]).encode(),
        }


def write_directory(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def write_tar(path: Path, files: dict[str, bytes], *, packed: bool = False) -> Path:
    whole = tar_of(*(entry(name, data) for name, data in files.items()))
    path.write_bytes(gzip.compress(whole) if packed else whole)
    return path


class OciFiles:
    """The functions above, which write layers and image archives: tests cannot import them from here."""

    ARCHITECTURE, OCI, Made = ARCHITECTURE, OCI, Made
    entry, folder, symlink, hardlink, device = map(staticmethod, (entry, folder, symlink, hardlink, device))
    tar_of, digest, described = staticmethod(tar_of), staticmethod(digest), staticmethod(described)
    write_directory, write_tar = staticmethod(write_directory), staticmethod(write_tar)


@pytest.fixture(scope="session")
def oci() -> type[OciFiles]:
    return OciFiles


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Images]:
    opened = Images(tmp_path / "images")
    yield opened
    opened.close()


Merged = Callable[..., str]


@pytest.fixture
def merged(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """Output of a shell command in an overlayfs of these layers (the highest first), in a private mount namespace."""
    if os.geteuid() != 0:
        pytest.skip("mounts an overlayfs")

    target, empty = tmp_path_factory.mktemp("merged"), tmp_path_factory.mktemp("empty")

    def run(layers: list[Path], command: str, writable: Any = None) -> str:
        options = f"lowerdir={':'.join(map(str, layers))}"
        if writable:
            options += f",upperdir={writable.upper},workdir={writable.work}"
        else:
            options += f":{empty}"  # without an upper, overlayfs wants two
        script = f"mount -t overlay none -o '{options}' '{target}' && cd '{target}' && {command}"
        done = subprocess.run(["unshare", "-m", "sh", "-ec", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
