"""Image pull policies and their events; the runtime is a stand-in that speaks CRI's messages."""

import asyncio
import base64
import json

import pytest

from podwire.kubelet.images.puller import ImageError, ImagePuller
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, Unavailable

NAME = "registry.test/app:1"
WORDS = "not on this node"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Runtime:
    """Has images, can pull some, and remembers what it was asked. `gate` holds pulls back while it is closed."""

    def __init__(self, clock: Clock) -> None:
        self.here: dict[str, pb.Image] = {}
        self.registry: dict[str, pb.Image] = {}
        self.password = ""
        self.seconds = 0.0
        self.trouble: Exception | None = None
        self.pulls: list[pb.PullImageRequest] = []
        self.statuses: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.knocked = asyncio.Event()
        self._clock = clock

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own
        if method is methods.IMAGE_STATUS:
            return self._status(request.image.image)
        assert method is methods.PULL_IMAGE
        assert timeout is None, "a large image takes its time"
        self.pulls.append(request)
        self.knocked.set()
        await self.gate.wait()
        self._clock.now += self.seconds
        return self._pull(request)

    def _status(self, name):
        self.statuses.append(name)
        if self.trouble is not None:
            raise self.trouble
        return pb.ImageStatusResponse(image=self.here.get(name))

    def _pull(self, request):
        image = self.registry.get(request.image.image)
        if image is None or request.auth.password != self.password:
            raise NotFound(f"{request.image.image!r} is {WORDS}")
        self.here[request.image.image] = self.here[image.id] = image
        return pb.PullImageResponse(image_ref=image.id)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def runtime(clock):
    return Runtime(clock)


@pytest.fixture
def reported():
    return []


@pytest.fixture
def images(runtime, clock, reported):
    return ImagePuller(runtime, clock, lambda _pod, container, *words: reported.append((container.name, *words)))


def pod(uid="uid-1", image=NAME, policy="IfNotPresent", **more):
    container = {"name": "main", "image": image, "imagePullPolicy": policy}
    about = {"name": "web", "namespace": "shop", "uid": uid, **more}
    return pods.read({"metadata": about, "spec": {"containers": [container]}})


async def ensure(images, asked, **more):
    return await images.ensure(asked, asked.spec.containers[0], **more)


async def refused(images, asked, **more) -> ImageError:
    with pytest.raises(ImageError) as raised:
        await ensure(images, asked, **more)
    return raised.value


APP = pb.Image(id="sha256:1", size=1234, username="bob")


async def test_an_image_that_is_here_is_not_pulled(images, runtime, reported):
    runtime.here[NAME] = APP
    assert await ensure(images, pod()) == APP
    assert runtime.pulls == []
    assert reported == [("main", "Normal", "Pulled", f'Container image "{NAME}" already present on machine')]


async def test_a_missing_image_is_pulled_and_the_event_has_the_duration(images, runtime, reported):
    runtime.registry[NAME], runtime.seconds = APP, 1.5
    assert await ensure(images, pod(annotations={"owner": "ops"})) == APP
    assert [pull.image.image for pull in runtime.pulls] == [NAME]
    assert dict(runtime.pulls[0].image.annotations) == {"owner": "ops"}
    assert [item[1:] for item in reported] == [
        ("Normal", "Pulling", f'Pulling image "{NAME}"'),
        (
            "Normal",
            "Pulled",
            f'Successfully pulled image "{NAME}" in 1.5s (1.5s including waiting). Image size: 1234 bytes.',
        ),
    ]


async def test_policy_always_pulls_an_image_that_is_present(images, runtime):
    runtime.here[NAME] = pb.Image(id="sha256:old")
    runtime.registry[NAME] = APP
    assert await ensure(images, pod(policy="Always")) == APP
    assert (len(runtime.pulls), runtime.statuses) == (1, ["sha256:1"])


async def test_never_never_pulls_but_looks_again(images, runtime, clock, reported):
    error = await refused(images, pod(policy="Never"))
    words = f'Container image "{NAME}" is not present with pull policy of Never'
    assert (error.reason, str(error), error.retry_at) == ("ErrImageNeverPull", words, clock.now + 10)
    assert runtime.pulls == []
    assert [item[1:] for item in reported] == [
        ("Warning", "ErrImageNeverPull", words),
        ("Warning", "Failed", "Error: ErrImageNeverPull"),
    ]
    runtime.here[NAME] = APP
    assert await ensure(images, pod(policy="Never")) == APP


@pytest.mark.parametrize(("name", "pulled"), [("app", True), ("app:latest", True), ("app:1", False)])
async def test_without_a_policy_the_latest_is_pulled_and_others_if_they_are_missing(images, runtime, name, pulled):
    asked = "app:latest" if name == "app" else name
    runtime.here[asked] = runtime.registry[asked] = APP
    await ensure(images, pod(image=name, policy=""))
    assert bool(runtime.pulls) == pulled


async def test_a_name_that_is_none_is_refused_for_good(images, reported):
    error = await refused(images, pod(image="Not a name"))
    assert (error.reason, error.retry_at) == ("InvalidImageName", None)
    assert str(error) == (
        'Failed to apply default image tag "Not a name": couldn\'t parse image name "Not a name": '
        "invalid reference format: repository name (library/Not a name) must be lowercase"
    )
    assert [item[2] for item in reported] == ["InspectFailed", "Failed"]


async def test_a_failed_image_status_is_retried_later(images, runtime, clock, reported):
    runtime.trouble = Unavailable("nobody there")
    error = await refused(images, pod())
    assert (error.reason, str(error)) == ("ImageInspectError", f'Failed to inspect image "{NAME}": nobody there')
    assert error.retry_at == clock.now + 10
    assert reported[0][1:] == ("Warning", "InspectFailed", str(error))


async def test_a_failed_pull_is_reported_verbatim_and_backs_off(images, runtime, clock, reported):
    error = await refused(images, pod())
    words = f"'{NAME}' is {WORDS}"
    assert (error.reason, str(error)) == ("ErrImagePull", words)
    clock.now = error.retry_at
    waiting = await refused(images, pod())
    assert (waiting.reason, waiting.retry_at) == ("ImagePullBackOff", 1010.0)
    assert str(waiting) == f'Back-off pulling image "{NAME}": ErrImagePull: {words}'
    assert [item[1:] for item in reported] == [
        ("Normal", "Pulling", f'Pulling image "{NAME}"'),
        ("Warning", "Failed", f'Failed to pull image "{NAME}": {words}'),
        ("Warning", "Failed", "Error: ErrImagePull"),
        ("Normal", "BackOff", f'Back-off pulling image "{NAME}"'),
        ("Warning", "Failed", "Error: ImagePullBackOff"),
    ]
    assert len(runtime.pulls) == 1


async def failed(images, clock) -> float:
    """The pause after a pull that fails."""
    assert (await refused(images, pod(policy="Always"))).reason == "ErrImagePull"
    pause = (await refused(images, pod(policy="Always"))).retry_at - clock.now
    clock.now += pause
    return pause


async def test_pauses_double_and_are_forgotten_after_a_success_or_a_quiet_time(images, runtime, clock):
    assert [await failed(images, clock) for _ in range(7)] == [10, 20, 40, 80, 160, 300, 300]
    clock.now += 301
    assert await failed(images, clock) == 10
    assert await failed(images, clock) == 20
    runtime.registry[NAME] = APP
    await ensure(images, pod())
    runtime.registry.clear()
    assert await failed(images, clock) == 10


async def test_in_a_long_pause_an_image_that_may_have_been_imported_is_looked_for(images, runtime, clock):
    for _ in range(4):
        await failed(images, clock)
    await refused(images, pod())
    error = await refused(images, pod())
    assert (error.reason, error.retry_at) == ("ImagePullBackOff", clock.now + 10)
    assert (await refused(images, pod(policy="Always"))).retry_at == clock.now + 160
    runtime.here[NAME] = APP
    assert await ensure(images, pod()) == APP


async def test_each_pod_waits_for_itself(images):
    await refused(images, pod())
    assert (await refused(images, pod("uid-2"))).reason == "ErrImagePull"


async def test_pods_that_want_the_same_share_one_pull(images, runtime, reported):
    runtime.registry[NAME] = APP
    runtime.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(ensure(images, pod(f"uid-{number}"))) for number in range(5)]
        await runtime.knocked.wait()
        runtime.gate.set()
    assert [item.result() for item in waiting] == [APP] * 5
    assert len(runtime.pulls) == 1
    assert [item[2] for item in reported].count("Pulled") == 5


async def test_pods_that_share_a_pull_share_its_failure(images, runtime):
    runtime.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(refused(images, pod(f"uid-{number}"))) for number in range(3)]
        await runtime.knocked.wait()
        runtime.gate.set()
    assert {(item.result().reason, str(item.result())) for item in waiting} == {
        ("ErrImagePull", f"'{NAME}' is {WORDS}")
    }
    assert len(runtime.pulls) == 1


async def test_when_the_pod_that_pulls_goes_away_the_next_one_pulls(images, runtime):
    runtime.registry[NAME] = APP
    runtime.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ensure(images, pod("uid-1")))
        await runtime.knocked.wait()
        second = tasks.create_task(ensure(images, pod("uid-2")))
        await asyncio.sleep(0)
        runtime.knocked.clear()
        first.cancel()
        await runtime.knocked.wait()
        runtime.gate.set()
    assert first.cancelled()
    assert second.result() == APP
    assert len(runtime.pulls) == 2


def login(registry, name, password):
    auths = {registry: {"username": name, "password": password}}
    data = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return {
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": data},
    }


async def test_logins_are_tried_one_after_the_other(images, runtime):
    runtime.registry[NAME], runtime.password = APP, "right"
    secrets = [login("registry.test", "ann", "wrong"), login("registry.test", "bob", "right")]
    assert await ensure(images, pod(), pull_secrets=[*secrets, login("elsewhere.test", "eve", "right")]) == APP
    assert [pull.auth.username for pull in runtime.pulls] == ["ann", "bob"]


async def test_when_all_credentials_fail_all_errors_are_reported(images, runtime):
    runtime.password = "right"
    secrets = [login("registry.test", "ann", "wrong"), login("registry.test", "bob", "worse")]
    error = await refused(images, pod(), pull_secrets=secrets)
    assert str(error) == f"['{NAME}' is {WORDS}, '{NAME}' is {WORDS}]"


async def test_pulls_with_and_without_credentials_are_separate(images, runtime):
    runtime.registry[NAME], runtime.password = APP, "right"
    runtime.gate.clear()
    secrets = [login("registry.test", "bob", "right")]
    async with asyncio.TaskGroup() as tasks:
        allowed = tasks.create_task(ensure(images, pod("uid-1", policy="Always"), pull_secrets=secrets))
        denied = tasks.create_task(refused(images, pod("uid-2", policy="Always")))
        await runtime.knocked.wait()
        runtime.gate.set()
    assert allowed.result() == APP
    assert denied.result().reason == "ErrImagePull"


async def test_a_damaged_secret_is_a_failed_pull(images, runtime):
    damaged = {**login("registry.test", "bob", "x"), "data": {".dockerconfigjson": "e"}}
    error = await refused(images, pod(), pull_secrets=[damaged])
    assert (error.reason, str(error)) == ("ErrImagePull", "secret bob: .dockerconfigjson is not a list of logins")
    assert runtime.pulls == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0s"), (0.1234, "123ms"), (1.0, "1s"), (12.34, "12.34s"), (60.0, "1m0s"), (3723.5, "1h2m3.5s")],
)
async def test_durations_are_printed_as_go_does(images, runtime, reported, seconds, shown):
    runtime.registry[NAME], runtime.seconds = APP, seconds
    await ensure(images, pod())
    assert f" in {shown} ({shown} including waiting)." in reported[-1][-1]
