"""A registry with TLS that wants a client's certificate: Debian's docker-registry, configured by `hosts.toml`."""

import json
import os
import subprocess

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import RpcError
from podwire.runtime.images import build
from tests.eventually import eventually
from tests.stories.runtime.support import PODWIRE

HOST = "127.0.0.1:5443"
IMAGE = f"{HOST}/team/busybox:1"


def openssl(directory, *words):
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def make_certificates(directory):
    """An authority, and certificates of the registry and of a client, which it signed."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(directory, "req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
    for name, more in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        request = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(directory, "req", *key, *request)
        (directory / "more").write_text(more)
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "more")
        openssl(directory, "x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")
    (directory / "both.pem").write_bytes(
        (directory / "client.crt").read_bytes() + (directory / "client.key").read_bytes()
    )
    encrypt = ("-aes256", "-passout", "pass:hunter2", "-out", "locked.key")
    openssl(directory, "ec", "-in", "client.key", *encrypt)


@pytest.fixture(scope="module")
def registry(shared, tmp_path_factory):
    """Yields the directory of the certificates."""
    directory = tmp_path_factory.mktemp("registry")
    make_certificates(directory)
    tls = {name: str(directory / f"server.{end}") for name, end in (("certificate", "crt"), ("key", "key"))}
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": HOST, "tls": {**tls, "clientcas": [str(directory / "ca.crt")]}},
    }
    (directory / "config.yml").write_text(json.dumps(config))
    with (directory / "log").open("wb") as log:
        words = shared.space.command("docker-registry", "serve", directory / "config.yml")
        child = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        asks = shared.space.command("sh", "-c", f"echo | busybox nc -w 1 {HOST.replace(':', ' ')}")
        eventually(lambda: subprocess.run(asks, capture_output=True, check=False).returncode == 0, 20)
        build.archive_root(directory / "busybox.tar", IMAGE, build.BUSYBOX, ["sh", "-l", "tls"])
        pushing = directory / "pushing"
        pushing.mkdir()
        for source, name in (("ca.crt", "ca.crt"), ("client.crt", "client.cert"), ("client.key", "client.key")):
            (pushing / name).write_bytes((directory / source).read_bytes())
        skopeo = ["skopeo", "--insecure-policy", "copy", "--dest-cert-dir", pushing]
        shared.space.output(*skopeo, f"oci-archive:{directory / 'busybox.tar'}", f"docker://{IMAGE}")
        yield directory
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def pull(shared, registry, tmp_path):
    """Pulls with a `hosts.toml` whose certificates lie beside it, into a store of its own."""
    hosts = tmp_path / "etc/containerd/certs.d" / HOST
    hosts.mkdir(parents=True)
    (tmp_path / "var/lib/podwire").mkdir(parents=True)

    def run(toml: str = "", **files: str):
        for name, source in files.items():
            (hosts / name.replace("_", ".")).write_bytes((registry / source).read_bytes())
        if toml:
            (hosts / "hosts.toml").write_text(toml)
        words = shared.space.command(PODWIRE, "image", "pull", "--prefix", tmp_path, IMAGE)
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip

    return run


SERVER = f'server = "https://{HOST}"\n'


@pytest.mark.parametrize(
    ("toml", "files"),
    [
        (f'{SERVER}ca = "ca.crt"\nclient = [["client.crt", "client.key"]]\n',
         {"ca_crt": "ca.crt", "client_crt": "client.crt", "client_key": "client.key"}),
        (f'{SERVER}ca = ["ca.crt"]\nclient = "both.pem"\n', {"ca_crt": "ca.crt", "both_pem": "both.pem"}),
        (f'{SERVER}skip_verify = true\nclient = "both.pem"\n', {"both_pem": "both.pem"}),
        (f'[host."https://{HOST}"]\nca = "ca.crt"\nclient = "both.pem"\n',
         {"ca_crt": "ca.crt", "both_pem": "both.pem"}),
        ("", {"ca_crt": "ca.crt", "client_cert": "client.crt", "client_key": "client.key"}),
    ],
    ids=["certificate and key", "one file", "unverified", "as a host", "in Docker's layout"],
)  # fmt: skip
def test_01_an_image_is_pulled_with_the_certificates(pull, toml, files):
    done = pull(toml, **files)
    assert done.returncode == 0, done.stderr
    assert IMAGE in done.stdout


@pytest.mark.parametrize(
    ("toml", "files", "words"),
    [
        ("", {}, "certificate verify failed"),
        (f'{SERVER}client = "both.pem"\n', {"both_pem": "both.pem"}, "certificate verify failed"),
        (f'{SERVER}ca = "ca.crt"\n', {"ca_crt": "ca.crt"}, "wants a client certificate"),
        (f'{SERVER}ca = "ca.crt"\nclient = "gone.pem"\n', {"ca_crt": "ca.crt"}, "cannot use the certificates"),
        (f'{SERVER}ca = "ca.crt"\nclient = [["client.crt", "locked.key"]]\n',
         {"ca_crt": "ca.crt", "client_crt": "client.crt", "locked_key": "locked.key"}, "cannot use the certificates"),
        (f'{SERVER}ca = "client.key"\n', {"client_key": "client.key"}, "cannot use the certificates"),
        (f"{SERVER}ca = 5\n", {}, "server.ca: must be text"),
    ],
    ids=["none", "unknown authority", "no client", "missing file", "locked key", "a key for a CA", "wrong type"],
)  # fmt: skip
def test_02_what_is_wrong_with_certificates_is_named(pull, toml, files, words):
    done = pull(toml, **files)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr


async def test_03_the_runtime_takes_certificates_that_were_replaced(shared, registry, cri):
    hosts = shared.prefix / "etc/containerd/certs.d" / HOST
    hosts.mkdir(parents=True)
    for name in ("ca.crt", "both.pem"):
        (hosts / name).write_bytes((registry / name).read_bytes())
    (hosts / "hosts.toml").write_text(f'{SERVER}ca = "ca.crt"\nclient = "both.pem"\n')
    wrong = (registry / "server.crt").read_bytes() + (registry / "server.key").read_bytes()
    (hosts / "both.pem").write_bytes(wrong)  # not for clients
    (hosts / "ca.crt").write_bytes((registry / "client.crt").read_bytes())
    with pytest.raises(RpcError, match="certificate verify failed"):
        await cri("PullImage", image=pb.ImageSpec(image=IMAGE))
    for name in ("ca.crt", "both.pem"):
        (hosts / name).write_bytes((registry / name).read_bytes())
    answer = await cri("PullImage", image=pb.ImageSpec(image=IMAGE))
    assert answer.image_ref.startswith("sha256:")
