"""A pod as the runtime tells of it, and what the API server says of the same pod."""

import pytest

from podwire.nri import pb
from podwire.nriplugins.network.sandbox import sandbox_from

SANDBOX = pb.PodSandbox(
    id="s1",
    name="web",
    uid="u1",
    namespace="default",
    labels={"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u1"},
    annotations={"net.podwire.dev/routes": "a"},
    ips=["10.1.0.5", "fd00::5"],
)


def test_labels_are_the_pods_own():
    sandbox = sandbox_from(SANDBOX, "/run/netns/x")
    assert sandbox.labels == {"app": "web"}
    assert [str(address) for address in sandbox.planned.ips] == ["10.1.0.5", "fd00::5"]


def test_a_pod_on_the_hosts_network_is_none():
    assert sandbox_from(SANDBOX, "") is None


@pytest.mark.parametrize(
    ("object_", "changed", "labels"),
    [
        pytest.param(None, False, {"app": "web"}, id="not known yet"),
        pytest.param({"metadata": {"uid": "other", "labels": {"app": "db"}}}, False, {"app": "web"}, id="another pod"),
        pytest.param({"metadata": {"uid": "u1", "labels": {"app": "db"}}}, True, {"app": "db"}, id="other labels"),
        pytest.param(
            {"metadata": {"uid": "u1", "labels": {"app": "web"}, "annotations": {"net.podwire.dev/routes": "a"}}},
            False,
            {"app": "web"},
            id="the same",
        ),
    ],
)
def test_the_api_servers_labels_replace_the_runtimes(object_, changed, labels):
    sandbox = sandbox_from(SANDBOX, "/run/netns/x")
    assert sandbox.update_from(object_) is changed
    assert sandbox.labels == labels
