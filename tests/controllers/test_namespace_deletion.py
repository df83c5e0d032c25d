"""The end of a namespace and of a definition, and the age of an event: the decisions."""

import pytest

from podwire.controllers.crd_cleanup import ending as definition_ending
from podwire.controllers.crd_cleanup import instances, released, reports_termination, with_terminating
from podwire.controllers.event_expiry import last_seen
from podwire.controllers.kinds import CONFIG_MAPS, PODS
from podwire.controllers.metadata import Metadata, PartialObject
from podwire.controllers.namespace_deletion import (
    conditions,
    ending,
    finalized,
    next_kinds,
    overlooked,
    progress,
    with_conditions,
)
from podwire.objects.times import parse

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def namespace(*finalizers: str, deleting: bool = True) -> dict:
    metadata = {"name": "dev", **({"deletionTimestamp": NOW} if deleting else {})}
    return {"metadata": metadata, "spec": {"finalizers": list(finalizers)}, "status": {"phase": "Terminating"}}


def seen(kind, name: str, *finalizers: str, deleting: bool = False) -> PartialObject:
    when = NOW if deleting else None
    return PartialObject(
        kind, Metadata(name=name, uid=name, namespace="dev", finalizers=finalizers, deletion_timestamp=when)
    )


@pytest.mark.parametrize(
    ("object_", "expected"),
    [
        pytest.param(namespace("kubernetes"), True, id="terminating"),
        pytest.param(namespace("kubernetes", deleting=False), False, id="active"),
        pytest.param(namespace("example.com/mine"), False, id="only others hold it"),
    ],
)
def test_which_namespaces_are_emptied(object_, expected):
    assert ending(object_) is expected


def test_only_our_finalizer_is_taken_off():
    before = namespace("a.com/b", "kubernetes")
    assert finalized(before)["spec"] == {"finalizers": ["a.com/b"]}
    assert before["spec"] == {"finalizers": ["a.com/b", "kubernetes"]}


def test_pods_go_first_and_alone():
    assert next_kinds([(CONFIG_MAPS, 3), (PODS, 1)]) == [PODS]
    assert next_kinds([(CONFIG_MAPS, 3), (PODS, 0)]) == [CONFIG_MAPS]


@pytest.mark.parametrize(
    ("left", "asked", "expected"),
    [
        pytest.param(
            [seen(PODS, "p", deleting=True), seen(CONFIG_MAPS, "c")], [PODS], False, id="its turn comes later"
        ),
        pytest.param([seen(PODS, "p")], [PODS], True, id="it came after we asked"),
        pytest.param([seen(CONFIG_MAPS, "c")], [], True, id="we did not know of it"),
        pytest.param([seen(CONFIG_MAPS, "c", "x/y", deleting=True)], [], False, id="it waits for a finalizer"),
    ],
)
def test_leftovers_without_a_further_event_are_checked_again(left, asked, expected):
    assert overlooked(left, asked) is expected


def test_a_namespaces_conditions_explain_its_blockers():
    left = [seen(PODS, "a"), seen(CONFIG_MAPS, "b", "x/y"), seen(CONFIG_MAPS, "c", "x/y")]
    rows = {condition["type"]: condition for condition in conditions(progress(left, ["secrets: no"]))}
    assert rows["NamespaceContentRemaining"] == {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "reason": "SomeResourcesRemain",
        "message": "Some resources are remaining: configmaps. has 2 resource instances, pods. has 1 resource instances",
    }
    assert rows["NamespaceFinalizersRemaining"]["message"].endswith("remaining: x/y in 2 resource instances")
    assert rows["NamespaceDeletionContentFailure"]["message"] == "secrets: no"
    assert rows["NamespaceDeletionDiscoveryFailure"]["status"] == "False"


def test_conditions_are_written_only_when_they_change_and_keep_their_times():
    two = [seen(PODS, "a"), seen(PODS, "b")]
    first = with_conditions(namespace("kubernetes"), progress(two), NOW)
    assert with_conditions(first, progress(two), LATER) is None
    second = with_conditions(first, progress(two[:1]), LATER)
    [row] = [
        condition for condition in second["status"]["conditions"] if condition["type"] == "NamespaceContentRemaining"
    ]
    assert "1 resource instances" in row["message"]
    assert row["lastTransitionTime"] == NOW
    assert second["status"]["phase"] == "Terminating"


def definition(**spec) -> dict:
    return {
        "metadata": {
            "name": "things.example.com",
            "deletionTimestamp": NOW,
            "finalizers": ["customresourcecleanup.apiextensions.k8s.io", "a/b"],
        },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True}, {"name": "v2", "served": True, "storage": True}],
            **spec,
        },
    }


def test_instances_are_reached_in_a_version_that_is_served():
    assert instances(definition()).version == "v2"
    only_old = [{"name": "v1", "served": True}, {"name": "v2", "served": False, "storage": True}]
    assert instances(definition(versions=only_old)).version == "v1"
    assert instances(definition(versions=[{"name": "v2", "served": False, "storage": True}])) is None
    assert instances(definition(scope="Cluster")).namespaced is False


def test_a_definition_reports_its_progress_and_loses_only_our_finalizer():
    one = definition()
    assert definition_ending(one)
    assert not reports_termination(one)
    during = with_terminating(one, done=False, now=NOW)
    assert reports_termination(during)
    after = with_terminating(during, done=True, now=LATER)
    [row] = after["status"]["conditions"]
    assert (row["status"], row["reason"]) == ("False", "InstanceDeletionCompleted")
    assert released(after)["metadata"]["finalizers"] == ["a/b"]
    assert not definition_ending(released(after))


@pytest.mark.parametrize(
    ("event", "when"),
    [
        pytest.param({"metadata": {"creationTimestamp": NOW}}, NOW, id="reported once"),
        pytest.param({"metadata": {"creationTimestamp": NOW}, "lastTimestamp": LATER}, LATER, id="repeated"),
        pytest.param(
            {"metadata": {"creationTimestamp": NOW}, "series": {"lastObservedTime": "2026-01-01T00:01:00.000000Z"}},
            LATER,
            id="in a series",
        ),
        pytest.param({"metadata": {"creationTimestamp": NOW}, "eventTime": None, "series": None}, NOW, id="nulls"),
    ],
)
def test_an_event_is_as_old_as_its_last_repetition(event, when):
    assert last_seen(event) == parse(when)
