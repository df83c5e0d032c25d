"""A container as the API shows it: running, waiting, ended, ended before, lost."""

import pytest

from podwire.kubelet.pods.container_status import LOST, StatusInputs, container_status, terminated, uninitialized
from podwire.kubelet.pods.observed import NOTHING, ObservedContainer, ObservedPod, Sandbox, newest_first
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb

NOW = "2026-01-01T00:00:00Z"
SECOND = 1_000_000_000
BOX = Sandbox(id="box", ready=True)


def pod(*apps, init=(), status=None, **spec):
    inits = [{"name": item, **({"restartPolicy": "Always"} if item.startswith("s") else {})} for item in init]
    containers = [{"name": app, "image": "busybox"} for app in apps or ("a",)]
    return pods.read(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": containers, "initContainers": inits, **spec},
            "status": status or {},
        }
    )


def one(name, state, attempt=0, **more):
    more = {"started_at": SECOND, "finished_at": 2 * SECOND if state == "EXITED" else 0, **more}
    state = pb.ContainerState.Value(f"CONTAINER_{state}")
    return ObservedContainer(id=f"{name}{attempt}", name=name, sandbox="box", state=state, attempt=attempt, **more)


def seen(*containers) -> ObservedPod:
    return newest_first([BOX], containers)


def view(**more):
    return StatusInputs(now=NOW, **more)


def shown(observed, of=None, name="a", **more):
    of = of or pod()
    container = next(item for item in of.spec.every_container if item.name == name)
    return container_status(of, container, observed, view(**more))


def test_a_running_container():
    status = shown(
        seen(one("a", "RUNNING", image="podwire.local/busybox:1", image_ref="sha256:1")),
        ready=frozenset({"a0"}),
        started=frozenset({"a0"}),
        runtime="cri-o",
    )
    assert status == {
        "name": "a",
        "state": {"running": {"startedAt": "1970-01-01T00:00:01Z"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": "podwire.local/busybox:1",
        "imageID": "sha256:1",
        "containerID": "cri-o://a0",
        "started": True,
        "resources": {},
    }


def test_the_user_is_reported_if_the_runtime_reports_it():
    who = {"uid": 7, "gid": 8, "supplementalGroups": [8]}
    assert shown(seen(one("a", "RUNNING", user=who)))["user"] == {"linux": who}
    assert "user" not in shown(seen(one("a", "RUNNING")))


@pytest.mark.parametrize(
    ("running", "ready", "started", "reported"),
    [
        pytest.param("RUNNING", "a0", "a0", (True, True), id="both probes are content"),
        pytest.param("RUNNING", "", "a0", (False, True), id="not ready"),
        pytest.param("RUNNING", "", "", (False, False), id="not started"),
        pytest.param("EXITED", "a0", "a0", (False, False), id="ended since"),
    ],
)
def test_probes_decide_on_ready_and_started(running, ready, started, reported):
    status = shown(seen(one("a", running)), ready=frozenset({ready}), started=frozenset({started}))
    assert (status["ready"], status["started"]) == reported


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        pytest.param({}, {"exitCode": 0, "reason": "Completed"}, id="done"),
        pytest.param({"exit_code": 3}, {"exitCode": 3, "reason": "Error"}, id="failed"),
        pytest.param({"exit_code": 137, "reason": "OOMKilled"}, {"exitCode": 137, "reason": "OOMKilled"}, id="killed"),
        pytest.param(
            {"exit_code": 128, "reason": "StartError", "message": "no such file"},
            {"exitCode": 128, "reason": "StartError", "message": "no such file"},
            id="never started",
        ),
    ],
)
def test_an_ended_container(fields, reported):
    times = {"startedAt": "1970-01-01T00:00:01Z", "finishedAt": "1970-01-01T00:00:02Z", "containerID": "podwire://a0"}
    assert terminated(one("a", "EXITED", **fields), view()) == {**times, **reported}


def test_a_container_that_never_started_has_no_times():
    result = terminated(one("a", "EXITED", started_at=0, finished_at=0), view())
    assert result.keys() == {"exitCode", "reason", "containerID"}


def test_its_last_words_go_before_the_runtimes_message():
    ended = one("a", "EXITED", exit_code=1, message="from the runtime")
    assert terminated(ended, view(messages={"a0": "from itself"}))["message"] == "from itself"
    assert terminated(ended, view(messages={"a0": ""}))["message"] == "from the runtime"


def test_an_end_stays_shown_as_the_state_until_it_is_known_that_it_starts_again():
    status = shown(seen(one("a", "EXITED", exit_code=1)))
    assert status["state"]["terminated"]["exitCode"] == 1
    assert status["lastState"] == {}


def test_in_a_crash_loop_last_state_is_the_previous_instance():
    why = ("CrashLoopBackOff", "back-off 10s restarting failed container=a")
    before, latest = one("a", "EXITED", exit_code=1), one("a", "EXITED", 1, exit_code=2)
    status = shown(seen(before, latest), waiting={"a": why})
    assert status["state"] == {"waiting": {"reason": why[0], "message": why[1]}}
    assert status["lastState"]["terminated"]["exitCode"] == 2
    assert status["restartCount"] == 1


def test_of_a_container_that_was_restarted_the_end_before_is_shown():
    status = shown(seen(one("a", "EXITED", exit_code=7), one("a", "RUNNING", 1)))
    assert "running" in status["state"]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["restartCount"] == 1


@pytest.mark.parametrize(
    ("waiting", "reported"),
    [
        pytest.param({}, {"reason": "ContainerCreating"}, id="being made"),
        pytest.param(
            {"a": ("RunContainerError", "no such file")},
            {"reason": "RunContainerError", "message": "no such file"},
            id="it could not be started",
        ),
    ],
)
def test_a_container_that_was_made_but_does_not_run(waiting, reported):
    assert shown(seen(one("a", "CREATED")), waiting=waiting)["state"] == {"waiting": reported}


@pytest.mark.parametrize(
    ("of", "observed", "name", "reason"),
    [
        pytest.param(pod(), NOTHING, "a", "ContainerCreating", id="an app"),
        pytest.param(pod(init=("i",)), NOTHING, "i", "PodInitializing", id="an init container"),
        pytest.param(pod(init=("i",)), NOTHING, "a", "PodInitializing", id="an app behind an init container"),
        pytest.param(pod(init=("i",)), seen(one("i", "RUNNING")), "a", "PodInitializing", id="an app while that runs"),
        pytest.param(
            pod(init=("i",)), seen(one("i", "EXITED")), "a", "ContainerCreating", id="an app when that is through"
        ),
        pytest.param(
            pod(init=("i",)),
            seen(one("i", "EXITED", exit_code=1)),
            "a",
            "PodInitializing",
            id="an app when that failed",
        ),
    ],
)
def test_the_waiting_reason_follows_init_containers(of, observed, name, reason):
    status = shown(observed, of, name)
    assert status["state"] == {"waiting": {"reason": reason}}
    assert (status["ready"], status["started"], status["restartCount"]) == (False, False, 0)
    assert "containerID" not in status


def test_the_reason_of_a_failed_start_is_reported():
    status = shown(seen(), waiting={"a": ("ErrImagePull", "no such image")})
    assert status["state"] == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


@pytest.mark.parametrize(
    ("containers", "started", "names"),
    [
        pytest.param([], "", ["i", "s"], id="nothing yet"),
        pytest.param([one("i", "RUNNING")], "i0", ["i", "s"], id="the first runs"),
        pytest.param([one("i", "EXITED", exit_code=1)], "", ["i", "s"], id="the first failed"),
        pytest.param([one("i", "EXITED")], "", ["s"], id="the first is done"),
        pytest.param([one("i", "EXITED"), one("s", "RUNNING")], "", ["s"], id="the sidecar starts"),
        pytest.param([one("i", "EXITED"), one("s", "RUNNING")], "s0", [], id="the sidecar has started"),
        pytest.param([one("a", "RUNNING")], "a0", [], id="the app would not run otherwise"),
    ],
)
def test_which_init_containers_are_not_through(containers, started, names):
    result = view(started=frozenset(started.split()))
    assert uninitialized(pod(init=("i", "s")), seen(*containers), result) == names


@pytest.mark.parametrize(("code", "ready"), [pytest.param(0, True, id="done"), pytest.param(1, False, id="failed")])
def test_an_init_container_is_ready_when_it_has_done_its_work(code, ready):
    status = shown(seen(one("i", "EXITED", exit_code=code)), pod(init=("i",)), "i")
    assert status["ready"] is ready


@pytest.mark.parametrize("ready", [True, False])
def test_a_sidecar_is_ready_when_its_probe_succeeds(ready):
    ids = frozenset({"s0"} if ready else ())
    assert shown(seen(one("s", "RUNNING")), pod(init=("s",)), "s", ready=ids)["ready"] is ready


def pod_with_status(**state):
    """A pod whose container has this status in the API."""
    return pod(status={"containerStatuses": [{"name": "a", "restartCount": 2, "containerID": "podwire://x", **state}]})


def test_an_end_that_the_runtime_has_forgotten_stays_known():
    of = pod_with_status(state={"terminated": {"exitCode": 5}}, lastState={})
    assert shown(NOTHING, of) == of.status.container_statuses[0]


def test_a_lost_container_is_reported_as_terminated():
    status = shown(NOTHING, pod_with_status(state={"running": {}}, lastState={}))
    assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert status["lastState"] == {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": LOST}}
    assert status["restartCount"] == 3


def test_a_known_last_state_is_kept():
    last = {"terminated": {"exitCode": 9}}
    assert shown(NOTHING, pod_with_status(state={"running": {}}, lastState=last))["lastState"] == last
