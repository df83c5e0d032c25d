"""Requests that match: rules, exceptions, equivalent versions, selectors of objects."""

import pytest

from podwire.kinds.policies.matching import Constraints, Target, constraints
from podwire.protocols.k8sapi.kinds import Kind

PODS = Kind(group="", version="v1", resource="pods", kind="Pod")
NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)
SPACES = Kind(group="", version="v1", resource="namespaces", kind="Namespace", namespaced=False)
SCALERS, OLD_SCALERS = (
    Kind(group="autoscaling", version=name, resource="horizontalpodautoscalers", kind="HorizontalPodAutoscaler")
    for name in ("v2", "v1")
)


def target(kind=PODS, verb="CREATE", part="", namespace="default", name="web"):
    return Target(verb=verb, kind=kind, subresource=part, namespace=namespace, name=name)


def rule(**given):
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], **given}


@pytest.mark.parametrize(
    ("given", "asked", "meant"),
    [
        pytest.param({}, target(), True, id="the same"),
        pytest.param({}, target(verb="UPDATE"), False, id="another operation"),
        pytest.param({"operations": ["*"]}, target(verb="CONNECT"), True, id="every operation"),
        pytest.param({"apiGroups": ["apps"]}, target(), False, id="another group"),
        pytest.param({"apiGroups": ["*"]}, target(), True, id="every group"),
        pytest.param({"apiVersions": ["v2"]}, target(), False, id="another version"),
        pytest.param({"apiVersions": ["*"]}, target(), True, id="every version"),
        pytest.param({"resources": ["nodes"]}, target(), False, id="another resource"),
        pytest.param({"resources": ["nodes", "*"]}, target(), True, id="every resource"),
        pytest.param({"resources": ["*"]}, target(part="status"), False, id="a part is not a resource"),
        pytest.param({"resources": ["pods"]}, target(part="status"), False, id="a part is not the whole"),
        pytest.param({"resources": ["pods/status"]}, target(part="status"), True, id="a part"),
        pytest.param({"resources": ["pods/status"]}, target(), False, id="the whole is not the part"),
        pytest.param({"resources": ["pods/*"]}, target(part="exec"), True, id="every part"),
        pytest.param({"resources": ["pods/*"]}, target(), True, id="every part, and the whole"),
        pytest.param({"resources": ["*/exec"]}, target(part="exec"), True, id="this part of everything"),
        pytest.param({"resources": ["*/*"]}, target(part="exec"), True, id="every part of everything"),
        pytest.param({"resourceNames": ["web"]}, target(), True, id="this name"),
        pytest.param({"resourceNames": ["db"]}, target(), False, id="another name"),
        pytest.param({"scope": "Cluster"}, target(), False, id="not of the cluster"),
        pytest.param({"scope": "Namespaced"}, target(), True, id="in a namespace"),
        pytest.param(
            {"scope": "Cluster", "resources": ["nodes"]}, target(NODES, namespace=""), True, id="of the cluster"
        ),
        pytest.param(
            {"scope": "Namespaced", "resources": ["nodes"]}, target(NODES, namespace=""), False, id="in no namespace"
        ),
        pytest.param(
            {"scope": "Cluster", "resources": ["namespaces"]},
            target(SPACES, namespace="web"),
            True,
            id="a namespace is of the cluster",
        ),
        pytest.param(
            {"scope": "Namespaced", "resources": ["namespaces"]},
            target(SPACES, namespace="web"),
            False,
            id="a namespace is in none",
        ),
    ],
)
def test_a_rule_matches_as_specified(given, asked, meant):
    document = {"resourceRules": [rule(**given)], "matchPolicy": "Exact"}
    assert constraints(document).kind_for(asked, ()) == (asked.kind if meant else None)
    without = {"excludeResourceRules": [rule(**given)], "matchPolicy": "Exact"}
    assert constraints(without).kind_for(asked, ()) == (None if meant else asked.kind)


def test_no_rules_mean_everything():
    assert constraints(None).kind_for(target(), ()) is PODS
    assert Constraints().picks(None, None)


@pytest.mark.parametrize(("matching", "found"), [("Equivalent", OLD_SCALERS), ("Exact", None)])
def test_another_version_of_the_same_is_meant_too(matching, found):
    document = {
        "matchPolicy": matching,
        "resourceRules": [rule(apiGroups=["autoscaling"], apiVersions=["v1"], resources=["horizontalpodautoscalers"])],
    }
    assert constraints(document).kind_for(target(SCALERS), (OLD_SCALERS,)) == found


def test_the_requests_own_version_comes_first():
    document = {
        "matchPolicy": "Equivalent",
        "resourceRules": [rule(apiGroups=["*"], apiVersions=["*"], resources=["horizontalpodautoscalers"])],
    }
    assert constraints(document).kind_for(target(SCALERS), (OLD_SCALERS,)) == SCALERS


def test_other_versions_of_an_excluded_resource_are_excluded():
    excluded = rule(apiGroups=["autoscaling"], apiVersions=["v1"], resources=["horizontalpodautoscalers"])
    document = {"matchPolicy": "Equivalent", "excludeResourceRules": [excluded]}
    assert constraints(document).kind_for(target(SCALERS), (OLD_SCALERS,)) is None


@pytest.mark.parametrize(
    ("new", "old", "picked"),
    [
        pytest.param({"app": "web"}, None, True, id="as it will be"),
        pytest.param({"app": "db"}, {"app": "web"}, True, id="as it was"),
        pytest.param({"app": "db"}, {"app": "db"}, False, id="neither"),
        pytest.param(None, {"app": "web"}, True, id="when it goes"),
        pytest.param(None, None, False, id="nothing at all"),
    ],
)
def test_objects_are_picked_as_they_will_be_or_were(new, old, picked):
    result = constraints({"objectSelector": {"matchLabels": {"app": "web"}}})
    objects = (None if labels is None else {"metadata": {"labels": labels}} for labels in (new, old))
    assert result.picks(*objects) is picked
