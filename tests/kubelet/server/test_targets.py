import pytest

from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.server import targets
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.status import ApiError

RUNS, ENDED, MADE = pb.CONTAINER_RUNNING, pb.CONTAINER_EXITED, pb.CONTAINER_CREATED


def waiting(reason):
    return {"name": "main", "state": {"waiting": {"reason": reason}}}


@pytest.fixture
def observed(seen):
    """Runs of the container, the newest first."""

    def make(*states):
        return ObservedPod(
            containers=tuple(seen(each, attempt=len(states) - 1 - place) for place, each in enumerate(states))
        )

    return make


@pytest.mark.parametrize(
    ("states", "status", "previous", "found"),
    [
        pytest.param([RUNS], {}, False, 0, id="it runs"),
        pytest.param([RUNS, ENDED], {}, False, 1, id="it runs again"),
        pytest.param([RUNS, ENDED], {}, True, 0, id="its run before"),
        pytest.param([ENDED], {}, False, 0, id="it has ended"),
        pytest.param([ENDED, ENDED], {}, True, 0, id="the run before the one that ended"),
        pytest.param([ENDED, ENDED], waiting("CrashLoopBackOff"), True, 1, id="it waits: the last run is the previous"),
        pytest.param(
            [ENDED, ENDED], waiting("CrashLoopBackOff"), False, 1, id="it waits: the last run is all there is"
        ),
        pytest.param([MADE, ENDED], {}, False, 0, id="the next one is only made"),
    ],
)
def test_the_requested_instance_of_a_container_is_chosen(pod, observed, states, status, previous, found):
    container = targets.to_read(pods.read(pod()), observed(*states), "main", status, previous=previous)
    assert container.attempt == found


@pytest.mark.parametrize(
    ("states", "status", "previous", "why"),
    [
        ([], {}, False, 'container "main" in pod "web" is waiting to start: ContainerCreating'),
        ([MADE], {}, False, 'container "main" in pod "web" is waiting to start: ContainerCreating'),
        ([], waiting("ErrImagePull"), False, "is waiting to start: image can't be pulled"),
        ([], waiting("ImagePullBackOff"), False, "is waiting to start: trying and failing to pull image"),
        ([], waiting("CreateContainerConfigError"), False, "is waiting to start: CreateContainerConfigError"),
        ([RUNS], {}, True, 'previous terminated container "main" in pod "web" not found'),
        ([ENDED], {}, True, 'previous terminated container "main" in pod "web" not found'),
    ],
)
def test_the_reason_of_a_missing_log_is_reported(pod, observed, states, status, previous, why):
    with pytest.raises(ApiError) as raised:
        targets.to_read(pods.read(pod()), observed(*states), "main", status, previous=previous)
    assert raised.value.code == 400
    assert why in raised.value.message


def test_a_container_behind_init_containers_is_initializing(pod, observed):
    made = pods.read(pod(init=["first"]))
    with pytest.raises(ApiError, match="waiting to start: PodInitializing"):
        targets.to_read(made, observed(), "main", {}, previous=False)
    with pytest.raises(ApiError, match="waiting to start: ContainerCreating"):
        targets.to_read(made, observed(), "first", {}, previous=False)


def test_a_container_that_the_pod_does_not_have(pod, observed):
    with pytest.raises(ApiError, match='container "other" not found in pod "web"') as raised:
        targets.to_read(pods.read(pod()), observed(RUNS), "other", {}, previous=False)
    assert raised.value.code == 404


@pytest.mark.parametrize(
    ("states", "why"),
    [([], r'container not found \("main"\)'), ([MADE], "container not found"), ([ENDED, RUNS], "has ended")],
)
def test_exec_needs_a_running_container(pod, observed, states, why):
    with pytest.raises(ApiError, match=why) as raised:
        targets.to_enter(pods.read(pod()), observed(*states), "main")
    assert raised.value.code == 500


def test_the_newest_run_is_entered(pod, observed):
    assert targets.to_enter(pods.read(pod()), observed(RUNS, ENDED), "main").attempt == 1


def test_a_status_is_found_wherever_it_is(pod):
    status = {"name": "first", "ready": True}
    assert targets.status_of({"status": {"initContainerStatuses": [status]}}, "first") == status
    assert targets.status_of({"status": {"containerStatuses": None}}, "first") == {}
    assert targets.status_of({}, "first") == {}
