"""The pod's row, above all its status column."""

import pytest

from podwire.kinds.builtin.core.pod import table
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.builtin import BUILTIN

NOW = 1_700_000_000.0
PODS = BUILTIN.of_kind("v1", "Pod")


def ago(seconds):
    return rfc3339(NOW - seconds)


def container(*, ready=False, restarts=0, name="c", last=None, started=None, **state):
    status = {"name": name, "ready": ready, "restartCount": restarts, "state": state}
    if last is not None:
        status["lastState"] = {"terminated": {"exitCode": 1, "finishedAt": ago(last)}}
    if started is not None:
        status["started"] = started
    return status


RUNNING = container(ready=True, running={"startedAt": ago(60)})


def pod(*containers, init=(), spec=None, metadata=None, **status):
    return {
        "metadata": {"name": "web", "creationTimestamp": ago(80)} | (metadata or {}),
        "spec": {
            "containers": [{"name": f"c{index}"} for index in range(max(len(containers), 1))],
            "initContainers": [{"name": item["name"]} for item in init],
        }
        | (spec or {}),
        "status": {"phase": "Pending", "containerStatuses": list(containers), "initContainerStatuses": list(init)}
        | status,
    }


def row(obj):
    return table.row(obj, NOW)


def test_a_running_pod_shows_all_that_wide_shows():
    obj = pod(RUNNING, phase="Running", podIPs=[{"ip": "10.0.0.7"}], podIP="10.0.0.7", spec={"nodeName": "n1"})
    assert row(obj) == ["web", "1/1", "Running", "0", "80s", "10.0.0.7", "n1", "<none>", "<none>"]


def test_a_pod_of_which_nothing_is_known_still_has_a_row():
    assert row({}) == ["", "0/0", "", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"]


def ended(code, **more):
    return {"exitCode": code, **more}


GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
INITIALIZED = {"type": "Initialized", "status": "True"}
READY = {"type": "Ready", "status": "True"}
SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "job"}]}
GONE = {"deletionTimestamp": ago(1)}


@pytest.mark.parametrize(
    ("obj", "ready", "status"),
    [
        pytest.param(pod(), "0/1", "Pending", id="not scheduled"),
        pytest.param(pod(conditions=[GATED]), "0/1", "SchedulingGated", id="held by a scheduling gate"),
        pytest.param(pod(reason="Evicted", phase="Failed"), "0/1", "Evicted", id="the pod's own reason"),
        pytest.param(
            pod(container(waiting={"reason": "ContainerCreating"})), "0/1", "ContainerCreating", id="being created"
        ),
        pytest.param(
            pod(container(waiting={"reason": "CrashLoopBackOff"}), phase="Running"),
            "0/1",
            "CrashLoopBackOff",
            id="crash loop",
        ),
        pytest.param(
            pod(container(terminated=ended(0, reason="Completed")), phase="Succeeded"), "0/1", "Completed", id="done"
        ),
        pytest.param(pod(container(terminated=ended(1, reason="Error"))), "0/1", "Error", id="failed with a reason"),
        pytest.param(pod(container(terminated=ended(137, signal=9))), "0/1", "Signal:9", id="killed"),
        pytest.param(pod(container(terminated=ended(1))), "0/1", "ExitCode:1", id="failed without a reason"),
        pytest.param(
            pod(RUNNING, container(waiting={"reason": "ImagePullBackOff"}), phase="Running"),
            "1/2",
            "ImagePullBackOff",
            id="one runs, one cannot",
        ),
        pytest.param(
            pod(container(terminated=ended(0, reason="Completed")), RUNNING, phase="Running", conditions=[READY]),
            "1/2",
            "Running",
            id="one is done, the other serves",
        ),
        pytest.param(
            pod(container(terminated=ended(0, reason="Completed")), RUNNING, phase="Running"),
            "1/2",
            "NotReady",
            id="one is done, the pod is not ready",
        ),
        pytest.param(pod(RUNNING, metadata=GONE, phase="Running"), "1/1", "Terminating", id="being deleted"),
        pytest.param(
            pod(RUNNING, metadata=GONE, phase="Running", reason="NodeLost"), "1/1", "Unknown", id="its node is lost"
        ),
        pytest.param(
            pod(container(terminated=ended(0, reason="Completed")), metadata=GONE, phase="Succeeded"),
            "0/1",
            "Completed",
            id="deleted after its end",
        ),
        pytest.param(pod(init=[container(running={})]), "0/1", "Init:0/1", id="first init container runs"),
        pytest.param(
            pod(init=[container(name="a", terminated=ended(0)), container(name="b", waiting={})]),
            "0/1",
            "Init:1/2",
            id="second init container is next",
        ),
        pytest.param(pod(init=[container(waiting={"reason": "PodInitializing"})]), "0/1", "Init:0/1", id="not begun"),
        pytest.param(
            pod(init=[container(waiting={"reason": "CrashLoopBackOff"})]),
            "0/1",
            "Init:CrashLoopBackOff",
            id="init loop",
        ),
        pytest.param(pod(init=[container(terminated=ended(1, reason="Error"))]), "0/1", "Init:Error", id="init failed"),
        pytest.param(pod(init=[container(terminated=ended(2))]), "0/1", "Init:ExitCode:2", id="init exit code"),
        pytest.param(pod(init=[container(terminated=ended(9, signal=9))]), "0/1", "Init:Signal:9", id="init signal"),
        pytest.param(
            pod(container(waiting={"reason": "PodInitializing"}), init=[container(terminated=ended(0))]),
            "0/1",
            "PodInitializing",
            id="init is done, containers are next",
        ),
        pytest.param(
            pod(RUNNING, init=[container(name="side", ready=True, started=True, running={})], spec=SIDECAR),
            "2/2",
            "Pending",
            id="a sidecar counts",
        ),
        pytest.param(
            pod(init=[container(name="side", started=False, running={})], spec=SIDECAR),
            "0/2",
            "Init:0/2",
            id="a sidecar that has not started holds the pod up",
        ),
        pytest.param(
            pod(RUNNING, init=[container(running={})], conditions=[INITIALIZED], phase="Running"),
            "1/1",
            "Init:0/1",
            id="an init container runs again after the start",
        ),
    ],
)
def test_the_status_column_shows_why_a_pod_waits_or_ended(obj, ready, status):
    assert row(obj)[1:3] == [ready, status]


@pytest.mark.parametrize(
    ("obj", "restarts"),
    [
        pytest.param(pod(container(restarts=3, running={})), "3", id="no time known"),
        pytest.param(pod(container(restarts=3, last=300, running={})), "3 (5m ago)", id="with the last end"),
        pytest.param(
            pod(container(restarts=1, last=600, running={}), container(restarts=2, last=90, running={})),
            "3 (90s ago)",
            id="sum, and the latest",
        ),
        pytest.param(pod(init=[container(restarts=4, last=20, running={})]), "4 (20s ago)", id="init containers"),
        pytest.param(
            pod(container(restarts=1, running={}), init=[container(restarts=4, last=20, terminated=ended(0))]),
            "1",
            id="init containers no longer count",
        ),
        pytest.param(
            pod(
                container(restarts=1, running={}),
                init=[container(name="side", restarts=4, last=20, started=True, running={})],
                spec=SIDECAR,
            ),
            "5 (20s ago)",
            id="sidecars go on counting",
        ),
    ],
)
def test_the_restarts_column_shows_the_time_since_the_last_restart(obj, restarts):
    assert row(obj)[3] == restarts


def test_readiness_gates_are_counted():
    gates = {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    obj = pod(spec=gates, conditions=[{"type": "a", "status": "True"}, {"type": "b", "status": "False"}])
    assert row(obj)[8] == "1/2"
