"""Flow schemas of requests, with the schemas of a new cluster."""

import pytest

from podwire.apiserver.flowcontrol import FlowControl, Seats
from podwire.apiserver.flowcontrol.matching import read_flow_schema
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import ANONYMOUS_USER, AUTHENTICATED, MASTERS, User, account_groups
from podwire.kinds.builtin.flowcontrol import defaults


@pytest.fixture
def control() -> FlowControl:
    made = FlowControl(Seats(600, 15))
    made.configure(defaults.priority_levels(), defaults.flow_schemas())
    return made


def account(namespace: str, name: str) -> User:
    return User(f"system:serviceaccount:{namespace}:{name}", groups=(*account_groups(namespace), AUTHENTICATED))


ADMIN = User("admin", groups=(MASTERS, AUTHENTICATED))
NODE = User("system:node:n1", groups=("system:nodes", AUTHENTICATED))
SCHEDULER = User("system:kube-scheduler", groups=(AUTHENTICATED,))
LEASE = Attributes(verb="update", group="coordination.k8s.io", resource="leases", namespace="kube-system", name="x")
PODS = Attributes(verb="list", resource="pods", namespace="n1")


@pytest.mark.parametrize(
    ("user", "attributes", "level", "flow"),
    [
        (ADMIN, PODS, "exempt", "exempt\0"),
        (ANONYMOUS_USER, Attributes(verb="get", path="/healthz"), "exempt", "probes\0"),
        (ANONYMOUS_USER, Attributes(verb="get", path="/version"), "global-default", "global-default\0system:anonymous"),
        (SCHEDULER, LEASE, "leader-election", "system-leader-election\0system:kube-scheduler"),
        (SCHEDULER, PODS, "workload-high", "kube-scheduler\0n1"),
        (NODE, LEASE, "node-high", "system-node-high\0system:node:n1"),
        (NODE, Attributes(verb="get", resource="nodes", name="n1"), "node-high", "system-node-high\0system:node:n1"),
        (
            NODE,
            Attributes(verb="patch", resource="nodes", subresource="status", name="n1"),
            "node-high",
            "system-node-high\0system:node:n1",
        ),
        (NODE, Attributes(verb="get", resource="nodes", subresource="proxy", name="n1"), "system", None),
        (NODE, PODS, "system", "system-nodes\0system:node:n1"),
        (account("kube-system", "x"), PODS, "workload-high", "kube-system-service-accounts\0n1"),
        (account("kube-system", "x"), LEASE, "leader-election", None),
        (User("system:podwire:controllers", groups=(AUTHENTICATED,)), PODS, "workload-high", None),
        (User("driver", groups=("system:podwire:gpu-driver",)), PODS, "workload-high", "podwire-components\0driver"),
        (account("n1", "x"), PODS, "workload-low", "service-accounts\0system:serviceaccount:n1:x"),
        (User("someone", groups=(AUTHENTICATED,)), PODS, "global-default", "global-default\0someone"),
        (User("nobody"), PODS, "catch-all", "catch-all\0nobody"),
    ],
)
def test_the_schemas_of_a_new_cluster_classify_as_upstream_does(control, user, attributes, level, flow):
    classified = control.classify(user, attributes)
    assert classified.level.spec.name == level
    assert flow is None or classified.flow == flow
    assert control.classify(user, attributes) is classified, "the second time it is remembered"


def test_without_any_objects_the_mandatory_ones_remain():
    control = FlowControl(Seats(600, 15))
    assert control.classify(ADMIN, PODS).level.spec.exempt
    assert control.classify(NODE, PODS).level.spec.name == "catch-all"


def test_a_schema_whose_priority_level_is_missing_is_passed_over(control):
    levels = [level for level in defaults.priority_levels() if level["metadata"]["name"] != "system"]
    control.configure(levels, defaults.flow_schemas())
    assert control.classify(NODE, PODS).level.spec.name == "global-default"


def test_the_lowest_precedence_wins_and_then_the_first_name(control):
    def schema(name: str, precedence: int, level: str) -> dict:
        rule = {
            "subjects": [{"kind": "User", "user": {"name": "*"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["n1"]}],
        }
        spec = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]}
        return {"metadata": {"name": name}, "spec": spec}

    ours = [schema("b", 50, "workload-low"), schema("a", 50, "workload-high"), schema("c", 60, "system")]
    control.configure(defaults.priority_levels(), [*defaults.flow_schemas(), *ours])
    assert control.classify(NODE, PODS).flow == "a\0"
    assert control.classify(NODE, Attributes(verb="list", resource="pods")).level.spec.name == "system"


def test_a_path_with_a_star_at_its_end_matches_what_is_below():
    spec = {
        "priorityLevelConfiguration": {"name": "x"},
        "rules": [
            {
                "subjects": [{"kind": "Group", "group": {"name": "*"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/openapi/*"]}],
            }
        ],
    }
    schema = read_flow_schema({"metadata": {"name": "s"}, "spec": spec})
    assert schema.matches(NODE, Attributes(verb="get", path="/openapi/v3"))
    assert not schema.matches(NODE, Attributes(verb="get", path="/openapi"))
    assert not schema.matches(NODE, Attributes(verb="post", path="/openapi/v3"))
    assert not schema.matches(NODE, PODS)


def test_the_cache_of_classifications_is_bounded(control, monkeypatch):
    monkeypatch.setattr("podwire.apiserver.flowcontrol.controller.MOST_REMEMBERED", 10)
    for number in range(100):
        control.classify(User(f"user-{number}", groups=(AUTHENTICATED,)), PODS)
    assert len(control._cache) <= 10
