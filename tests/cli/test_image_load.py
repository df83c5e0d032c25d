"""`podwire image load`: from a real containerd, and from programs that write what `docker save` writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.runtime.images import build
from tests.eventually import eventually

PODWIRE = str(Path(sys.executable).with_name("podwire"))
DEBIAN = Path(sys.prefix) / "debian/usr/bin"
NAME = "example.test/app:1"
DOCKER = """#!/bin/sh
[ "$1 $2 $4" = "save -o {name}" ] || {{ echo "Error response from daemon: No such image: $4" >&2; exit 1; }}
cp {archive} "$3"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="runs containerd")


@pytest.fixture
def load(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()

    def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        env = {"PATH": f"{programs}:/nowhere", "CONTAINERD_ADDRESS": str(tmp_path / "none.sock"), **environment}
        command = [PODWIRE, "image", "load", *words, "--prefix", str(tmp_path / "prefix")]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)

    return run


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    archive = tmp_path_factory.mktemp("archive") / "app.tar"
    build.archive_root(archive, NAME, build.BUSYBOX, ["sh", "-l"])
    return archive


@pytest.fixture
def containerd(tmp_path_factory, archive):
    """Yields the address of a containerd that has the image in Kubernetes' namespace."""
    directory = tmp_path_factory.mktemp("containerd")
    config = directory / "config.toml"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    address = f"{directory}/c.sock"
    words = ["--config", config, "--root", directory / "root", "--state", directory / "state", "--address", address]
    with (directory / "log").open("wb") as log:
        child = subprocess.Popen([str(DEBIAN / "containerd"), *map(str, words)], stdout=log, stderr=log)
    try:
        ctr = [str(DEBIAN / "ctr"), "--address", address]
        eventually(lambda: subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0, 60)
        subprocess.run([*ctr, "-n", "k8s.io", "images", "import", str(archive)], check=True, capture_output=True)
        yield address
    finally:
        child.terminate()
        child.wait(30)


def test_an_image_of_containerd_is_loaded_from_whichever_namespace_has_it(load, containerd):
    done = load(NAME, PATH=str(DEBIAN), CONTAINERD_ADDRESS=containerd)
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout
    assert done.stderr == f"{NAME}: found in containerd\n"
    missing = load("example.test/other:1", "--from", "containerd", PATH=str(DEBIAN), CONTAINERD_ADDRESS=containerd)
    assert missing.returncode == 1
    assert "containerd: has no example.test/other:1 in its namespaces k8s.io" in missing.stderr


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_an_image_is_loaded_as_docker_and_podman_save_it(load, program, archive, tmp_path):
    saved = tmp_path / "saved.tar"
    copy = ["skopeo", "--insecure-policy", "copy", f"oci-archive:{archive}", f"docker-archive:{saved}:{NAME}"]
    subprocess.run(copy, check=True, capture_output=True)
    path = tmp_path / "programs" / program
    path.write_text(DOCKER.format(name=NAME, archive=saved))
    path.chmod(0o755)
    done = load(NAME, PATH=f"{tmp_path}/programs:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout
    missing = load("example.test/other:1", PATH=f"{tmp_path}/programs:/usr/bin:/bin")
    assert missing.returncode == 1
    assert f"{program}: Error response from daemon: No such image: example.test/other:1" in missing.stderr
    assert list((tmp_path / "prefix/var/lib/podwire/images/staging").iterdir()) == []


def test_without_an_engine_the_error_names_what_was_asked(load):
    done = load(NAME)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "podwire image: image 'example.test/app:1' is in none of docker, podman, containerd (docker: docker is not "
        "installed; podman: podman is not installed; containerd: ctr is not installed)\n"
    )
