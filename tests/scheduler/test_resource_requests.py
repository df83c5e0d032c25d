"""How much a pod asks for."""

import pytest

from podwire.objects import pods
from podwire.scheduler.pod_info import Unreadable, read
from podwire.scheduler.resource_requests import DEFAULT_REQUESTS, amounts, pod_requests


def container(name, cpu=None, memory=None, *, sidecar=False):
    asked = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "resources": {"requests": asked}, **({"restartPolicy": "Always"} if sidecar else {})}


def pod(containers, init=(), **more):
    return pods.read({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": init, **more}})


@pytest.mark.parametrize(
    ("containers", "init", "cpu"),
    [
        pytest.param([container("a", "100m"), container("b", "1")], [], 1100, id="containers add up"),
        pytest.param([container("a", "100m")], [container("i", "2")], 2000, id="a large init container counts alone"),
        pytest.param(
            [container("a", "1")],
            [container("i", "2"), container("j", "3")],
            3000,
            id="of init containers one after the other the largest",
        ),
        pytest.param(
            [container("a", "1")], [container("s", "500m", sidecar=True)], 1500, id="a sidecar runs beside them"
        ),
        pytest.param(
            [container("a", "1")],
            [container("s", "1", sidecar=True), container("i", "2")],
            3000,
            id="an init container after a sidecar runs beside it",
        ),
        pytest.param(
            [container("a", "1")],
            [container("i", "2"), container("s", "1", sidecar=True)],
            2000,
            id="one before it does not",
        ),
        pytest.param([container("a", "0.5m")], [], 1, id="less than a thousandth is one"),
    ],
)
def test_a_pod_asks_for_the_most_that_it_holds_at_any_time(containers, init, cpu):
    assert pod_requests(pod(containers, init), {})["cpu"] == cpu


def test_the_sandbox_costs_too():
    assert pod_requests(pod([container("a", "1")], overhead={"cpu": "250m"}), {}) == {"cpu": 1250}


def test_pod_level_requests_replace_the_sum_of_containers():
    asked = pod([container("a", "1", "1Mi")])
    assert pod_requests(asked, {"cpu": "3"}) == {"cpu": 3000, "memory": 2**20}


def test_a_container_resized_down_counts_with_its_current_resources_until_then():
    status = {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"}}]}
    given = {"metadata": {"name": "p"}, "spec": {"containers": [container("a", "1")]}, "status": status}
    assert pod_requests(pods.read(given), {}) == {"cpu": 2000}


def test_a_pod_without_requests_counts_with_default_requests():
    asked = pod([container("a"), container("b", "1", "1Gi")])
    assert pod_requests(asked, {}, silent=DEFAULT_REQUESTS) == {"cpu": 1100, "memory": 2**30 + 200 * 2**20}
    assert pod_requests(asked, {}) == {"cpu": 1000, "memory": 2**30}


def test_cpu_is_in_thousandths_and_all_else_in_ones():
    given = {"cpu": "1500m", "memory": "1Ki", "example.com/nic": 2, "ephemeral-storage": "1.5k"}
    assert amounts(given) == {"cpu": 1500, "memory": 1024, "example.com/nic": 2, "ephemeral-storage": 1500}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [container("a", "much")]}, id="no quantity"),
        pytest.param({"containers": "none"}, id="no containers"),
    ],
)
def test_a_pod_that_no_server_should_hold_is_named_as_such(spec):
    with pytest.raises(Unreadable):
        read({"metadata": {"name": "p"}, "spec": spec})
