"""Sizes, revisions and statuses of Deployments, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.apps import deployment_decisions as decisions
from podwire.controllers.apps import deployment_status as statuses
from podwire.objects.times import parse

NOW = parse("2026-01-01T12:00:00Z")


def deployment(replicas, *, surge=1, unavailable=1, generation=1, status=None, kind="RollingUpdate", **spec):
    rolling = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}} if kind == "RollingUpdate" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": generation},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
            "strategy": {"type": kind, **rolling},
            **spec,
        },
        "status": status or {},
    }


def set_(name, size, available=None, *, desired=None, most=None, age=0, revision=0, **status):
    annotations = {}
    if desired is not None:
        annotations[decisions.DESIRED_REPLICAS] = str(desired)
    if most is not None:
        annotations[decisions.MAX_REPLICAS] = str(most)
    if revision:
        annotations[decisions.REVISION] = str(revision)
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
            "annotations": annotations,
        },
        "spec": {"replicas": size, "template": {"metadata": {"labels": {"app": name}}}},
        "status": {
            "availableReplicas": size if available is None else available,
            "observedGeneration": 1,
            **status,
        },
    }


@pytest.mark.parametrize(
    ("wanted", "surge", "new", "old", "size"),
    [
        pytest.param(10, 2, 0, 10, 2, id="as many as the surge allows"),
        pytest.param(10, 0, 0, 10, 0, id="no surge: old ones go first"),
        pytest.param(10, "25%", 3, 8, 5, id="percentages are rounded up"),
        pytest.param(10, 10, 4, 3, 10, id="never above the size"),
        pytest.param(3, 1, 5, 0, 3, id="shrinks at once"),
        pytest.param(10, 1, 5, 7, 5, id="too many already"),
    ],
)
def test_the_new_set_grows(wanted, surge, new, old, size):
    assert decisions.new_set_size(deployment(wanted, surge=surge), set_("new", new), [set_("old", old)]) == size


@pytest.mark.parametrize(
    ("unavailable", "new", "old", "sizes"),
    [
        pytest.param(2, set_("new", 0), [set_("a", 10)], {"a": 8}, id="as many as may be unavailable"),
        pytest.param(0, set_("new", 1, 0), [set_("a", 10)], {}, id="the new pod is not available yet"),
        pytest.param(0, set_("new", 1, 1), [set_("a", 10)], {"a": 9}, id="one for one"),
        pytest.param(2, set_("new", 5, 0), [set_("a", 8, 5)], {}, id="budget used by new pods"),
        pytest.param(
            2, set_("new", 0), [set_("a", 5, 5, age=1), set_("b", 5, 2, age=2)], {"b": 3}, id="unhealthy pods first"
        ),
        pytest.param(
            5, set_("new", 0), [set_("a", 5, 5, age=1), set_("b", 5, 2, age=2)], {"b": 2, "a": 3}, id="then old ones"
        ),
    ],
)
def test_old_sets_shrink(unavailable, new, old, sizes):
    chosen = decisions.old_set_sizes(deployment(10, surge=0 if unavailable else 1, unavailable=unavailable), new, old)
    assert chosen == sizes


@st.composite
def rollouts(draw):
    wanted = draw(st.integers(1, 20))
    surge, unavailable = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    old = []
    for index in range(draw(st.integers(0, 3))):
        size = draw(st.integers(0, 12))
        old.append(set_(f"old{index}", size, draw(st.integers(0, size)), age=index))
    size = draw(st.integers(0, 20))
    return deployment(wanted, surge=surge, unavailable=unavailable), set_("new", size, draw(st.integers(0, size))), old


@given(rollouts())
def test_a_step_never_breaks_the_bounds_by_itself(rollout):
    given_, new, old = rollout
    wanted, available = decisions.replicas(given_), sum(s["status"]["availableReplicas"] for s in (new, *old))
    total = sum(map(decisions.replicas, (new, *old)))
    size = decisions.new_set_size(given_, new, old)
    surge = given_["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    assert size <= max(wanted, 0)
    if size > decisions.replicas(new):
        assert total + size - decisions.replicas(new) <= wanted + surge
    sizes = decisions.old_set_sizes(given_, new, old)
    lost = 0
    for item in old:
        name, before = item["metadata"]["name"], decisions.replicas(item)
        after = sizes.get(name, before)
        assert 0 <= after <= before
        unhealthy = before - item["status"]["availableReplicas"]
        lost += max(0, before - after - unhealthy)
    if lost:
        assert available - lost >= wanted - decisions.max_unavailable(given_)


@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 4))
def test_every_rollout_ends(wanted, surge, unavailable):
    """Pods of the new set become available at once; those of old sets end at once."""
    given_ = deployment(wanted, surge=surge, unavailable=unavailable)
    new, old = set_("new", 0), set_("old", wanted)
    for _ in range(4 * wanted + 4):
        size = decisions.new_set_size(given_, new, [old])
        if size != decisions.replicas(new):
            new = set_("new", size)
            continue
        sizes = decisions.old_set_sizes(given_, new, [old])
        if not sizes:
            break
        old = set_("old", sizes["old"])
    assert (decisions.replicas(new), decisions.replicas(old)) == (wanted, 0)


@pytest.mark.parametrize(
    ("wanted", "new", "old", "sizes"),
    [
        pytest.param(5, set_("new", 3), [], {"new": 5}, id="one set gets all"),
        pytest.param(5, set_("new", 5), [set_("a", 0)], {"new": 5}, id="the size is right already"),
        pytest.param(3, None, [set_("a", 0, age=1), set_("b", 0, age=2)], {"b": 3}, id="the latest, if none is active"),
        pytest.param(
            15,
            set_("new", 5, 0, desired=10, most=13, age=2),
            [set_("a", 8, desired=10, most=13, age=1)],
            {"a": 11, "new": 7},
            id="in proportion, the rest to the largest",
        ),
        pytest.param(
            0,
            set_("new", 5, desired=10, most=13, age=2),
            [set_("a", 8, desired=10, most=13, age=1)],
            {"a": 0, "new": 0},
            id="to zero",
        ),
        pytest.param(
            10,
            set_("new", 10, desired=10, most=12, age=2),
            [set_("a", 2, desired=12, most=13)],
            {"a": 0},
            id="a new set that is complete ends the old ones",
        ),
    ],
)
def test_scaling_in_the_middle_of_a_rollout(wanted, new, old, sizes):
    assert decisions.proportional_sizes(deployment(wanted, surge=3, unavailable=2), new, old) == sizes


@given(
    st.integers(0, 40),
    st.integers(1, 40),
    st.lists(st.integers(1, 20), min_size=2, max_size=4),
    st.integers(0, 5),
)
def test_scaled_sets_add_up_to_size_and_surge(wanted, before, sizes, surge):
    sets = [set_(f"s{index}", size, 0, desired=before, most=before, age=index) for index, size in enumerate(sizes)]
    given_ = deployment(wanted, surge=surge, unavailable=1)
    chosen = decisions.proportional_sizes(given_, sets[-1], sets[:-1])
    allowed = wanted + decisions.max_surge(given_) if wanted else 0
    assert all(size >= 0 for size in chosen.values())
    if allowed >= sum(sizes):
        assert sum(chosen.values()) == allowed


def test_a_new_set_takes_selector_labels_and_the_next_revision():
    set_of = decisions.new_set(deployment(4), [set_("old", 4, revision=6)])
    hash_ = set_of["metadata"]["labels"]["pod-template-hash"]
    assert set_of["metadata"]["name"] == f"web-{hash_}"
    assert set_of["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_}
    assert set_of["spec"]["template"]["metadata"]["labels"] == {"app": "web", "pod-template-hash": hash_}
    assert set_of["spec"]["replicas"] == 1
    assert decisions.revision(set_of) == 7
    assert decisions.template_hash({}, 1) != decisions.template_hash({}, None)
    assert decisions.same_template(set_of["spec"]["template"], deployment(4)["spec"]["template"])


def test_the_name_of_a_set_is_not_too_long():
    long = deployment(1)
    long["metadata"]["name"] = "x" * 253
    assert len(decisions.new_set(long, [])["metadata"]["name"]) == 253


def test_a_revision_of_an_adopted_set_may_have_nineteen_digits():
    largest = 2**63 - 1
    assert decisions.revision(decisions.new_set(deployment(1), [set_("old", 1, revision=largest - 1)])) == largest
    assert decisions.revision(set_("old", 1, revision=largest + 1)) == 0, "beyond 64 bits it is not a revision"


def test_the_revision_history_forgets_the_oldest():
    one = set_("new", 1, revision=900)
    one["metadata"]["annotations"][decisions.REVISION_HISTORY] = ",".join(map(str, range(100, 600)))
    changed = decisions.with_revision(deployment(1), one, [set_("old", 0, revision=950)])
    history = changed["metadata"]["annotations"][decisions.REVISION_HISTORY]
    assert history.endswith(",900")
    assert len(history) <= decisions.HISTORY_CHARACTERS
    assert decisions.revision(changed) == 951


def test_sets_with_the_lowest_revisions_are_deleted_unless_they_have_pods():
    old = [set_("c", 0, revision=3), set_("a", 0, revision=1), set_("b", 0, revision=2, replicas=1)]
    chosen = decisions.sets_to_delete(deployment(1, revisionHistoryLimit=1), old)
    assert [item["metadata"]["name"] for item in chosen] == ["a"]
    assert decisions.sets_to_delete(deployment(1), old) == []


def progress(status):
    found = [condition for condition in status["conditions"] if condition["type"] == "Progressing"]
    return (found[0]["status"], found[0]["reason"], found[0]["lastUpdateTime"]) if found else None


def test_progress_and_its_deadline():
    given_ = deployment(2, progressDeadlineSeconds=10)
    new = set_("new", 2, 0, replicas=2)
    status = statuses.rolled_out(given_, new, [], NOW)
    assert progress(status) == ("True", "ReplicaSetUpdated", "2026-01-01T12:00:00Z")
    given_["status"] = status
    assert statuses.rolled_out(given_, new, [], NOW + 5) == status
    assert statuses.deadline_in(given_, status, NOW + 5) == 6
    late = statuses.rolled_out(given_, new, [], NOW + 11)
    assert progress(late)[:2] == ("False", "ProgressDeadlineExceeded")
    given_["status"] = late
    done = statuses.rolled_out(given_, set_("new", 2, 2, replicas=2, readyReplicas=2), [], NOW + 20)
    assert progress(done)[:2] == ("True", "NewReplicaSetAvailable")
    given_["status"] = done
    worse = statuses.rolled_out(given_, new, [], NOW + 99)
    assert progress(worse) == progress(done)
    assert statuses.deadline_in(given_, worse, NOW + 99) is None


def test_without_a_deadline_there_is_no_progress_condition():
    status = statuses.rolled_out(deployment(2, progressDeadlineSeconds=decisions.FOREVER), set_("new", 2, 0), [], NOW)
    assert progress(status) is None
    assert [condition["type"] for condition in status["conditions"]] == ["Available"]
