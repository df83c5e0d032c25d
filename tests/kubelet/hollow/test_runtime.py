"""The container runtime in memory."""

import pytest

from podwire.kubelet.hollow.behaviour import Behaviour
from podwire.kubelet.hollow.runtime import SimulatedPod, first_free
from podwire.objects import pods
from podwire.objects.containers import Container

APP = Container(name="app", image="busybox")


@pytest.fixture
def simulated():
    pod = SimulatedPod("uid", lambda: 1_800_000_000.0)
    pod.run_sandbox(0, ("10.128.0.1",), host_network=False)
    return pod


def ended(pod):
    return [(container.name, container.exit_code, container.reason) for container in pod.observed.containers
            if container.exited]  # fmt: skip


def test_a_container_runs_until_its_time_has_come(simulated):
    simulated.start(APP, 0, Behaviour(run_seconds=5.0, exit_code=3), now=100.0)
    assert simulated.next_change == 105.0
    simulated.advance(104.9)
    assert [container.name for container in simulated.observed.running] == ["app"]
    simulated.advance(105.0)
    assert ended(simulated) == [("app", 3, "Error")]
    assert simulated.next_change is None


@pytest.mark.parametrize(
    ("stop_seconds", "graces", "at", "code"),
    [
        pytest.param(0.0, (30,), 100.0, 143, id="at once"),
        pytest.param(5.0, (30,), 105.0, 143, id="within the grace period"),
        pytest.param(60.0, (30,), 130.0, 137, id="killed after it"),
        pytest.param(60.0, (30, 10), 110.0, 137, id="the grace period is shortened"),
        pytest.param(60.0, (10, 30), 110.0, 137, id="and never extended"),
    ],
)
def test_a_container_stops_within_its_grace_period(simulated, stop_seconds, graces, at, code):
    script = Behaviour(stop_seconds=stop_seconds)
    simulated.start(APP, 0, script, now=90.0)
    [container] = simulated.observed.running
    for grace in graces:
        simulated.stop(container.id, script, grace, now=100.0)
    assert simulated.next_change == at
    simulated.advance(at)
    assert ended(simulated) == [("app", code, "Error")]


def test_a_container_that_would_exit_earlier_by_itself_does(simulated):
    script = Behaviour(run_seconds=1.0, stop_seconds=20.0)
    simulated.start(APP, 0, script, now=100.0)
    simulated.stop(simulated.observed.running[0].id, script, 30, now=100.5)
    simulated.advance(101.0)
    assert ended(simulated) == [("app", 0, "Completed")]


def test_a_stopped_sandbox_has_no_running_container(simulated):
    simulated.start(APP, 0, Behaviour(), now=100.0)
    sandbox = simulated.observed.sandbox
    simulated.stop_sandbox(sandbox.id)
    assert not simulated.observed.sandbox.ready
    assert ended(simulated) == [("app", 137, "Error")]
    for member in (*simulated.observed.sandboxes, *simulated.observed.containers):
        simulated.remove(member.id)
    assert not simulated.observed.sandboxes
    assert not simulated.observed.containers


def test_containers_that_an_earlier_process_has_reported_go_on():
    states = {
        "app": {"running": {"startedAt": "2027-01-15T07:59:00Z"}},
        "done": {"terminated": {"startedAt": "2027-01-15T07:59:00Z", "exitCode": 4}},
        "waits": {"waiting": {"reason": "ContainerCreating"}},
    }  # fmt: skip
    reports = [
        {"name": name, "state": state, "restartCount": 2, **({} if name == "waits" else {"containerID": f"hollow://{name}"})}
        for name, state in states.items()
    ]  # fmt: skip
    pod = pods.read(
        {
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"containers": [{"name": name, "image": "i"} for name in states]},
            "status": {"phase": "Running", "containerStatuses": reports},
        }
    )
    adopted = SimulatedPod("u", lambda: 1_800_000_000.0)
    adopted.adopt(pod, ("10.128.0.1",), lambda _: Behaviour(run_seconds=90.0), now=500.0)
    assert [(container.id, container.attempt) for container in adopted.observed.running] == [("app", 2)]
    assert ended(adopted) == [("done", 4, "")]
    assert adopted.next_change == 530.0


def test_the_smallest_free_number_is_taken():
    assert first_free([0, 1, 3], 5) == 2
    assert first_free(range(5), 5) is None
