"""Resources that are nonsense, missing or in each other's way: each affects only itself, and says so."""

import json
import signal

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import RpcError

pytestmark = pytest.mark.timeout(400)

ROUTE = """
podSelector: {matchLabels: {app: web}}
failurePolicy: POLICY
routes: [{destinations: [10.70.0.0/16], via: VIA, onLink: true}]
"""


def route(**words):
    text = ROUTE
    for name, value in {"POLICY": "Fail", "VIA": "10.99.0.1", **words}.items():
        text = text.replace(name, value)
    return text


def test_invalid_resources_are_refused_with_field_and_reason(network, a_resource):
    network.up(plugin=False)
    bad = a_resource("PodRoute", "bad", "{routes: [{destinations: [10.70.0.1/16], via: 'fd00::1'}]}")
    done = network.cluster.kubectl("apply", "-f", "-", given=json.dumps(bad))
    assert done.returncode != 0
    assert "spec.routes[0].destinations[0]" in done.stderr
    mesh = a_resource("PodMesh", "loop", "{outbound: {port: 15001}}")
    done = network.cluster.kubectl("apply", "-f", "-", given=json.dumps(mesh))
    assert "without one the proxy's own connections would be led back to it" in done.stderr


def test_a_pod_that_names_a_missing_resource_waits_until_it_exists(network, a_pod, a_resource):
    network.up()
    cluster = network.cluster
    named = {"net.podwire.dev/routes": "late"}
    cluster.apply(a_pod("waits", annotations=named), a_pod("runs"))
    network.peer("runs")
    cluster.eventually(
        lambda: "PodRouteMissing" in network.events("waits"), "the reason is reported", network.plugin.log_tail
    )
    assert "PodRoute default/late: the pod names it, and it does not exist" in network.events("waits")
    assert network.plugin.metric('failures_total{part="PodRoute",reason="Missing"}') >= 1
    cluster.apply(
        a_resource("PodRoute", "late", "{routes: [{destinations: [10.70.0.0/16], via: 10.99.0.1, onLink: true}]}")
    )
    network.peer("waits")
    assert network.plugin.metric('named_reads_total{source="api"}') >= 2
    cluster.delete_all()


@pytest.mark.parametrize(("policy", "runs"), [("Fail", False), ("Ignore", True)])
def test_a_kernel_error_fails_closed_or_open_as_the_resource_says(network, a_pod, a_resource, policy, runs):
    network.up()
    cluster = network.cluster
    spec = route(POLICY=policy).replace("onLink: true", "onLink: false")  # nobody is at that gateway
    cluster.apply(a_resource("PodRoute", "nowhere", spec), a_pod("web", labels={"app": "web"}), a_pod("other"))
    network.peer("other")
    cluster.eventually(lambda: "PodRouteFailed" in network.events("web"), "it is reported", network.plugin.log_tail)

    def failures():
        nodes = cluster.get("podroute", "nowhere").get("status", {}).get("nodes", [])
        return [row for node in nodes for row in node["failures"]]

    [row] = cluster.eventually(failures, "its status names the pod", network.plugin.log_tail)
    assert (row["pod"], row["reason"]) == ("web", "Failed")
    assert "spec.routes[0]" in row["message"]
    if runs:
        network.peer("web")
    else:
        assert cluster.pods()["web"]["status"]["phase"] == "Pending"
    cluster.delete_all()
    cluster.eventually(lambda: not failures(), "a pod that is gone fails no more", network.plugin.log_tail)


def test_of_two_conflicting_resources_the_older_wins_and_the_other_reports_it(network, a_pod, a_resource):
    network.up()
    cluster = network.cluster
    cluster.apply(a_resource("PodRoute", "a", route()))
    cluster.apply(a_resource("PodRoute", "b", route(VIA="10.99.0.2")))
    network.run(a_pod("web", labels={"app": "web"}))

    def message():
        conditions = cluster.get("podroute", "b").get("status", {}).get("conditions", [])
        return next((condition["message"] for condition in conditions if condition["reason"] == "Conflict"), "")

    reported = cluster.eventually(message, "the younger one says that it lost", network.plugin.log_tail)
    assert "as PodRoute default/a says, which is older" in reported
    assert "via 10.99.0.1" in cluster.output("exec", "web", "--", "ip", "route")
    cluster.delete_all()


def test_without_the_api_server_new_pods_get_the_cached_policies(network, a_pod, a_policy, a_resource):
    """A sandbox that is asked for while nobody answers: by the runtime's own door, as a kubelet would."""
    network.up()
    cluster = network.cluster
    cluster.apply(a_resource("PodRoute", "named", route().replace("podSelector: {matchLabels: {app: web}}", "")))
    cluster.apply(a_policy("shut", "{podSelector: {matchLabels: {app: shut}}, policyTypes: [Ingress, Egress]}"))
    [target] = network.run(a_pod("target")).values()
    target.listen(80)
    for name in ("kubelet", "apiserver"):  # a kubelet ends sandboxes of which it knows no pod
        cluster.signal(name, signal.SIGSTOP)
    try:
        ids = [
            cluster.cri("RunPodSandbox", config=_sandbox("shut", {"app": "shut"})).pod_sandbox_id,
            cluster.cri("RunPodSandbox", config=_sandbox("open", {})).pod_sandbox_id,
        ]
        with pytest.raises(RpcError, match="default/nobody: the pod names it, and it does not exist"):
            cluster.cri("RunPodSandbox", config=_sandbox("bad", {}, "nobody"))
        assert network.plugin.metric('named_reads_total{source="cache"}') >= 3
        assert network.content()["ingress4"] == network.content()["egress4"] == 1
        for id_ in ids:
            cluster.cri("StopPodSandbox", pod_sandbox_id=id_)
            cluster.cri("RemovePodSandbox", pod_sandbox_id=id_)
    finally:
        for name in ("kubelet", "apiserver"):
            cluster.signal(name, signal.SIGCONT)
    assert network.content()["ingress4"] == 0
    cluster.delete_all()


def _sandbox(name, labels, route_="named"):
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
        labels=labels,
        annotations={"net.podwire.dev/routes": route_},
        linux=pb.LinuxPodSandboxConfig(),
    )
