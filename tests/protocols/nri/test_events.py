"""Events: bits, versions, and the two ways to tell of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.nri import ALL, VERSION, Event, Subscription, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import (
    ALL_EVENTS,
    BY_TITLE,
    FIRST_EVENTS,
    as_state_change,
    events_of,
    from_state_change,
    nri_version_of,
)

STATE_CHANGES = {1, 2, 3, 5, 6, 7, 9, 11, 13}
OF_PODS = {1, 2, 3, 13}


def test_events_are_the_protocols_and_their_numbers_too():
    ours = {item.name: int(item) for item in Event}
    assert ours == {name: number for name, number in pb.Event.items() if name not in ("UNKNOWN", "LAST")}
    assert [item.bit for item in Event] == [1 << (number - 1) for number in range(1, 15)]


@pytest.mark.parametrize("event", Event, ids=lambda each: each.title)
def test_an_event_is_the_call_of_its_name(event):
    assert event.method in methods.PLUGIN
    assert event.title.lower() == event.name.replace("_", "").lower()
    assert BY_TITLE[event.title] is event


def test_all_calls_but_configure_synchronize_shutdown_and_statechange_are_events():
    others = {method.name for method in methods.PLUGIN} - set(BY_TITLE)
    assert others == {"Configure", "Synchronize", "Shutdown", "StateChange"}


@pytest.mark.parametrize(
    ("version", "mask"),
    [
        pytest.param("", FIRST_EVENTS, id="no version, before 0.12"),
        *(
            pytest.param(name, FIRST_EVENTS, id=name)
            for name in ("v0.2.0", "v0.3.0", "v0.4.0", "v0.6.0", "v0.6.1", "v0.7.0", "v0.8.0", "v0.9.0", "0.9.5")
        ),
        *(
            pytest.param(item, ALL_EVENTS, id=item)
            for item in (
                "v0.10.0",
                "v0.11.0",
                "v0.12.0",
                "v0.12.1",
                "v0.12.2",
                "v0.12.3-0.2026",
                "0.13",
                "v1.0.0",
                VERSION,
            )
        ),
        pytest.param("0.0.0-unknown", ALL_EVENTS, id="a build that does not know its own, as Go's stub says it"),
        pytest.param("(devel)", ALL_EVENTS, id="unknown version, so 0.12 or newer"),
    ],
)
def test_a_version_knows_so_many_events(version, mask):
    assert events_of(version) == mask
    assert ALL.known_to(version) == Subscription(mask)
    assert Subscription.of(Event.STOP_CONTAINER).known_to(version) == Subscription.of(Event.STOP_CONTAINER)


@pytest.mark.parametrize(
    ("name", "release", "version"),
    [
        ("containerd", "v1.7.0", "v0.3.0"),
        ("containerd", "1.7.6", "v0.3.0"),
        ("containerd", "v1.7.7", "v0.4.0"),
        ("containerd", "v1.7.13", "v0.4.0"),
        ("containerd", "v1.7.14", "v0.6.0"),
        ("containerd", "v1.7.25", "v0.6.0"),
        ("containerd", "v1.7.27", "v0.8.0"),
        ("containerd", "v2.0.0", "v0.8.0"),
        ("containerd", "v2.1.4", "v0.8.0"),
        ("containerd", "v2.2.0", "v0.10.0"),
        ("containerd", "v2.2.1", "v0.11.0"),
        ("containerd", "v1.6.20", ""),
        ("CRI-O", "1.26.0", "v0.2.0"),
        ("cri-o", "1.31.1", "v0.6.0"),
        ("cri-o", "1.32.4", "v0.9.0"),
        ("cri-o", "1.34.0", "v0.10.0"),
        ("cri-o", "1.35.0", "v0.11.0"),
        ("cri-o", "", ""),
        ("another", "v2.2.0", ""),
    ],
)
def test_the_nri_version_of_an_old_runtime_follows_from_its_release(name, release, version):
    configure = pb.ConfigureRequest(runtime_name=name, runtime_version=release)
    assert nri_version_of(configure) == version
    has_more = version in ("v0.10.0", "v0.11.0")
    assert events_of(nri_version_of(configure)) == (ALL_EVENTS if has_more else FIRST_EVENTS)


def test_the_reported_version_takes_precedence_over_the_release():
    configure = pb.ConfigureRequest(runtime_name="containerd", runtime_version="v1.7.0", NRI_version="v0.12.0")
    assert nri_version_of(configure) == "v0.12.0"


def test_unknown_event_bits_are_detected():
    assert Subscription(ALL_EVENTS | 1 << 14 | 1 << 30).unknown == 1 << 14 | 1 << 30
    assert Subscription(ALL_EVENTS).unknown == 0


@given(st.sets(st.sampled_from(list(Event))))
def test_a_subscription_contains_its_events(events):
    subscription = Subscription.of(*events, *events)
    assert {item for item in Event if item in subscription} == events
    assert subscription.unknown == 0


def request_for(event):
    request = event.method.request(pod=pb.PodSandbox(id="p", name="web", annotations={"k": "v"}))
    if event not in OF_PODS:
        request.container.id, request.container.name = "c", "app"
    return request


@pytest.mark.parametrize("event", [item for item in Event if item in STATE_CHANGES], ids=lambda each: each.title)
def test_nine_events_have_an_equivalent_state_change(event):
    assert event.was_state_change
    result = as_state_change(event, request_for(event))
    assert (result.event, result.pod.name, result.container.name) == (event, "web", "" if event in OF_PODS else "app")
    assert result.HasField("container") is (event not in OF_PODS)
    travelled = pb.StateChangeEvent.FromString(result.SerializeToString())
    assert from_state_change(travelled) == (event, request_for(event))


@pytest.mark.parametrize("event", [item for item in Event if item not in STATE_CHANGES], ids=lambda each: each.title)
def test_the_other_five_always_had_a_call_of_their_own(event):
    assert not event.was_state_change
    assert from_state_change(pb.StateChangeEvent(event=pb.Event.Name(int(event)))) is None


@pytest.mark.parametrize("number", [0, 15, 99, -1], ids=["UNKNOWN", "LAST", "one of the future", "below zero"])
def test_an_unknown_state_change_is_none(number):
    result = pb.StateChangeEvent.FromString(pb.StateChangeEvent(event=number).SerializeToString())
    assert from_state_change(result) is None
