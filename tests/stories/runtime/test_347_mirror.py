"""A real registry as a mirror, behind a proxy that cuts connections and changes bytes, with layers in zstd."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from podwire.runtime.images import build
from tests.eventually import eventually
from tests.stories.runtime.support import PODWIRE

PORT, PROXY = 5010, 5011
REGISTRY = "reg.test"
IMAGE = f"{REGISTRY}/team/busybox:1"
AFTER = 300_000
"""Bytes of answers after which the proxy acts: within the layer."""
SERVER = 'server = "http://127.0.0.1:9"\n'
"""Nobody listens there."""


@contextmanager
def running(space, port, log, *words):
    """A program in the namespaces of the runtime that listens on a port."""
    with log.open("ab") as file:
        child = subprocess.Popen(space.command(*words), stdout=file, stderr=file)
    try:
        asks = space.command("sh", "-c", f"busybox nc -w 1 127.0.0.1 {port} < /dev/null")
        eventually(lambda: subprocess.run(asks, capture_output=True, check=False).returncode == 0, 20)
        yield
    finally:
        child.kill()
        child.wait()


@pytest.fixture(scope="module")
def registry(shared, tmp_path_factory):
    """docker-registry with one image, as `1` with a layer in gzip and as `zstd` in zstd."""
    directory = tmp_path_factory.mktemp("mirror")
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": f"127.0.0.1:{PORT}"},
    }
    (directory / "config.yml").write_text(json.dumps(config))
    with running(shared.space, PORT, directory / "log", "docker-registry", "serve", directory / "config.yml"):
        build.archive_root(directory / "busybox.tar", IMAGE, build.BUSYBOX, ["sh", "-l", "mirror"])
        skopeo = ["skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false"]
        target = f"docker://127.0.0.1:{PORT}/team/busybox"
        shared.space.output(*skopeo, f"oci-archive:{directory / 'busybox.tar'}", f"{target}:1")
        # Layers that are compressed already, or are known at the registry in gzip, would be sent like that.
        plain, packed = f"dir:{directory}/plain", f"dir:{directory}/zstd"
        shared.space.output(*skopeo, "--dest-decompress", f"oci-archive:{directory / 'busybox.tar'}", plain)
        shared.space.output(*skopeo, "--dest-compress", "--dest-compress-format", "zstd", plain, packed)
        shared.space.output(*skopeo, "--preserve-digests", packed, f"{target}:zstd")
        yield directory


@pytest.fixture
def pull(shared, registry, tmp_path):
    """Pulls with a `hosts.toml` for the registry, into a store of its own."""
    hosts = tmp_path / "etc/containerd/certs.d" / REGISTRY
    hosts.mkdir(parents=True)
    (tmp_path / "var/lib/podwire").mkdir(parents=True)

    def run(toml: str, image: str = IMAGE):
        (hosts / "hosts.toml").write_text(toml)
        words = shared.space.command(PODWIRE, "image", "pull", "--prefix", tmp_path, image)
        environment = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)

    return run


def mirror(port: int = PORT) -> str:
    return f'{SERVER}[host."http://127.0.0.1:{port}"]\n'


@contextmanager
def proxy(space, fault, log):
    program = Path(__file__).parent / "registry_proxy.py"
    words = [sys.executable, program, PROXY, PORT, fault, AFTER, log]
    with running(space, PROXY, log.with_suffix(".errors"), *words):
        yield


def test_01_a_mirror_serves_the_images_of_a_registry_that_is_not_there(pull, shared, tmp_path):
    done = pull(mirror())
    assert done.returncode == 0, done.stderr
    assert IMAGE in done.stdout
    listed = shared.space.output(PODWIRE, "image", "list", "--prefix", tmp_path)
    assert f"{REGISTRY}/team/busybox" in listed


def test_02_what_neither_mirror_nor_registry_have_is_named_with_both(pull):
    done = pull(mirror(), f"{REGISTRY}/team/nothing:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(rf"127\.0\.0\.1:{PORT}: 404: .*; 127\.0\.0\.1:9: cannot connect", done.stderr)


def test_03_layers_in_zstd_are_pulled(pull, shared):
    raw = shared.space.output(
        "skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://127.0.0.1:{PORT}/team/busybox:zstd"
    )
    assert {layer["mediaType"].rpartition("+")[2] for layer in json.loads(raw)["layers"]} == {"zstd"}
    done = pull(mirror(), f"{REGISTRY}/team/busybox:zstd")
    assert done.returncode == 0, done.stderr


def test_04_a_layer_goes_on_where_its_connection_was_cut(pull, shared, tmp_path):
    log = tmp_path / "requests"
    with proxy(shared.space, "cut", log):
        done = pull(mirror(PROXY))
    assert done.returncode == 0, done.stderr
    starts = [int(start) for start in re.findall(r"Range: bytes=(\d+)-", log.read_text())]
    assert starts
    assert starts == sorted(set(starts)), "each request goes on behind the one before"


def test_05_a_layer_with_another_byte_is_refused_and_leaves_nothing(pull, shared, tmp_path):
    with proxy(shared.space, "spoil", tmp_path / "requests"):
        done = pull(mirror(PROXY))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{IMAGE}: 127.0.0.1:{PROXY}: sha256:" in done.stderr
    assert "digest mismatch" in done.stderr
    stored = (tmp_path / "var/lib/podwire/images").rglob("*")
    assert [path for path in stored if path.is_file() and path.name != "lock"] == []
