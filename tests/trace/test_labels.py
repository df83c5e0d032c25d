"""Labels of arrows: a call and its answer in few words, for every protocol."""

import pytest

from podwire.trace.labels import label_of
from podwire.trace.record import Record


def record(method, outcome="", **detail):
    return Record(id="a-1.1", seq=1, time=1.0, caller="a", callee="b", method=method, outcome=outcome, detail=detail)


ALLOCATE = {"container_requests": [{"devices_ids": ["nic0", "nic1"]}]}
CALLS = [
    pytest.param("RunPodSandbox", {"request": {"config": {}}}, "RunPodSandbox", id="CRI"),
    pytest.param(
        "CreateContainer",
        {"request": {"config": {"metadata": {"name": "main"}}, "sandbox_config": {}}},
        "CreateContainer main",
        id="CRI with a container",
    ),
    pytest.param("PullImage", {"request": {"image": {"image": "busybox"}}}, "PullImage busybox", id="an image"),
    pytest.param("NRI StartContainer", {"request": {"container": "main"}}, "NRI StartContainer main", id="NRI"),
    pytest.param("Allocate", {"request": ALLOCATE}, "Allocate nic0, nic1", id="devices of a plugin"),
    pytest.param("NodePrepareResources", {"claims": ["default/nic"]}, "NodePrepareResources default/nic", id="claims"),
    pytest.param("ADD bridge", {"stdin": {}}, "ADD bridge", id="CNI"),
    pytest.param("GET /api/v1/pods?watch=true&limit=5", {}, "GET /api/v1/pods?watch=true", id="a request"),
    pytest.param("Allocate", {"request": {"container_requests": "odd"}}, "Allocate", id="odd"),
]


@pytest.mark.parametrize(("method", "detail", "label"), CALLS)
def test_labels_of_calls_name_their_object(method, detail, label):
    assert label_of(record(method, **detail)) == label


ANSWERS = [
    pytest.param("RunPodSandbox", "OK", {"response": {"pod_sandbox_id": "4937" * 16}}, "OK 493749374937", id="an id"),
    pytest.param(
        "PodSandboxStatus", "OK", {"response": {"status": {"network": {"ip": "10.1.0.2"}}}}, "OK 10.1.0.2", id="address"
    ),
    pytest.param(
        "NRI CreateContainer", "OK", {"response": {"adjust": {"env": [1], "mounts": [1], "hooks": {}}}},
        "OK adjusts env, mounts", id="what NRI adjusts",
    ),
    pytest.param("NodePrepareResources", "OK", {"devices": ["n1/eth1"]}, "OK n1/eth1", id="devices"),
    pytest.param("ADD bridge", "OK", {"stdout": {"ips": [{"address": "10.1.0.2/24"}]}}, "OK 10.1.0.2/24", id="CNI"),
    pytest.param("ADD bridge", "exit 1", {"stdout": {"msg": "no space"}}, "exit 1 no space", id="CNI that fails"),
    pytest.param("GET /x", "404", {}, "404 Not Found", id="a status"),
    pytest.param("StartContainer", "UNKNOWN", {"error": "why"}, "UNKNOWN: why", id="an error"),
    pytest.param("X", "OK", {"response": {"adjust": "odd", "status": []}}, "OK", id="odd"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "outcome", "detail", "label"), ANSWERS)
def test_labels_of_replies_have_the_result(method, outcome, detail, label):
    assert label_of(record(method, outcome, **detail)) == label
