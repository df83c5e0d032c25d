"""Every built-in kind's table: definitions, sample rows, and rows of objects that make no sense."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds.strategies import strategy_of
from podwire.kinds.strategy import CUSTOM
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.builtin import BUILTIN

NOW = 1_700_000_000.0
LISTED = [item for item in BUILTIN.all if "list" in item.verbs]


def ago(seconds):
    return rfc3339(NOW - seconds)


META = {"name": "x", "creationTimestamp": ago(80)}


def test_name_is_marked_and_wide_columns_have_priority_one():
    pods = strategy_of(BUILTIN.of_kind("v1", "Pod")).column_definitions()
    assert [(pod["name"], pod["format"], pod["priority"]) for pod in pods[:1] + pods[5:6]] == [
        ("Name", "name", 0),
        ("IP", "", 1),
    ]


@pytest.mark.parametrize(
    ("group", "resource", "column", "expected"),
    [
        pytest.param("", "pods", "Ready", "string", id="pods are ready 1/2"),
        pytest.param("apps", "deployments", "Available", "string", id="deployments as text"),
        pytest.param("apps", "daemonsets", "Available", "integer", id="daemon sets as numbers"),
        pytest.param("apps", "replicasets", "Desired", "integer", id="replica sets as numbers"),
        pytest.param("batch", "cronjobs", "Suspend", "boolean", id="booleans"),
        pytest.param("", "limitranges", "Created At", "date", id="dates"),
    ],
)
def test_columns_have_upstreams_types(group, resource, column, expected):
    [kind] = [item for item in BUILTIN.all if (item.group, item.version, item.resource) == (group, "v1", resource)]
    found = strategy_of(kind).column_definitions()
    assert next(item["type"] for item in found if item["name"] == column) == expected


@pytest.mark.parametrize("kind", LISTED, ids=lambda kind: f"{kind.api_version}/{kind.resource}")
def test_every_kind_has_a_cell_for_every_column(kind):
    strategy = strategy_of(kind)
    assert len(strategy.row({"metadata": META}, NOW)) == len(strategy.column_definitions())


def test_a_kind_without_columns_shows_its_name_and_creation():
    assert [definition["name"] for definition in CUSTOM.column_definitions()] == ["Name", "Created At"]
    assert CUSTOM.row({"metadata": META}, NOW) == ["x", ago(80)]


WORDS = """
accessModes addresses allocation annotations capacity completionTime completions conditions containerStatuses
containers count creationTimestamp current data deletionTimestamp endpoints eventTime exitCode
expirationSeconds finishedAt hard host initContainerStatuses initContainers key kind labels lastState
lastTimestamp limited matchExpressions matchLabels metadata metrics name operator ownerReferences paramKind
paramRef parentRef phase ports reason replicas reservedFor resource restartCount roleRef rules running
selector series spec startTime state status storage subjects subsets target template terminated type used
values waiting webhooks
"""
FIELDS = st.sampled_from(WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["2023-01-01T00:00:00Z", "0000-13-01T00:00:00Z", "In", "Ready", "Resource", "User"])
)
ODD = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6), max_leaves=25
)
OBJECTS = st.dictionaries(FIELDS, ODD, max_size=6)


@settings(max_examples=150, deadline=None)
@given(obj=OBJECTS, now=st.floats(0, 2e10))
def test_no_object_is_too_odd_to_be_shown(obj, now):
    for kind in LISTED:
        found = strategy_of(kind).row(obj, now)
        assert len(found) == len(strategy_of(kind).columns.split("|"))
        assert all(isinstance(item, str | int) for item in found)
