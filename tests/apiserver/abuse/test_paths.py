"""URLs that try to point where they should not."""

import pytest

from podwire.protocols.k8sapi import paths
from podwire.protocols.k8sapi.paths import BadPath
from podwire.protocols.k8sapi.server_side import Certificate

PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/kube-system/secrets"


@pytest.fixture
def stocked(house):
    house.made(SECRETS, {"metadata": {"name": "sample"}, "stringData": {"password": "canary"}})
    house.made(PODS, {"metadata": {"name": "sample"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    house.made("/api/v1/nodes", {"metadata": {"name": "kube-system"}})
    return house


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("//api/v1/namespaces/default/pods", 404, id="two slashes first"),
        pytest.param("/api//v1/pods", 400, id="two slashes inside"),
        pytest.param("/api/v1//pods", 400, id="two slashes before the resource"),
        pytest.param("/api/v1/namespaces//pods", 400, id="no namespace"),
        pytest.param(f"{PODS}//", 400, id="two slashes last"),
        pytest.param("/api/v1/namespaces/../secrets", 400, id="dots"),
        pytest.param("/api/v1/namespaces/%2e%2e/secrets", 400, id="escaped dots"),
        pytest.param("/api/v1/namespaces/.%2E/secrets", 400, id="half escaped dots"),
        pytest.param("/api/v1/namespaces/./pods", 400, id="one dot"),
        pytest.param("/apis/../api/v1/pods", 400, id="dots for a group"),
        pytest.param("/api/v1/namespaces/default%2Fpods/pods", 400, id="an escaped slash"),
        pytest.param("/api/v1/namespaces/kube-system%2f..%2fdefault/pods", 400, id="escaped slashes and dots"),
        pytest.param(f"{PODS}/a%252e%252e", 400, id="escaped twice"),
        pytest.param(f"{PODS}/a%00b", 400, id="NUL"),
        pytest.param(f"{PODS}/%ff%fe", 400, id="no UTF-8"),
        pytest.param(f"{PODS}/%c0%ae%c0%ae", 400, id="overlong UTF-8"),
        pytest.param(f"{PODS}/a/b/c/d/e", 400, id="too deep"),
        pytest.param(f"{PODS}/{'/'.join('x' * 20_000)}", 400, id="very deep"),
        pytest.param("/api/v1/pods;namespace=kube-system", 404, id="a matrix parameter"),
        pytest.param(f"{PODS}/sample;x", 404, id="a matrix parameter of a name"),
        pytest.param(f"{PODS}/%0d%0aX-Injected:1", 404, id="a header in a name"),
        pytest.param(f"{PODS}/{'x' * 60_000}", 404, id="a very long name"),
        pytest.param(f"{PODS}/sample%20", 404, id="a space behind a name"),
        pytest.param(f"{PODS}/SAMPLE", 404, id="other letters"),
        pytest.param("/API/v1/pods", 404, id="other letters for the root"),
        pytest.param("/api/V1/pods", 404, id="other letters for the version"),
        pytest.param("/api/v1/Pods", 404, id="the kind for the resource"),
        pytest.param("/api/v1/pod", 404, id="the singular"),
        pytest.param("/api/v2/pods", 404, id="no such version"),
        pytest.param("/apis/nope/v1/pods", 404, id="no such group"),
        pytest.param("/apis/v1/pods/x", 404, id="a version for a group"),
        pytest.param("/api/v1/deployments", 404, id="another group's resource"),
        pytest.param("/api/v1/registry/pods", 404, id="storage words"),
        pytest.param("/api/v1/pods/sample", 404, id="a name without its namespace"),
        pytest.param("/api/v1/pods/sample/status", 404, id="a part without its namespace"),
        pytest.param("/api/v1/serviceaccounts/default/token", 404, id="a token without its namespace"),
        pytest.param("/api/v1/namespaces/default/nodes", 404, id="a cluster's resource in a namespace"),
        pytest.param("/api/v1/namespaces/kube-system/nodes/kube-system", 404, id="a node named like its namespace"),
        pytest.param("/api/v1/namespaces/default/namespaces/other", 404, id="a namespace in a namespace"),
        pytest.param("/metrics/../api/v1/secrets", 404, id="out of another tree"),
        pytest.param("/static/%2e%2e/%2e%2e/etc/passwd", 404, id="out of the server"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_a_path_that_points_nowhere_is_refused(stocked, method, path, code):
    before = stocked.state()
    patch = {"body": {}, "media": "application/merge-patch+json"} if method == "PATCH" else {}
    reply = stocked.ask(method, path, **patch)
    assert reply.status in (code, 405), reply.raw[:300]
    assert b"canary" not in reply.raw
    assert stocked.state() == before


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/kube-system/nodes/kube-system",
        "/api/v1/namespaces/kube-system/nodes/kube-system/status",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/clusterroles/kube-system",
        "/apis/apiextensions.k8s.io/v1/namespaces/kube-system/customresourcedefinitions/kube-system",
    ],
)
def test_cluster_scoped_objects_are_not_readable_through_a_namespace(stocked, path):
    """A service account that may read its namespace must not find a node or cluster role by that."""
    everything = {"rules": [{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]}
    group = "rbac.authorization.k8s.io"
    roles = f"/apis/{group}/v1/namespaces/kube-system"
    stocked.made(f"{roles}/roles", {"metadata": {"name": "reader"}, **everything})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}
    reference = {"apiGroup": group, "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    stocked.made(f"{roles}/rolebindings", binding)
    rules = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    stocked.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "kube-system"}, **rules})
    reply = stocked.refused("GET", path, impersonate_user="system:serviceaccount:kube-system:default")
    assert (reply.status, reply.body["reason"]) == (404, "NotFound")


def test_a_wrong_method_or_option_reveals_only_that_it_is_forbidden(stocked):
    stranger = {"user": None}
    for method, query in (("TRACE", {}), ("PUT", {}), ("GET", {"watch": "perhaps"})):
        assert stocked.refused(method, PODS, query=query, **stranger).status == 403
    assert stocked.refused("PUT", PODS).status == 405
    assert stocked.refused("GET", PODS, query={"watch": "perhaps"}).status == 400


@pytest.mark.parametrize("path", ["/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/"])
def test_one_trailing_slash_is_forgiven(path):
    assert paths.parse(path) == paths.parse("/api/v1/namespaces/a/pods/b")


def test_a_path_of_no_resource_is_not_parsed():
    assert paths.parse("/healthz") is None
    with pytest.raises(BadPath):
        paths.parse("/api/v1/%80")


def test_an_unknown_user_learns_nothing_from_paths(stocked):
    nobody = Certificate("", ())
    for path in (PODS, f"{PODS}/sample", f"{PODS}/absent", "/api/v1/nope", "/apis/nope/v1/nope/x", SECRETS):
        assert stocked.refused("GET", path, user=nobody).status == 403
