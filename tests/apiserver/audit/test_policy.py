"""Audit policies: which rule decides, and how a bad file is refused."""

import pytest
import yaml

from podwire.apiserver.audit.policy import COMPLETE, RECEIVED, Level, policy_of, read_policy
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import User
from podwire.protocols.settings import BadConfig

HEAD = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
ALICE = User("alice", groups=("staff", "system:authenticated"))
PODS = Attributes(verb="list", resource="pods", version="v1", namespace="n1")
LOG = Attributes(verb="get", resource="pods", subresource="log", namespace="n1", name="web")
DEPLOYMENT = Attributes(verb="update", group="apps", resource="deployments", namespace="n1", name="web")
HEALTH = Attributes(verb="get", path="/healthz/ping")


def decided(rule, attributes, user=ALICE):
    policy = policy_of({**HEAD, "rules": [{"level": "Metadata", **rule}]})
    assert policy.decide(user, attributes) is policy.decide(user, attributes)
    return policy.decide(user, attributes).level is Level.METADATA


@pytest.mark.parametrize(
    ("rule", "attributes", "matches"),
    [
        ({}, PODS, True),
        ({}, HEALTH, True),
        ({"users": ["alice"]}, PODS, True),
        ({"users": ["bob"]}, PODS, False),
        ({"userGroups": ["other", "staff"]}, PODS, True),
        ({"userGroups": ["other"]}, PODS, False),
        ({"verbs": ["get", "list"]}, PODS, True),
        ({"verbs": ["watch"]}, PODS, False),
        ({"namespaces": ["n1"]}, PODS, True),
        ({"namespaces": ["n2"]}, PODS, False),
        ({"namespaces": ["n1"]}, HEALTH, False),
        ({"resources": [{"group": ""}]}, PODS, True),
        ({"resources": [{"group": ""}]}, DEPLOYMENT, False),
        ({"resources": [{"group": "apps"}]}, DEPLOYMENT, True),
        ({"resources": [{"resources": ["pods"]}]}, PODS, True),
        ({"resources": [{"resources": ["pods"]}]}, LOG, False),
        ({"resources": [{"resources": ["pods/log"]}]}, LOG, True),
        ({"resources": [{"resources": ["pods/*"]}]}, LOG, True),
        ({"resources": [{"resources": ["*/log"]}]}, LOG, True),
        ({"resources": [{"resources": ["*/status"]}]}, LOG, False),
        ({"resources": [{"resources": ["*"]}]}, LOG, True),
        ({"resources": [{"group": "apps", "resources": ["deployments"], "resourceNames": ["web"]}]}, DEPLOYMENT, True),
        ({"resources": [{"group": "apps", "resources": ["deployments"], "resourceNames": ["x"]}]}, DEPLOYMENT, False),
        ({"nonResourceURLs": ["/healthz*"]}, HEALTH, True),
        ({"nonResourceURLs": ["/healthz"]}, HEALTH, False),
        ({"nonResourceURLs": ["*"]}, HEALTH, True),
        ({"nonResourceURLs": ["*"]}, PODS, False),
    ],
)
def test_a_rule_matches_when_all_of_its_conditions_hold(rule, attributes, matches):
    assert decided(rule, attributes) is matches


def test_a_request_without_a_user_is_not_one_of_any_user():
    assert not decided({"users": ["alice"]}, PODS, None)
    assert not decided({"userGroups": ["staff"]}, PODS, None)
    assert decided({}, PODS, None)


def test_the_first_rule_that_matches_decides_and_without_one_nothing_is_recorded():
    rules = [
        {"level": "None", "verbs": ["watch"]},
        {"level": "RequestResponse", "users": ["alice"], "omitStages": ["ResponseComplete"]},
        {"level": "Request", "users": ["bob"], "omitManagedFields": False},
    ]
    policy = policy_of({**HEAD, "omitStages": ["RequestReceived"], "omitManagedFields": True, "rules": rules})
    assert policy.decide(ALICE, Attributes(verb="watch", resource="pods")).level is Level.NONE
    alice, bob = policy.decide(ALICE, PODS), policy.decide(User("bob"), PODS)
    assert (alice.level, alice.omit_managed_fields) == (Level.REQUEST_RESPONSE, True)
    assert alice.omit_stages == {RECEIVED, COMPLETE}
    assert (bob.level, bob.omit_stages, bob.omit_managed_fields) == (Level.REQUEST, {RECEIVED}, False)
    assert policy.decide(User("carol"), PODS).level is Level.NONE


def with_rule(**rule):
    return {**HEAD, "rules": [{"level": "None", **rule}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not YAML"),
        ([], "must be a mapping"),
        ({}, "apiVersion: is required"),
        ({**HEAD, "apiVersion": "audit.k8s.io/v1beta1"}, "rules: is required"),
        ({**with_rule(), "apiVersion": "audit.k8s.io/v1beta1"}, "apiVersion: 'audit.k8s.io/v1beta1' must be one of"),
        ({**HEAD, "rules": []}, "rules: must be a list with at least one item"),
        ({**HEAD, "rules": [{}]}, "rules[0].level: is required"),
        (with_rule(level="All"), "rules[0].level: 'All' must be one of None, Metadata, Request"),
        (with_rule(user=["x"]), "rules[0].user: is not a setting; known settings: level"),
        (with_rule(users="x"), "rules[0].users: must be a list of strings"),
        (with_rule(verbs=[1]), "rules[0].verbs[0]: must be a string"),
        (with_rule(omitStages=["x"]), "rules[0].omitStages[0]: 'x': allowed stages are"),
        ({**with_rule(), "omitStages": ["x"]}, "omitStages[0]: 'x': allowed stages are"),
        (with_rule(nonResourceURLs=["x"]), "must begin with a '/' character"),
        (with_rule(nonResourceURLs=["/*x"]), "must be the final character"),
        (
            with_rule(nonResourceURLs=["/x"], namespaces=["x"]),
            "rules[0].nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs",
        ),
        (with_rule(resources=[{"group": "apps/v1"}]), "rules[0].resources[0].group: 'apps/v1': a lowercase RFC 1123"),
        (
            with_rule(resources=[{"resourceNames": ["x"]}]),
            "rules[0].resources[0].resourceNames: using resourceNames requires at least one resource",
        ),
    ],
)
def test_a_bad_policy_is_refused_with_the_field_and_the_reason(tmp_path, content, words):
    path = tmp_path / "policy.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    with pytest.raises(BadConfig) as raised:
        read_policy(path)
    assert words in str(raised.value)
