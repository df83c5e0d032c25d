"""Rights of a kubelet: the graph of objects that its pods need, and the rules on top of it."""

import msgspec
import pytest

from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.node_authorizer import NodeAuthorizer
from podwire.apiserver.identity.node_graph import ATTACHMENTS, PODS, SLICES, VOLUMES, NodeGraph
from podwire.apiserver.identity.users import User

N1 = User("system:node:n1", groups=("system:nodes", "system:authenticated"))
N2 = User("system:node:n2", groups=("system:nodes", "system:authenticated"))
JANE = User("jane", groups=("system:nodes",))
PRETENDER = User("system:node:n1", groups=("system:authenticated",))
NAMELESS = User("system:node:", groups=("system:nodes",))
CLAIMED = {"name": "template", "resourceClaimTemplateName": "t"}

PROJECTED = [{"secret": {"name": "part-secret"}}, {"configMap": {"name": "part-map"}}]
SPEC = {
    "nodeName": "n1",
    "serviceAccountName": "bot",
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
        {
            "name": "c",
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env-secret", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "env-map", "key": "k"}}},
                {"name": "C", "value": "plain"},
            ],
            "envFrom": [{"secretRef": {"name": "from-secret"}}, {"configMapRef": {"name": "from-map"}}],
        }
    ],
    "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init-secret"}}]}],
    "ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "debug-secret"}}]}],
    "volumes": [
        {"name": "s", "secret": {"secretName": "volume-secret"}},
        {"name": "m", "configMap": {"name": "volume-map"}},
        {
            "name": "p",
            "projected": {"sources": [{"secret": {"name": "part-secret"}}, {"configMap": {"name": "part-map"}}]},
        },
        {"name": "csi", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi-secret"}}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
    ],
    "resourceClaims": [{"name": "own", "resourceClaimName": "devices"}, CLAIMED],
}
STATUS = {
    "resourceClaimStatuses": [{"name": "template", "resourceClaimName": "generated"}],
    "extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": []},
}
VOLUME = {
    "metadata": {"name": "pv"},
    "spec": {
        "claimRef": {"namespace": "ns", "name": "claim"},
        "csi": {
            "driver": "d",
            "nodeStageSecretRef": {"namespace": "storage", "name": "stage"},
            "controllerPublishSecretRef": {"namespace": "storage", "name": "controller"},
        },
    },
}


def encoded(**obj):
    return msgspec.json.encode(obj)


def pod(spec=SPEC, **metadata):
    return encoded(metadata={"name": "web", "namespace": "ns", **metadata}, spec=spec, status=STATUS)


@pytest.fixture
def graph():
    graph = NodeGraph()
    graph.put(f"{PODS}ns/web", pod())
    graph.put(f"{VOLUMES}pv", msgspec.json.encode(VOLUME))
    graph.put(f"{ATTACHMENTS}attached", encoded(spec={"nodeName": "n1"}))
    graph.put(f"{SLICES}slice", encoded(spec={"nodeName": "n1"}))
    return graph


@pytest.fixture
def authorizer(graph):
    return NodeAuthorizer(graph.related)


NEEDED = [
    *(("secrets", name) for name in ("pull", "env-secret", "from-secret", "init-secret", "debug-secret")),
    *(("secrets", name) for name in ("volume-secret", "part-secret", "csi-secret")),
    *(("configmaps", name) for name in ("env-map", "from-map", "volume-map", "part-map")),
    ("persistentvolumeclaims", "claim"),
    ("persistentvolumeclaims", "web-scratch"),
    ("serviceaccounts", "bot"),
    *(("resourceclaims", name) for name in ("devices", "generated", "extended")),
    ("pods", "web"),
]
GROUPS = {"resourceclaims": "resource.k8s.io"}


def get(resource, name, namespace="ns", verb="get", **more):
    group = GROUPS.get(resource, "")
    return Attributes(verb=verb, group=group, resource=resource, namespace=namespace, name=name, **more)


@pytest.mark.parametrize(("resource", "name"), NEEDED)
def test_a_node_reads_what_its_pods_need_and_other_nodes_do_not(authorizer, resource, name):
    assert authorizer.check(N1, get(resource, name)).allowed
    refused = authorizer.check(N2, get(resource, name))
    assert (refused.allowed, refused.reason) == (False, "no relationship found between node 'n2' and this object")
    assert not authorizer.check(N1, get(resource, name, "other")).allowed


@pytest.mark.parametrize(("resource", "name"), NEEDED)
def test_nothing_remains_readable_when_the_pod_is_gone(graph, authorizer, resource, name):
    graph.drop(f"{PODS}ns/web")

    assert not authorizer.check(N1, get(resource, name)).allowed


def test_a_pod_that_is_not_bound_or_a_mirror_pod_gives_nothing(graph, authorizer):
    graph.put(f"{PODS}ns/web", pod({**SPEC, "nodeName": ""}))
    assert not authorizer.check(N1, get("secrets", "pull")).allowed
    graph.put(f"{PODS}ns/web", pod(annotations={"kubernetes.io/config.mirror": "x"}))
    assert not authorizer.check(N1, get("secrets", "pull")).allowed
    assert authorizer.check(N1, get("pods", "web")).allowed


def test_two_pods_that_share_a_secret_are_counted(graph, authorizer):
    graph.put(f"{PODS}ns/second", pod())
    graph.drop(f"{PODS}ns/web")
    assert authorizer.check(N1, get("secrets", "pull")).allowed
    graph.keep(PODS, [])
    assert not authorizer.check(N1, get("secrets", "pull")).allowed


def test_a_volume_and_its_secrets_for_nodes_are_related_through_the_claim(graph, authorizer):
    assert authorizer.check(N1, get("persistentvolumes", "pv", "")).allowed
    assert authorizer.check(N1, get("secrets", "stage", "storage")).allowed
    assert not authorizer.check(N1, get("secrets", "controller", "storage")).allowed
    assert not authorizer.check(N2, get("persistentvolumes", "pv", "")).allowed
    assert not authorizer.check(N2, get("secrets", "stage", "storage")).allowed
    graph.drop(f"{VOLUMES}pv")
    assert not authorizer.check(N1, get("secrets", "stage", "storage")).allowed


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_secrets_are_listed_and_watched_one_by_one(authorizer, verb):
    assert authorizer.check(N1, get("secrets", "pull", verb=verb)).allowed
    assert authorizer.check(N1, get("secrets", "", verb=verb)).reason == "No Object name found"
    everywhere = authorizer.check(N1, get("secrets", "pull", "", verb=verb))
    assert everywhere.reason == "can only read namespaced object of this type"


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_a_node_writes_no_secret(authorizer, resource, verb):
    assert not authorizer.check(N1, get(resource, "pull", verb=verb)).allowed


def test_a_node_requests_tokens_for_the_accounts_of_its_pods(authorizer):
    token = {"verb": "create", "subresource": "token"}
    assert authorizer.check(N1, get("serviceaccounts", "bot", **token)).allowed
    assert not authorizer.check(N1, get("serviceaccounts", "admin", **token)).allowed
    assert not authorizer.check(N2, get("serviceaccounts", "bot", **token)).allowed
    assert not authorizer.check(N1, get("serviceaccounts", "bot", verb="update")).allowed


def asked(verb, resource, group="", **more):
    return Attributes(verb=verb, group=group, resource=resource, **more)


LEASE = {"group": "coordination.k8s.io", "namespace": "kube-node-lease"}
SLICE = {"group": "resource.k8s.io"}
CSI = {"group": "storage.k8s.io"}
ON_N1 = (("spec.nodeName", "n1"),)


@pytest.mark.parametrize(
    "attributes",
    [
        asked("get", "nodes", name="n1"),
        asked("watch", "nodes", name="n1"),
        asked("create", "nodes"),
        asked("patch", "nodes", subresource="status", name="n1"),
        asked("list", "pods", fields=ON_N1),
        asked("patch", "pods", subresource="status", namespace="ns", name="web"),
        asked("update", "leases", name="n1", **LEASE),
        asked("create", "leases", **LEASE),
        asked("get", "csinodes", name="n1", **CSI),
        asked("get", "volumeattachments", name="attached", **CSI),
        asked("list", "resourceslices", fields=ON_N1, **SLICE),
        asked("delete", "resourceslices", name="slice", **SLICE),
        asked("list", "services"),
        asked("create", "events", namespace="ns"),
        asked("get", "runtimeclasses", group="node.k8s.io", name="x"),
        asked("create", "tokenreviews", group="authentication.k8s.io"),
        asked("create", "subjectaccessreviews", group="authorization.k8s.io"),
    ],
    ids=lambda each: f"{each.verb} {each.resource} {each.subresource}".strip(),
)
def test_a_node_may(authorizer, attributes):
    assert authorizer.check(N1, attributes).allowed


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (asked("list", "nodes"), "node 'n1' cannot read all nodes, only its own Node object"),
        (asked("get", "nodes", name="n2"), "node 'n1' cannot read 'n2', only its own Node object"),
        (asked("delete", "nodes", name="n1"), ""),
        (asked("list", "pods"), "can only list/watch pods with spec.nodeName field selector"),
        (asked("list", "pods", fields=(("spec.nodeName", "n2"),)), "can only list/watch pods with spec.nodeName"),
        (asked("get", "pods", subresource="exec", namespace="ns", name="web"), ""),
        (asked("create", "pods", subresource="exec", namespace="ns", name="web"), ""),
        (asked("create", "pods", subresource="binding", namespace="ns", name="web"), ""),
        (asked("update", "leases", name="n2", **LEASE), "can only access node lease with the same name"),
        (asked("list", "leases", **LEASE), "can only get, create, update, patch, or delete a node lease"),
        (asked("get", "leases", name="n1", group="coordination.k8s.io", namespace="ns"), "can only access leases in"),
        (asked("get", "csinodes", name="n2", **CSI), "can only access CSINode with the same name"),
        (asked("list", "resourceslices", **SLICE), "can only list/watch/deletecollection resourceslices"),
        (asked("get", "resourceslices", name="other", **SLICE), "no relationship found"),
        (asked("create", "clusterrolebindings", group="rbac.authorization.k8s.io"), ""),
        (asked("create", "deployments", group="apps", namespace="ns"), ""),
        (asked("impersonate", "users", name="kubernetes-admin"), ""),
        (asked("get", "nodes", subresource="proxy", name="n2"), ""),
        (Attributes(verb="get", path="/metrics"), ""),
    ],
    ids=lambda each: f"{each.verb} {each.resource} {each.name}".strip() if isinstance(each, Attributes) else "",
)
def test_a_node_may_not(authorizer, attributes, reason):
    decision = authorizer.check(N1, attributes)
    assert not decision.allowed
    assert decision.reason.startswith(reason)


def test_only_users_with_name_and_group_of_a_node_are_nodes(authorizer):
    assert authorizer.check(JANE, get("secrets", "pull")) is None
    assert authorizer.check(PRETENDER, get("secrets", "pull")) is None
    assert not authorizer.check(NAMELESS, get("secrets", "pull")).allowed
