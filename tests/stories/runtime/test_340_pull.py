"""Images from a real registry: Debian's docker-registry with a password, on loopback of the runtime's own namespace."""

import base64
import json
import os
import shutil
import subprocess

import pytest

from podwire.kubelet.images.puller import ImageError, ImagePuller
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.images import build
from podwire.transports import grpc_client
from podwire.transports.clock import SystemClock
from tests.eventually import eventually
from tests.stories.runtime.support import PODWIRE

HOST = "127.0.0.1:5000"
IMAGE = f"{HOST}/team/busybox:1"
HASHED = "ann:$2b$05$CEpWAce67WKsPPDzccrUKupBzhIRrGRQoyB9ZjAroUwlFXO5vn9u."
"""The password `secret`, as docker-registry wants it."""


class Registry:
    """docker-registry in the namespaces of a runtime. Its data outlives a kill."""

    def __init__(self, runtime, directory) -> None:
        self._runtime = runtime
        self._child = None
        self.log = directory / "log"
        self.config = directory / "config.yml"
        (directory / "users").write_text(HASHED + "\n")
        self.config.write_text(
            json.dumps(
                {
                    "version": 0.1,
                    "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
                    "http": {"addr": HOST},
                    "auth": {"htpasswd": {"realm": "story", "path": str(directory / "users")}},
                }
            )
        )

    def start(self) -> None:
        words = self._runtime.space.command("docker-registry", "serve", self.config)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(words, stdout=log, stderr=log)
        asks = f"echo | busybox nc -w 1 {HOST.replace(':', ' ')}"
        command = self._runtime.space.command("sh", "-c", asks)
        eventually(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, 20)

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def push(self, archive) -> None:
        words = ["skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "--dest-creds", "ann:secret"]
        self._runtime.space.output(*words, f"oci-archive:{archive}", f"docker://{IMAGE}")


@pytest.fixture(scope="module")
def registry(shared, tmp_path_factory):
    directory = tmp_path_factory.mktemp("registry")
    registry = Registry(shared, directory)
    try:
        registry.start()
        build.archive_root(directory / "busybox.tar", IMAGE, build.BUSYBOX, ["sh", "-l"])
        registry.push(directory / "busybox.tar")
        yield registry
    finally:
        registry.stop()


@pytest.fixture
async def puller(shared):
    events = []
    async with grpc_client.connect(shared.socket) as client:
        yield ImagePuller(client, SystemClock(), lambda _pod, _container, *words: events.append(words)), events


def pod(policy="Always"):
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": policy}
    about = {"name": "web", "namespace": "default", "uid": f"uid-{os.urandom(4).hex()}"}
    return pods.read({"metadata": about, "spec": {"containers": [container]}})


def pull_secret(password):
    login = base64.b64encode(f"ann:{password}".encode()).decode()
    data = base64.b64encode(json.dumps({"auths": {HOST: {"auth": login}}}).encode()).decode()
    return {
        "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": data},
    }


async def test_01_without_its_pull_secret_a_pod_does_not_get_the_image(registry, puller):
    ensure, events = puller[0].ensure, puller[1]
    wanted = pod()
    with pytest.raises(ImageError) as raised:
        await ensure(wanted, wanted.spec.containers[0])
    assert raised.value.reason == "ErrImagePull"
    assert f"{IMAGE}: {HOST}: 401: credentials are needed" in str(raised.value)
    assert [reason for _, reason, _ in events] == ["Pulling", "Failed", "Failed"]


async def test_02_a_wrong_password_is_refused_and_not_shown(registry, puller, shared):
    wanted = pod()
    with pytest.raises(ImageError, match="401: credentials were refused") as raised:
        await puller[0].ensure(wanted, wanted.spec.containers[0], pull_secrets=[pull_secret("hunter2")])
    assert "hunter2" not in str(raised.value) + shared.log.read_text()


async def test_03_with_its_pull_secret_the_image_is_pulled(registry, puller, shared):
    wanted = pod()
    image = await puller[0].ensure(wanted, wanted.spec.containers[0], pull_secrets=[pull_secret("secret")])
    assert list(image.repo_tags) == [IMAGE]
    assert image.repo_digests[0].startswith(f"{HOST}/team/busybox@sha256:")
    pulled = puller[1][-1]
    assert pulled[:2] == ("Normal", "Pulled")
    assert pulled[2].startswith(f'Successfully pulled image "{IMAGE}" in ')
    assert pulled[2].endswith(f"Image size: {image.size} bytes.")
    assert base64.b64encode(b"ann:secret").decode() not in shared.log.read_text()


async def test_04_a_container_runs_from_it(registry, cri):
    sandbox = await cri.run()
    id_ = await cri.start(sandbox, "sleep", "1000", image=pb.ImageSpec(image=IMAGE))
    assert await cri.said(id_, "echo from the registry") == "from the registry\n"


async def test_05_the_registry_is_asked_each_time_by_the_policy_always_only(registry, puller):
    """An image that another pod pulled with its secret is not given to one that has none."""
    always, present = pod(), pod("IfNotPresent")
    with pytest.raises(ImageError, match="401"):
        await puller[0].ensure(always, always.spec.containers[0])
    await puller[0].ensure(present, present.spec.containers[0])
    assert puller[1][-1][2] == f'Container image "{IMAGE}" already present on machine'


async def test_06_a_registry_that_died_is_named(registry, puller):
    registry.stop()
    wanted = pod()
    try:
        with pytest.raises(ImageError, match="cannot connect"):
            await puller[0].ensure(wanted, wanted.spec.containers[0], pull_secrets=[pull_secret("secret")])
    finally:
        registry.start()


def test_07_the_command_line_pulls_with_the_login_of_docker(registry, shared, tmp_path):
    login = base64.b64encode(b"ann:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {HOST: {"auth": login}}}))
    prefix = tmp_path / "prefix"
    (prefix / "var/lib/podwire").mkdir(parents=True)
    words = [PODWIRE, "image", "pull", "--prefix", prefix, "--docker-config", tmp_path / "config.json", IMAGE]
    assert IMAGE in shared.space.output(*words)
    without = subprocess.run(
        shared.space.command(*words[:5], "--docker-config", "/dev/null", IMAGE),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (without.returncode, without.stdout) == (1, "")
    shutil.rmtree(prefix)
