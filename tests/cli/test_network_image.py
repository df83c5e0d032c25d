"""The image with network tools, made of real Debian packages; those that set-up downloaded are used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.runtime.images import Images

PODWIRE = str(Path(sys.executable).with_name("podwire"))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts layers")

CHECK = "ip -Version && dig -v && curl --version && tcpdump --version && ping -V"


def image(prefix: Path, *words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [PODWIRE, "image", *map(str, words), "--prefix", str(prefix)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=150, check=False
    )


def test_the_programs_of_the_network_image_run(tmp_path):
    done = image(tmp_path, "build-root", "--network")
    assert done.returncode == 0, done.stderr
    assert "podwire.local/network:latest" in done.stdout
    context = tmp_path / "context"
    context.mkdir()
    (context / "Containerfile").write_text(f"FROM podwire.local/network\nRUN {CHECK}\nRUN ip -brief link > /links\n")
    built = image(tmp_path, "build", context, "-t", "example.test/check", "--network", "none")
    assert built.returncode == 0, built.stderr
    for words in ("ip utility, iproute2-", "DiG 9.", "libcurl/", "tcpdump version", "ping from iputils"):
        assert words in built.stderr
    images = Images(tmp_path / "var/lib/podwire/images")
    assert images.status("podwire.local/network").config.cmd == ("bash",)
    top = images.rootfs_layers(images.status("example.test/check"))[0]
    assert (top / "links").read_text().startswith("lo ")


def test_without_packages_the_error_says_what_helps(tmp_path):
    (tmp_path / "empty").mkdir()
    done = image(tmp_path, "build-root", "--network", "--packages", tmp_path / "empty")
    assert done.returncode == 1
    assert done.stderr.endswith("empty: has no packages (*.deb)\n")
    (tmp_path / "empty/x.deb").write_text("not a package")
    done = image(tmp_path, "build-root", "--network", "--packages", tmp_path / "empty")
    assert done.returncode == 1
    assert "dpkg-deb failed: " in done.stderr
    assert "--packages is for --network" in image(tmp_path, "build-root", "--packages", tmp_path).stderr
    assert "Traceback" not in done.stderr
