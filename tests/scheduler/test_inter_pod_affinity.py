"""InterPodAffinity."""

import pytest

from podwire.scheduler import Chosen, Unschedulable, choose

AFFINITY_NOT_MET = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_NOT_MET = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

NODES = {"a1": {"labels": {"zone": "a"}}, "a2": {"labels": {"zone": "a"}}, "b1": {"labels": {"zone": "b"}}}
TEAMS = {"default": {"team": "red"}, "other": {"team": "blue", "kubernetes.io/metadata.name": "other"}}
RED, BLUE = {"matchLabels": {"team": "red"}}, {"matchLabels": {"team": "blue"}}


def term(app="db", key="zone", **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms):
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def apart(*terms):
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def wish(kind, given, weight=10):
    wishes = [{"weight": weight, "podAffinityTerm": given}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}}


def there(node, app="db", name="there", **more):
    return (node, name, {"labels": {"app": app}, **more})


@pytest.mark.parametrize(
    ("placed", "spec", "possible"),
    [
        pytest.param([there("a1")], near(term()), "a1 a2", id="near it by zone"),
        pytest.param([there("a1")], near(term(key="kubernetes.io/hostname")), "a1", id="near it by host"),
        pytest.param([], near(term()), "", id="nobody to be near to"),
        pytest.param([], near(term("web")), "a1 a2 b1", id="the first of its kind begins anywhere"),
        pytest.param([there("b1", "web")], near(term("web")), "b1", id="the second follows"),
        pytest.param([], near(term("web", "rack")), "", id="but not where the topology is unknown"),
        pytest.param([there("b1", namespace="other")], near(term()), "", id="of another namespace"),
        pytest.param(
            [there("b1", namespace="other")], near(term(namespaces=["other"])), "b1", id="of a namespace by name"
        ),
        pytest.param([there("b1", namespace="other")], near(term(namespaceSelector={})), "b1", id="of all namespaces"),
        pytest.param(
            [there("b1", namespace="other")],
            near(term(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}})),
            "b1",
            id="of a namespace by the label that is its name",
        ),
        pytest.param(
            [there("a1"), there("b1", "cache", "c")],
            near(term(), term("cache")),
            "",
            id="both terms have to be met by one pod",
        ),
        pytest.param([there("a1")], apart(term()), "b1", id="away from it by zone"),
        pytest.param([there("a1")], apart(term(key="kubernetes.io/hostname")), "a2 b1", id="away from it by host"),
        pytest.param([there("a1")], apart(term("web")), "a1 a2 b1", id="away from another kind"),
        pytest.param([there("a1", **apart(term("web")))], {}, "b1", id="it does not want us"),
        pytest.param([there("a1", **apart(term("cache")))], {}, "a1 a2 b1", id="it does not want others"),
        pytest.param(
            [there("a1", namespace="other", **apart(term("web")))], {}, "a1 a2 b1", id="it does not want its own kind"
        ),
        pytest.param(
            [
                there(
                    "a1",
                    namespace="other",
                    **apart(term("web", namespaceSelector=RED)),
                )
            ],
            {},
            "b1",
            id="it does not want us, by a label of our namespace",
        ),
        pytest.param(
            [there("a1", namespace="other", **apart(term("web", namespaceSelector=BLUE)))],
            {},
            "a1 a2 b1",
            id="it does not want others, by a label of their namespace",
        ),
        pytest.param([there("b1", namespace="other")], near(term(namespaceSelector=BLUE)), "b1", id="near, by label"),
        pytest.param([there("b1", namespace="other")], near(term(namespaceSelector=RED)), "", id="not near, by label"),
        pytest.param([there("a1", namespace="other")], apart(term(namespaceSelector=BLUE)), "b1", id="away, by label"),
        pytest.param(
            [there("a1", namespace="other")], apart(term(namespaceSelector=RED)), "a1 a2 b1", id="not away, by label"
        ),
    ],
)
def test_pods_are_where_their_neighbours_allow(make_pod, make_snapshot, placed, spec, possible):
    found = []
    info = make_pod("new", labels={"app": "web"}, **spec)
    for name in NODES:
        nodes = {each: {**given, "unschedulable": each != name} for each, given in NODES.items()}
        if choose(info, make_snapshot(nodes, placed, TEAMS)) == Chosen(name):
            found.append(name)
    assert found == possible.split()


@pytest.mark.parametrize(
    ("placed", "spec", "reason"),
    [
        pytest.param([], near(term()), AFFINITY_NOT_MET, id="affinity"),
        pytest.param(
            [there("n1")], apart(term(key="kubernetes.io/hostname")), ANTI_AFFINITY_NOT_MET, id="anti-affinity"
        ),
        pytest.param(
            [there("n1", **apart(term("web", "kubernetes.io/hostname")))],
            {},
            EXISTING_ANTI_AFFINITY,
            id="of those there",
        ),
    ],
)
def test_the_reason_names_the_pod_with_the_failed_rule(make_pod, make_snapshot, placed, spec, reason):
    found = choose(make_pod("new", labels={"app": "web"}, **spec), make_snapshot({"n1": {}}, placed))
    assert isinstance(found, Unschedulable)
    assert found.message.startswith(f"0/1 nodes are available: 1 {reason}. ")


@pytest.mark.parametrize(
    ("placed", "spec", "chosen"),
    [
        pytest.param([there("b1")], wish("podAffinity", term()), "b1", id="near whom it likes"),
        pytest.param([there("a1")], wish("podAntiAffinity", term()), "b1", id="away from whom it does not"),
        pytest.param([there("b1", **wish("podAffinity", term("web")))], {}, "b1", id="near who likes it"),
        pytest.param([there("a1", **wish("podAntiAffinity", term("web")))], {}, "b1", id="away from who does not"),
        pytest.param([there("b1", **near(term("web")))], {}, "b1", id="near who needs it"),
        pytest.param(
            [there("b1", namespace="other")], wish("podAffinity", term(namespaceSelector=BLUE)), "b1", id="near a team"
        ),
        pytest.param(
            [there("b1", namespace="other", **wish("podAffinity", term("web", namespaceSelector=RED)))],
            {},
            "b1",
            id="near who likes its team",
        ),
    ],
)
def test_preferences_decide_among_feasible_nodes(make_pod, make_snapshot, placed, spec, chosen):
    bare = {name: {**given, "allocatable": {"cpu": "0", "memory": "0"}} for name, given in NODES.items()}
    info = make_pod("new", labels={"app": "web"}, **spec)
    assert choose(info, make_snapshot(bare, placed, TEAMS)) == Chosen(chosen)
