"""How annotations make simulated containers behave."""

import pytest

from podwire.kubelet.hollow.behaviour import BadAnnotation, Behaviour, behaviour, failing_probes
from podwire.objects import pods


def pod_of(annotations=None, owner="", init=False):
    containers = [{"name": "app", "image": "a"}, {"name": "other", "image": "b"}]
    meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations or {}}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": True}]
    spec = {"containers": containers, "initContainers": [{"name": "init", "image": "c"}] if init else []}
    return pods.read({"metadata": {key: value for key, value in meta.items() if value}, "spec": spec})


@pytest.mark.parametrize(
    ("annotations", "owner", "expected"),
    [
        pytest.param({}, "", Behaviour(), id="runs for ever"),
        pytest.param({}, "ReplicaSet", Behaviour(), id="so do those of a ReplicaSet"),
        pytest.param({}, "Job", Behaviour(run_seconds=1.0), id="a Job ends soon"),
        pytest.param({"run-seconds": "60"}, "Job", Behaviour(run_seconds=60.0), id="or when it says"),
        pytest.param({"exit-code": "7"}, "", Behaviour(exit_code=7), id="exit code"),
        pytest.param({"exit-code": "7", "exit-code.app": "8"}, "", Behaviour(exit_code=8), id="of one container"),
        pytest.param({"exit-code.other": "8"}, "", Behaviour(), id="of another container"),
        pytest.param(
            {"start-seconds": "1.5", "stop-seconds": "2", "message": "m", "start-error": "e"},
            "",
            Behaviour(start_seconds=1.5, stop_seconds=2.0, message="m", start_error="e"),
            id="the others",
        ),
    ],
)
def test_annotations_tell_how_a_container_behaves(annotations, owner, expected):
    pod = pod_of({f"hollow.podwire.dev/{key}": value for key, value in annotations.items()}, owner)
    assert behaviour(pod, pod.spec.containers[0]) == expected


def test_init_containers_succeed_at_once_unless_named():
    pod = pod_of({"hollow.podwire.dev/exit-code": "3", "hollow.podwire.dev/run-seconds": "9"}, init=True)
    assert behaviour(pod, pod.spec.init_containers[0]) == Behaviour(run_seconds=0.0)
    pod = pod_of({"hollow.podwire.dev/exit-code.init": "3"}, init=True)
    assert behaviour(pod, pod.spec.init_containers[0]) == Behaviour(run_seconds=0.0, exit_code=3)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("run-seconds", "soon", "must be a number of seconds"),
        ("run-seconds", "-1", "must be a number of seconds"),
        ("start-seconds", "nan", "must be a number of seconds"),
        ("stop-seconds", "1e99", "must be a number of seconds"),
        ("exit-code", "256", "must be a number from 0 to 255"),
        ("exit-code", "x", "must be a number from 0 to 255"),
    ],
)
def test_an_error_names_the_annotation(key, value, expected):
    pod = pod_of({f"hollow.podwire.dev/{key}": value})
    with pytest.raises(BadAnnotation, match=f"annotation hollow.podwire.dev/{key}: '{value}' {expected}"):
        behaviour(pod, pod.spec.containers[0])


def test_failing_probes_are_named_by_type():
    pod = pod_of({"hollow.podwire.dev/failing-probes": "Readiness, liveness"})
    assert failing_probes(pod, pod.spec.containers[0]) == {"readiness", "liveness"}
    assert failing_probes(pod_of(), pod.spec.containers[0]) == frozenset()
