"""Events as values: counted, thinned out, named, cut, and written for either API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import names, pods
from podwire.protocols.k8sapi.client_side.events import (
    BURST,
    CORE_V1,
    EVENTS_V1,
    MESSAGE_BYTES,
    REFILL_SECONDS,
    Names,
    Note,
    RecordedEvent,
    Reference,
    Source,
    Tally,
    short,
)

NOON = 1_800_000_000.0
POD = Reference("Pod", "web", "default", "u1", resource_version="7")
NOTE = Note(POD, "Normal", "Pulled", "x", "spec.containers{a}")
SOURCE = Source("kubelet", "n1")


def test_a_pod_is_referred_to_in_the_version_that_was_seen():
    meta = {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7"}
    assert Reference.to(pods.read({"metadata": meta, "spec": {}})) == POD


def test_a_repeated_event_is_counted_with_first_and_last_time():
    tally = Tally()
    assert tally.add(NOTE, NOON, 0.0) is tally.add(NOTE, NOON + 10, 10.0)
    recorded = tally.add(NOTE, NOON + 20, 20.0)
    assert (recorded.count, recorded.first, recorded.last) == (3, NOON, NOON + 20)


def test_events_of_a_changed_object_are_aggregated_with_its_newest_version():
    tally, changed = Tally(), NOTE._replace(about=POD._replace(resource_version="8"))
    recorded = tally.add(NOTE, NOON, 0.0)
    assert tally.add(changed, NOON, 0.0) is recorded
    assert recorded.note.about.resource_version == "8"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"type": "Warning"}, id="type"),
        pytest.param({"reason": "Failed"}, id="reason"),
        pytest.param({"message": "y"}, id="message"),
        pytest.param({"field_path": "spec.containers{b}"}, id="container"),
        pytest.param({"action": "Binding"}, id="action"),
        pytest.param({"about": POD._replace(uid="u2")}, id="object of the same name"),
        pytest.param({"about": POD._replace(kind="Node")}, id="kind of the same name"),
    ],
)
def test_an_event_is_another_one_with_another(other):
    tally = Tally()
    first, second = tally.add(NOTE, NOON, 0.0), tally.add(NOTE._replace(**other), NOON, 0.0)
    assert first is not second
    assert tally.add(NOTE, NOON, 0.0) is first
    assert (first.count, second.count) == (2, 1)


def test_one_object_does_not_drown_the_others_and_its_count_stays_true():
    tally = Tally()
    passed = [tally.add(NOTE._replace(message=str(index)), NOON, 0.0) for index in range(BURST + 10)]
    assert [item is not None for item in passed] == [True] * BURST + [False] * 10
    assert tally.add(NOTE._replace(about=POD._replace(uid="u2")), NOON, 0.0) is not None
    assert tally.add(NOTE._replace(message="1"), NOON, 0.0) is None
    assert tally.add(NOTE._replace(message="1"), NOON, REFILL_SECONDS - 1) is None
    again = tally.add(NOTE._replace(message="1"), NOON, REFILL_SECONDS)
    assert again is passed[1]
    assert again.count == 4  # those that were not passed on are in it


def test_the_rate_limit_allows_one_burst_after_a_pause():
    tally = Tally()
    tally.add(NOTE, NOON, 0.0)
    late = [tally.add(NOTE, NOON, 1000 * REFILL_SECONDS) for _ in range(BURST + 1)]
    assert [item is not None for item in late] == [True] * BURST + [False]


def test_the_least_recent_events_are_forgotten():
    tally = Tally(remembered=2)
    for name in ("a", "b", "a", "c"):
        tally.add(NOTE._replace(message=name), NOON, 0.0)
    assert [tally.add(NOTE._replace(message=name), NOON, 0.0).count for name in ("a", "c", "b")] == [3, 2, 1]


def test_an_expired_event_starts_again_with_the_unsent_count():
    recorded = RecordedEvent(NOTE, first=NOON, last=NOON + 10, count=5, sent_count=3, name="web.1")
    recorded.forgotten()
    assert recorded == RecordedEvent(NOTE, first=NOON + 10, last=NOON + 10, count=2, sent_count=0, name="")


@given(st.lists(st.floats(min_value=0, max_value=4e9), min_size=2, max_size=20))
def test_names_are_unique_even_if_the_clock_goes_back(walls):
    made, given_ = Names(), [int(wall * 1e9) for wall in walls]
    stamps = [int(made.new("web", wall).removeprefix("web."), 16) for wall in walls]
    assert stamps == sorted(set(stamps))
    assert all(stamp >= wall for stamp, wall in zip(stamps, given_, strict=True))


def test_the_name_of_an_event_is_that_of_its_object_and_the_nanosecond():
    assert Names().new("web", NOON) == "web.18fae27693b40000"


def test_the_name_of_an_event_is_valid_for_long_object_names():
    name = Names().new("n" * 235 + "-" * 18, NOON)
    assert len(name) <= 253
    assert names.dns_subdomain(name) == []


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        pytest.param("a" * 1024, "a" * 1024, id="that fits"),
        pytest.param("a" * 1025, "a" * 1021 + "...", id="that does not"),
        pytest.param("ä" * 600, "ä" * 510 + "...", id="in letters of two bytes"),
        pytest.param("\udc80", "?", id="in letters that are none"),
        pytest.param("", "", id="of nothing"),
    ],
)
def test_a_message(message, sent):
    assert short(message) == sent


@given(st.text(max_size=2000))
def test_no_message_is_too_long(message):
    assert len(short(message).encode()) <= MESSAGE_BYTES


def test_the_core_api_has_its_own_words():
    recorded = RecordedEvent(NOTE, first=NOON, last=NOON + 10, count=2, name="web.1")
    assert CORE_V1.kind.api_version == "v1"
    assert CORE_V1.event(recorded, SOURCE) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "namespace": "default",
            "uid": "u1",
            "resourceVersion": "7",
            "fieldPath": "spec.containers{a}",
        },
        "type": "Normal",
        "reason": "Pulled",
        "message": "x",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:10Z",
        "count": 2,
        "reportingComponent": "kubelet",
        "reportingInstance": "n1",
    }
    assert CORE_V1.repeat(recorded) == {"count": 2, "lastTimestamp": "2027-01-15T08:00:10Z"}


def test_unknown_fields_are_left_out():
    event = CORE_V1.event(
        RecordedEvent(Note(Reference("Node", "n1"), "Normal", "NodeReady", "x"), NOON, NOON), Source("c")
    )
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert (event["metadata"]["namespace"], event["source"]) == ("default", {"component": "c"})
    assert "reportingInstance" not in event


def test_the_newer_api_has_other_words():
    note = Note(POD, "Warning", "FailedScheduling", "no space", action="Scheduling")
    recorded = RecordedEvent(note, first=NOON + 0.25, last=NOON + 0.25, count=1, name="web.1")
    once = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default"},
        "eventTime": "2027-01-15T08:00:00.250000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "s-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "no space",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": "u1",
            "resourceVersion": "7",
        },
    }
    source = Source("default-scheduler", "s-1")
    assert EVENTS_V1.kind.api_version == "events.k8s.io/v1"
    assert EVENTS_V1.event(recorded, source) == once
    recorded.count = 3
    series = {"series": {"count": 3, "lastObservedTime": "2027-01-15T08:00:00.250000Z"}}
    assert EVENTS_V1.event(recorded, source) == once | series
    assert EVENTS_V1.repeat(recorded) == series
