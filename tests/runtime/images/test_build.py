"""An image of this host's busybox."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from podwire.runtime.images import BadImage, Images
from podwire.runtime.images.build import BUSYBOX, applets, build_image, build_root, root_layer
from podwire.runtime.images.errors import BadReference

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners"),
    pytest.mark.skipif(not BUSYBOX.exists(), reason="no busybox (Debian: busybox-static)"),
]


def test_the_same_busybox_makes_the_same_image(images, tmp_path):
    other = Images(tmp_path / "other")
    image = build_root(images)
    assert build_root(other) == image == build_root(images)
    assert image.names == ("podwire.local/busybox:latest",)
    assert image.config.cmd == ("sh",)
    assert images.status("podwire.local/busybox") == image
    other.close()


def test_programs_run_in_it(images, merged):
    layers = images.rootfs_layers(build_root(images))
    said = "id -un; /usr/bin/env true; test -x /sbin/ip; stat -c %a /tmp; busybox echo still there"
    assert merged(layers, f"chroot . /bin/sh -ec '{said}'").splitlines() == ["root", "1777", "still there"]


def test_busybox_does_not_replace_itself():
    assert "busybox" not in applets(BUSYBOX)
    assert {"sh", "ls", "[", "ip", "nc", "wget", "httpd"} <= set(applets(BUSYBOX))


@pytest.mark.parametrize(
    ("busybox", "reason"),
    [
        (Path("/nowhere/busybox"), "No such file"),
        (Path(shutil.which("env") or ""), "needs libraries"),
        (Path("/etc/passwd"), "needs libraries"),
        (Path("/dev/null"), "needs libraries"),
    ],
)
def test_a_program_that_needs_libraries_is_refused(busybox, reason):
    with pytest.raises(BadImage, match=reason):
        root_layer(busybox)


def test_a_static_program_that_is_not_busybox_is_refused(tmp_path):
    fake = tmp_path / "busybox"
    fake.write_bytes(BUSYBOX.read_bytes()[:200])
    fake.chmod(0o755)
    with pytest.raises(BadImage):
        root_layer(fake)


def test_an_image_of_any_tar_has_the_settings_that_are_asked_for(images, oci):
    image = build_image(images, "me/web:2", oci.tar_of(oci.entry("x")), {"User": "www-data", "Entrypoint": ["/x"]})
    assert image.names == ("docker.io/me/web:2",)
    assert (image.username, image.config.entrypoint) == ("www-data", ("/x",))
    with pytest.raises((BadReference, BadImage)):
        build_image(images, "NOT", oci.tar_of(oci.entry("x")), {})


@pytest.mark.skipif(shutil.which("runc") is None, reason="no runc")
def test_a_real_runtime_runs_it(images, merged, tmp_path):
    image = build_root(images)
    writable = images.prepare("c1", image)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    spec = (bundle / "config.json").read_text()
    spec = spec.replace('"terminal": true', '"terminal": false').replace('"sh"', '"echo", "hello", "from", "busybox"')
    (bundle / "config.json").write_text(spec)
    name = f"podwire-test-{os.getpid()}"
    command = (
        f"mkdir {bundle}/rootfs; mount --rbind . {bundle}/rootfs; runc --root {tmp_path}/runc run -b {bundle} {name}"
    )
    assert merged(images.rootfs_layers(image), command, writable) == "hello from busybox\n"
