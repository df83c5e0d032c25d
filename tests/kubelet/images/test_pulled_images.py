"""Access to images that a kubelet pulled."""

import asyncio
import base64
import json

import pytest

from podwire.kubelet.images.pulled_images import PulledImages, PullSecret
from podwire.kubelet.images.puller import ImageError, ImagePuller
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import PermissionDenied
from podwire.transports.clock import SystemClock

NAME, REPOSITORY = "r.test/app:1", "r.test/app"
ONE = PullSecret("1", "default", "one", "login-a")
ROTATED = PullSecret("1", "default", "one", "login-b")
COPY = PullSecret("2", "other", "copy", "login-a")
OTHER = PullSecret("3", "other", "other", "login-c")


@pytest.fixture
def pulled(tmp_path):
    return PulledImages(tmp_path)


@pytest.mark.parametrize(
    ("secret", "asked", "allowed"),
    [
        pytest.param(None, [], True, id="pulled without a login"),
        pytest.param(ONE, [ONE], True, id="with the same secret"),
        pytest.param(ONE, [ROTATED], True, id="with the same secret, whose login was changed"),
        pytest.param(ONE, [OTHER, COPY], True, id="with the same login in another secret"),
        pytest.param(ONE, [OTHER], False, id="with another login"),
        pytest.param(ONE, [], False, id="without a login"),
    ],
)
def test_a_present_image_is_for_pods_that_could_pull_it(pulled, tmp_path, secret, asked, allowed):
    pulled.begin(NAME)
    pulled.succeeded(NAME, REPOSITORY, "id", secret)
    assert pulled.may_use(NAME, REPOSITORY, "id", asked) is allowed
    assert pulled.may_use("r.test/else:1", "r.test/else", "id", asked) is False  # the same content by another name
    restarted = PulledImages(tmp_path)
    restarted.load()
    assert restarted.may_use(NAME, REPOSITORY, "id", asked) is allowed


def test_an_image_that_the_kubelet_did_not_pull_is_for_everyone(pulled):
    assert pulled.may_use(NAME, REPOSITORY, "id", [])
    pulled.begin(NAME)
    assert not pulled.may_use(NAME, REPOSITORY, "id", [])
    pulled.failed(NAME)
    assert pulled.may_use(NAME, REPOSITORY, "id", [])


def test_after_a_crash_during_a_pull_the_image_must_be_pulled_again(pulled, tmp_path):
    pulled.begin(NAME)
    restarted = PulledImages(tmp_path)
    restarted.load()
    assert not restarted.may_use(NAME, REPOSITORY, "id", [])
    restarted.begin(NAME)
    restarted.failed(NAME)
    assert not restarted.may_use(NAME, REPOSITORY, "id", [])
    restarted.begin(NAME)
    restarted.succeeded(NAME, REPOSITORY, "id", None)
    again = PulledImages(tmp_path)
    again.load()
    assert again.may_use(NAME, REPOSITORY, "id", [])


def test_a_damaged_record_is_reported_and_the_image_counts_as_preloaded(pulled, tmp_path):
    pulled.begin(NAME)
    pulled.succeeded(NAME, REPOSITORY, "id", ONE)
    [file] = (tmp_path / "pulled").iterdir()
    file.write_text("?")
    problems = []
    restarted = PulledImages(tmp_path, problems.append)
    restarted.load()
    assert len(problems) == 1
    assert restarted.may_use(NAME, REPOSITORY, "id", [])


class Runtime:
    """Has the image, and pulls it with one password only."""

    def __init__(self) -> None:
        self.pulls = 0

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own
        if method is methods.IMAGE_STATUS:
            return pb.ImageStatusResponse(image=pb.Image(id="id", size=1))
        self.pulls += 1
        if request.auth.password != "secret":
            raise PermissionDenied("401: credentials are needed")
        return pb.PullImageResponse(image_ref="id")


def secret(password):
    data = {"auths": {"r.test": {"auth": base64.b64encode(f"ann:{password}".encode()).decode()}}}
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    metadata = {"name": password, "namespace": "default", "uid": password}
    return {"metadata": metadata, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": encoded}}


async def test_a_pod_without_the_secret_pulls_itself_and_is_refused(pulled):
    runtime, events = Runtime(), []
    puller = ImagePuller(runtime, SystemClock(), lambda _pod, _container, *words: events.append(words), pulled=pulled)

    async def ensure(policy, *secrets):
        container = {"name": "main", "image": NAME, "imagePullPolicy": policy}
        about = {"name": "web", "namespace": "default", "uid": f"uid-{len(events)}"}
        pod = pods.read({"metadata": about, "spec": {"containers": [container]}})
        await puller.ensure(pod, pod.spec.containers[0], pull_secrets=secrets)

    await ensure("Always", secret("secret"))
    await ensure("IfNotPresent", secret("secret"))
    assert events[-1][2] == f'Container image "{NAME}" already present on machine and can be accessed by the pod'
    assert runtime.pulls == 1
    with pytest.raises(ImageError, match="401"):
        await ensure("IfNotPresent")
    assert runtime.pulls == 2
    with pytest.raises(ImageError) as raised:
        await ensure("Never")
    assert raised.value.reason == "ErrImageNeverPull"
    assert str(raised.value) == f'Container image "{NAME}" is not present with pull policy of Never'
    await asyncio.gather(*[ensure("IfNotPresent", secret("secret")) for _ in range(3)])
    assert runtime.pulls == 2
