"""The next step of a StatefulSet, and the owners of its claims, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.apps import stateful_claims as claims
from podwire.controllers.apps.stateful_decisions import parent_and_ordinal, plan, stateful_status, uses_current
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import Metadata, PartialObject, PodState

READY = PodState("Running", "n", True, "2026-01-01T00:00:00Z")
PENDING, BROKEN, FAILED = PodState(), PodState("Running", "n"), PodState("Failed", "n")
NOW = 2e9


def stateful(replicas, *, parallel=False, start=0, strategy="RollingUpdate", status=None, **rolling):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "ordinals": {"start": start},
            "podManagementPolicy": "Parallel" if parallel else "OrderedReady",
            "updateStrategy": {"type": strategy, "rollingUpdate": {"partition": 0, **rolling}},
        },
        "status": status or {},
    }


def pod(ordinal, state=READY, revision="new", *, deleting=False):
    name = f"web-{ordinal}"
    labels = {"controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": name}
    metadata = Metadata(
        name=name, uid=name, namespace="default", labels=labels, deletion_timestamp="now" if deleting else None
    )
    return PartialObject(PODS, metadata, pod=state)


def step(set_, *pods):
    made = plan(set_, pods, "new", NOW)
    return made.create, [pod.name for pod in made.delete]


@pytest.mark.parametrize(
    ("set_", "pods", "create", "delete"),
    [
        pytest.param(stateful(3), [], [0], [], id="ordered: the first"),
        pytest.param(stateful(3, parallel=True), [], [0, 1, 2], [], id="parallel: all"),
        pytest.param(stateful(2, start=5), [], [5], [], id="from another start"),
        pytest.param(stateful(3), [pod(0, PENDING)], [], [], id="ordered: waits until it is ready"),
        pytest.param(stateful(3), [pod(0)], [1], [], id="ordered: the next"),
        pytest.param(stateful(3), [pod(0), pod(2)], [1], [], id="ordered: the gap"),
        pytest.param(stateful(2), [pod(0, FAILED), pod(1)], [], ["web-0"], id="what ended is deleted"),
        pytest.param(stateful(2), [pod(0, FAILED, deleting=True), pod(1)], [], [], id="and waited for"),
        pytest.param(stateful(1), [pod(0), pod(1), pod(2)], [], ["web-2"], id="ordered: one from the top"),
        pytest.param(stateful(1), [pod(0), pod(1), pod(2, deleting=True)], [], [], id="ordered: waits for its end"),
        pytest.param(
            stateful(1, parallel=True), [pod(0), pod(1), pod(2)], [], ["web-2", "web-1"], id="parallel: all surplus"
        ),
        pytest.param(stateful(1), [pod(0), pod(1, BROKEN)], [], ["web-1"], id="the first broken one may go"),
        pytest.param(
            stateful(1), [pod(0), pod(1, BROKEN), pod(2, BROKEN)], [], [], id="ordered: waits for a lower broken one"
        ),
        pytest.param(
            stateful(3), [pod(0, revision="old"), pod(1, revision="old"), pod(2)], [], ["web-1"], id="update from above"
        ),
        pytest.param(
            stateful(3, partition=2), [pod(0, revision="old"), pod(1, revision="old"), pod(2)], [], [], id="partition"
        ),
        pytest.param(
            stateful(2, strategy="OnDelete"), [pod(0, revision="old"), pod(1, revision="old")], [], [], id="OnDelete"
        ),
        pytest.param(
            stateful(3, maxUnavailable=2),
            [pod(index, revision="old") for index in range(3)],
            [],
            ["web-2", "web-1"],
            id="two at once",
        ),
        pytest.param(
            stateful(3, parallel=True, maxUnavailable=1),
            [pod(0, revision="old"), pod(1, BROKEN, "old"), pod(2, revision="old")],
            [],
            ["web-1"],
            id="parallel: broken old pods first",
        ),
        pytest.param(
            stateful(3, parallel=True), [pod(0, revision="old"), pod(2, BROKEN)], [1], [], id="nothing while one lacks"
        ),
    ],
)
def test_the_next_step(set_, pods, create, delete):
    assert step(set_, *pods) == (create, delete)


@given(
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 7), st.tuples(st.sampled_from([READY, PENDING, BROKEN, FAILED]), st.booleans())),
    st.sampled_from(["new", "old"]),
)
def test_an_ordered_set_does_one_thing_at_a_time_and_never_deletes_two(replicas, states, revision):
    pods = [pod(ordinal, state, revision, deleting=deleting) for ordinal, (state, deleting) in states.items()]
    create, delete = step(stateful(replicas), *pods)
    assert len(create) + len(delete) <= 1
    if create:
        assert create[0] not in states
        assert all(states[lower] == (READY, False) for lower in range(create[0]))


@given(st.integers(0, 4), st.booleans(), st.lists(st.sampled_from(["old", "new"]), max_size=6), st.integers(1, 3))
def test_every_set_reaches_its_size_and_template(replicas, parallel, revisions, most):
    """Pods get ready and end at once."""
    set_ = stateful(replicas, parallel=parallel, maxUnavailable=most)
    pods = {index: pod(index, revision=revision) for index, revision in enumerate(revisions)}
    for _ in range(40):
        made = plan(set_, pods.values(), "new", NOW)
        if not made.create and not made.delete:
            break
        for ended in made.delete:
            del pods[parent_and_ordinal(ended.name)[1]]
        for ordinal in made.create:
            pods[ordinal] = pod(ordinal)
    assert sorted(pods) == list(range(replicas))
    assert all(pod.labels["controller-revision-hash"] == "new" for pod in pods.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web-0", ("web", 0)), ("a-b-12", ("a-b", 12)), ("web", ("", -1)), ("web-x", ("", -1)), ("web-99999999999", -1)],
)
def test_names_are_split_into_parent_and_ordinal(name, expected):
    found = parent_and_ordinal(name)
    assert found == expected or found[1] == expected


def test_new_pods_below_the_partition_get_the_current_template():
    assert [uses_current(stateful(3, partition=2), ordinal) for ordinal in range(3)] == [True, True, False]
    rolling = stateful(3, status={"currentReplicas": 1})
    del rolling["spec"]["updateStrategy"]["rollingUpdate"]
    assert [uses_current(rolling, ordinal) for ordinal in range(3)] == [True, False, False]


def test_the_status_completes_an_update():
    pods = [pod(0), pod(1)]
    half = stateful_status(stateful(3), [*pods, pod(2, revision="old", deleting=True)], "old", "new", 0, NOW)
    assert (half["currentRevision"], half["updatedReplicas"], half["replicas"]) == ("old", 2, 3)
    whole = stateful_status(stateful(2), pods, "old", "new", 0, NOW)
    assert (whole["currentRevision"], whole["currentReplicas"]) == ("new", 2)


def test_with_on_delete_the_current_revision_stays():
    status = stateful_status(stateful(2, strategy="OnDelete"), [pod(0), pod(1)], "old", "new", 0, NOW)
    assert (status["currentRevision"], status["updateRevision"]) == ("old", "new")
    assert (status.get("currentReplicas"), status["updatedReplicas"]) == (None, 2)


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "uid": "pod"}}


def retaining(deleted, scaled):
    set_ = stateful(1)
    set_["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": deleted, "whenScaled": scaled}
    return set_


@pytest.mark.parametrize(
    ("deleted", "scaled", "beyond", "expected"),
    [
        ("Retain", "Retain", False, []),
        ("Retain", "Retain", True, []),
        ("Delete", "Retain", False, ["set"]),
        ("Delete", "Retain", True, ["set"]),
        ("Retain", "Delete", False, []),
        ("Retain", "Delete", True, ["pod"]),
        ("Delete", "Delete", False, ["set"]),
        ("Delete", "Delete", True, ["pod"]),
    ],
)
def test_owners_of_claims_follow_the_policy(deleted, scaled, beyond, expected):
    set_ = retaining(deleted, scaled)
    first = claims.owners([], set_, POD, scaled_down=beyond)
    assert [item["uid"] for item in first or []] == expected
    assert claims.owners(first or [], set_, POD, scaled_down=beyond) is None
    back = claims.owners(first or [], retaining("Retain", "Retain"), POD, scaled_down=beyond)
    assert back == ([] if expected else None)


def test_a_claim_that_something_else_controls_is_left_alone():
    other = {"apiVersion": "v1", "kind": "Thing", "name": "x", "uid": "x", "controller": True}
    set_ = retaining("Delete", "Delete")
    assert claims.owners([other], set_, POD, scaled_down=True) is None
    assert claims.has_conflict([other], set_, POD)


def test_a_claim_of_an_earlier_pod_is_stale():
    earlier = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "earlier", "controller": True}
    assert claims.is_stale([earlier], POD)
    assert claims.owners([earlier], retaining("Delete", "Delete"), POD, scaled_down=False) is None
