"""The way of a pod through the network plugin, arrow by arrow."""

import json

import pytest

pytestmark = pytest.mark.timeout(400)

ROUTES = "routes: [{destinations: [10.70.0.0/16], via: 10.99.0.1, onLink: true}]"


def test_the_trace_of_a_pod_that_names_a_resource_is_the_flow(network, a_pod, a_resource):
    network.up()
    network.cluster.apply(a_resource("PodRoute", "named", f"{{{ROUTES}}}"))
    network.run(a_pod("web", annotations={"net.podwire.dev/routes": "named"}))
    done = network.cluster.podwire("trace", "web", "--check", "nri")
    assert done.stdout == "pod default/web: no deviations from the nri flow\n", done.stdout + done.stderr
    network.run(a_pod("plain"))
    done = network.cluster.podwire("trace", "plain", "--check", "nri")
    assert done.returncode == 1, "a pod that names nothing is judged by copies: the GET is missing"
    assert "GET /apis/group/version/{ns}/resource/{name}" in done.stdout
    network.cluster.delete_all()


def test_a_decision_from_the_cache_is_traced_with_its_version(network, a_pod, a_policy, a_resource):
    network.up()
    cluster = network.cluster
    cluster.apply(a_resource("PodRoute", "chosen", f"{{podSelector: {{matchLabels: {{app: web}}}}, {ROUTES}}}"))
    cluster.apply(a_policy("shut", "{podSelector: {}, policyTypes: [Ingress]}"))
    network.run(a_pod("web", labels={"app": "web"}))
    records = json.loads(cluster.podwire("trace", "web", "--format", "json").stdout)
    own = [
        record["method"] for record in records if (record["from"], record["to"]) == ("NetworkPlugin", "NetworkPlugin")
    ]
    version = cluster.get("networkpolicy", "shut")["metadata"]["resourceVersion"]
    assert own[0] == "set policies, routes, mesh"
    assert f"read (cache, rv {version}) networkpolicies/shut" in own
    assert any(item.startswith("read (cache, rv ") and item.endswith(" podroutes/chosen") for item in own)
    asked = [record for record in records if record["from"] == "NetworkPlugin" and record["to"] == "APIServer"]
    assert not [item for item in asked if "/apis/net.podwire.dev/" in item["method"]], "nobody was asked in the hook"
    cluster.delete_all()
