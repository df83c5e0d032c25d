"""Discovery documents of both forms give the same kinds."""

from podwire.protocols.k8sapi.discovered import aggregated_kinds, group_versions, plain_kinds
from podwire.protocols.k8sapi.kinds import Kind, Subresource

DEPLOYMENTS = Kind(
    group="apps",
    version="v1",
    resource="deployments",
    kind="Deployment",
    singular="deployment",
    short_names=("deploy",),
    categories=("all",),
    verbs=("get", "list"),
    subresources=(Subresource("scale", ("get",), "Scale", "autoscaling", "v1"),),
)


def test_the_aggregated_form():
    resource = {
        "resource": "deployments",
        "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "scope": "Namespaced",
        "singularResource": "deployment",
        "verbs": ["get", "list"],
        "shortNames": ["deploy"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": "scale",
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "verbs": ["get"],
            }
        ],
    }
    document = {
        "kind": "APIGroupDiscoveryList",
        "items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [resource]}]}],
    }
    assert list(aggregated_kinds(document)) == [DEPLOYMENTS]


def test_the_plain_form():
    rows = [
        {
            "name": "deployments",
            "singularName": "deployment",
            "namespaced": True,
            "kind": "Deployment",
            "verbs": ["get", "list"],
            "shortNames": ["deploy"],
            "categories": ["all"],
        },
        {"name": "deployments/scale", "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
    ]
    assert list(plain_kinds("apps", "v1", {"kind": "APIResourceList", "resources": rows})) == [DEPLOYMENTS]


def test_the_preferred_version_of_a_group_comes_first():
    group = {
        "name": "autoscaling",
        "versions": [{"version": "v1"}, {"version": "v2"}],
        "preferredVersion": {"version": "v2"},
    }
    assert group_versions({"groups": [group]}) == [("autoscaling", "v2"), ("autoscaling", "v1")]
