"""skopeo as a second opinion: it makes archives that we read, and unpacks none of ours otherwise than we do."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners"),
    pytest.mark.skipif(shutil.which("skopeo") is None, reason="no skopeo"),
]


def skopeo(*arguments: str) -> str:
    command = ["skopeo", "--insecure-policy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def original(oci, tmp_path) -> Path:
    low = oci.tar_of(oci.folder("etc"), oci.entry("etc/motd", b"low"), oci.entry("gone"))
    made = oci.Made(low, oci.tar_of(oci.entry("etc/motd", b"high"), oci.entry(".wh.gone")), User="33", Cmd=["/run"])
    return oci.write_directory(tmp_path / "original", made.files())


TARGETS = {
    "an OCI layout with a name": "oci:{0}/copy:example.test/copy:2",
    "an OCI archive with a name": "oci-archive:{0}/copy:example.test/copy:2",
    "a docker archive": "docker-archive:{0}/copy:example.test/copy:2",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_archives_of_skopeo_are_imported(images, original, tmp_path, merged, target):
    skopeo("copy", f"oci:{original}", target.format(tmp_path))
    [image] = images.import_archive(tmp_path / "copy")
    assert image.names == ("example.test/copy:2",)
    assert (image.uid, image.config.cmd) == (33, ("/run",))
    assert merged(images.rootfs_layers(image), "ls; cat etc/motd") == "etc\nhigh"


def test_zstd_layers_of_skopeo_are_imported(images, original, tmp_path, merged):
    skopeo("copy", "--dest-compress-format=zstd", "--dest-compress", f"oci:{original}", f"dir:{tmp_path}/zstd")
    skopeo("copy", f"dir:{tmp_path}/zstd", f"oci:{tmp_path}/copy:x")
    [image] = images.import_archive(tmp_path / "copy", name="example.test/zstd:1")
    assert b"+zstd" in (tmp_path / "copy/blobs" / image.digests[0].partition("@")[2].replace(":", "/")).read_bytes()
    assert merged(images.rootfs_layers(image), "ls; cat etc/motd") == "etc\nhigh"


def test_skopeo_reads_an_image_as_we_do(images, original):
    [image] = images.import_archive(original)
    raw = subprocess.run(["skopeo", "inspect", "--config", "--raw", f"oci:{original}"], capture_output=True, check=True)
    import hashlib

    assert image.id == f"sha256:{hashlib.sha256(raw.stdout).hexdigest()}"
    assert image.digests == (f"example.test/made@{json.loads(skopeo('inspect', f'oci:{original}'))['Digest']}",)
