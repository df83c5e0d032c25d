"""The image of podwire itself, made of this host's files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.runtime.images import Images

PODWIRE = str(Path(sys.executable).with_name("podwire"))

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="mounts layers"), pytest.mark.timeout(400)]

CHECK = "podwire --version && podwire network-driver --help && podwire cni --help && nft --version"
IMPORTS = "import grpc, ssl, sqlite3, lzma, cryptography.x509, podwire.cluster.apiserver, podwire.nriplugins"


def image(prefix: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    command = [PODWIRE, "image", *map(str, words), "--prefix", str(prefix)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_podwire_and_all_that_it_imports_run_in_its_image(tmp_path):
    archive = tmp_path / "made" / "podwire.tar"
    archive.parent.mkdir()
    done = image(tmp_path, "build-root", "--podwire", "--archive", archive)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in archive.parent.iterdir()] == ["podwire.tar"]
    assert not (tmp_path / "var").exists(), "an archive is made instead of an image of the prefix"
    done = image(tmp_path, "import", archive)
    assert done.returncode == 0, done.stderr
    assert "podwire.local/podwire:latest" in done.stdout
    assert image(tmp_path, "build-root").returncode == 0
    context = tmp_path / "context"
    context.mkdir()
    text = f"FROM podwire.local/podwire\nRUN {CHECK}\nRUN python3 -I -c \"{IMPORTS}; print('imported')\"\n"
    (context / "Containerfile").write_text(text)
    built = image(tmp_path, "build", context, "-t", "example.test/check", "--network", "none")
    assert built.returncode == 0, built.stderr
    for words in ("podwire ", "usage: podwire network-driver", "nftables v", "imported"):
        assert words in built.stderr
    images = Images(tmp_path / "var/lib/podwire/images")
    config = images.status("podwire.local/podwire").config
    assert (config.entrypoint, config.cmd) == (("podwire",), ("--help",))
    layer = images.rootfs_layers(images.status("podwire.local/podwire"))[0]
    assert not list(layer.rglob("pytest")), "packages for development are left out"
    assert list((tmp_path / "var/lib/podwire/images/staging").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--network", "--archive", "x.tar"), "--network and --archive do not go together"),
        (("--podwire", "--network"), "--network and --podwire do not go together"),
    ],
)
def test_options_that_exclude_each_other_are_refused(tmp_path, words, why):
    done = image(tmp_path, "build-root", *words)
    assert (done.returncode, why in done.stderr) == (1, True)
