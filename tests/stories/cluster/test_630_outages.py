"""Somebody is away, or stands still, for a while: pods go on, and all is reported afterwards."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
AWAY_SECONDS = 20.0 if SOAK else 4.0
STILL_SECONDS = 60.0 if SOAK else 4.0
"""Beyond the 40 s after which a node that is silent is not ready; or just a moment."""
EVERYBODY_SECONDS = 45.0
PODS = "/api/v1/namespaces/default/pods"

pytestmark = pytest.mark.timeout(600)


@contextlib.contextmanager
def without(cluster, component, directory):
    """It dies, and cannot come back before the end: what it needs is not there."""
    place = cluster.layout.state / directory
    aside = place.with_name(f"{place.name}.aside")
    place.rename(aside)
    place.write_text("nothing here\n")
    try:
        before = cluster.restarts(component)
        cluster.signal(component)
        cluster.eventually(lambda: cluster.restarts(component) > before, f"{component} died")
        yield
    finally:
        place.unlink()
        aside.rename(place)
    cluster.eventually(cluster.is_up, f"{component} is there again")


def changes(cluster, version):
    """Events of a watch on pods since a revision."""
    path = f"{PODS}?watch=1&resourceVersion={version}&timeoutSeconds=2"
    events = [json.loads(line) for line in cluster.output("get", "--raw", path).splitlines()]
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events if event["type"] != "BOOKMARK"]


def counted(pid):
    """Lines that probes wrote into a container."""
    return len(Path(f"/proc/{pid}/root/tmp/probes").read_text().splitlines())


def test_pods_go_on_without_an_api_server(cluster, a_pod):
    probe = {"exec": {"command": ["sh", "-c", "echo here >> /tmp/probes"]}, "periodSeconds": 1}
    cluster.up()
    cluster.apply(a_pod("quiet"), a_pod("crashes"), a_pod("probed", container={"livenessProbe": probe}))
    pids = cluster.once(cluster.running(3))
    by_pod = {container.pod: container for container in cluster.containers()}
    version = json.loads(cluster.output("get", "--raw", PODS))["metadata"]["resourceVersion"]
    with without(cluster, "apiserver", "apiserver"):
        until = time.monotonic() + AWAY_SECONDS
        os.kill(by_pod["crashes"].pid, signal.SIGKILL)
        seen = counted(by_pod["probed"].pid)

        def restarted():
            return [container for container in cluster.containers() if container.attempt == 1 and container.pid]

        (new,) = cluster.eventually(restarted, "the one that crashed is started again, though it could not be reported")
        cluster.eventually(lambda: counted(by_pod["probed"].pid) > seen + 1, "probes go on")
        time.sleep(max(0.0, until - time.monotonic()))
        assert cluster.pods() is None, "the server should be away"

    def reported():
        found = (cluster.pods() or {}).get("crashes")
        return found and found["status"]["containerStatuses"][0]["restartCount"] == 1

    cluster.eventually(reported, "the restart is reported")
    assert changes(cluster, version) == [("MODIFIED", "crashes")], "it is reported once, and of others nothing"
    cluster.running(3)
    pids.pop(by_pod["crashes"].id)
    assert {**pids, new.id: new.pid} == cluster.pids()
    cluster.eventually(lambda: cluster.node().get("status") == "True", "the node is ready")
    cluster.delete_all()
    cluster.empty()
    cluster.down()


def test_a_runtime_outage_is_reported_and_pods_keep_running(cluster, a_pod):
    cluster.up()
    cluster.apply(a_pod("one"), a_pod("two"))
    pids = cluster.once(cluster.running(2))
    with without(cluster, "runtime", "images/staging"):
        cluster.eventually(lambda: cluster.node().get("status") == "False", "the node is not ready")
        assert cluster.node()["reason"] == "KubeletNotReady"
        assert "container runtime is down" in cluster.node()["message"]
        cluster.apply(a_pod("three"))
    cluster.eventually(lambda: cluster.node().get("status") == "True", "the node is ready again")
    assert pids.items() <= cluster.once(cluster.running(3)).items()
    cluster.delete_all()
    cluster.empty()
    cluster.down()


@pytest.mark.parametrize("component", ["kubelet", "runtime", "apiserver"] if SOAK else ["kubelet"])
def test_a_stopped_component_resumes_after_sigcont(cluster, a_pod, component):
    cluster.up()
    cluster.apply(a_pod("stays"), a_pod("goes"))
    pids = cluster.once(cluster.running(2))
    (kept,) = [container.id for container in cluster.containers() if container.pod == "stays"]
    uid = cluster.pods()["stays"]["metadata"]["uid"]
    cluster.signal(component, signal.SIGSTOP)
    if component != "apiserver":
        cluster.apply(a_pod("comes"))
        cluster.output("delete", "pod", "goes", "--wait=false")
    time.sleep(STILL_SECONDS)
    cluster.signal(component, signal.SIGCONT)
    if component == "apiserver":
        cluster.apply(a_pod("comes"))
        cluster.output("delete", "pod", "goes", "--wait=false")
    cluster.eventually(lambda: set(cluster.pods() or ()) == {"stays", "comes"}, "one is gone", cluster.describe_pods)
    assert cluster.once(cluster.running(2))[kept] == pids[kept]
    assert cluster.pods()["stays"]["metadata"]["uid"] == uid
    cluster.eventually(lambda: cluster.node().get("status") == "True", "the node is ready")
    assert cluster.restarts(component) == 0
    cluster.delete_all()
    cluster.empty()
    cluster.down()


def test_leakcheck_lists_the_sandbox_of_a_pod_that_the_api_does_not_have(cluster, a_pod):
    cluster.up()
    cluster.apply(a_pod("stays"), a_pod("forced"))
    cluster.once(cluster.running(2))
    assert cluster.leakcheck() == []
    cluster.signal("kubelet", signal.SIGSTOP)
    cluster.output("delete", "pod", "forced", "--force", "--grace-period=0", "--wait=false")
    (leftover,) = cluster.leakcheck()
    assert (leftover["kind"], leftover["name"]) == ("sandbox", "default/forced")
    cluster.signal("kubelet", signal.SIGCONT)
    cluster.eventually(lambda: cluster.leakcheck() == [], "the kubelet removes it")
    cluster.delete_all()
    cluster.empty()
    cluster.down()


@pytest.mark.soak
def test_pods_survive_while_all_components_are_stopped(cluster, a_pod):
    cluster.up()
    cluster.apply(*(a_pod(f"pod-{number}") for number in range(3)))
    pids = cluster.once(cluster.running(3))
    uids = {pod["metadata"]["uid"] for pod in cluster.pods().values()}
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for component in ("supervisor", *cluster.components()):
            if component == "supervisor" or cluster.components()[component]["pid"]:
                cluster.signal(component, number)
        if number == signal.SIGSTOP:
            time.sleep(EVERYBODY_SECONDS)
    cluster.eventually(lambda: cluster.node().get("status") == "True", "the node is ready")
    time.sleep(15)
    assert cluster.once(cluster.running(3)) == pids
    assert {pod["metadata"]["uid"] for pod in cluster.pods().values()} == uids
    assert not any(cluster.restarts(component) for component in cluster.components())
    cluster.down()
