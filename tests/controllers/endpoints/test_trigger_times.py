"""When the change happened that a write of addresses follows."""

import msgspec

from podwire.controllers.endpoints.addresses import read_pod
from podwire.controllers.endpoints.trigger_times import ANNOTATION, TriggerTimes, marked

CREATED = "2026-01-01T00:00:00Z"
SERVICE = {"metadata": {"name": "web", "uid": "u", "creationTimestamp": CREATED}}


def pod(name, since):
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}] if since else []
    return read_pod(msgspec.json.encode({"metadata": {"name": name}, "status": {"conditions": conditions}}))


def at(minute):
    return f"2026-01-01T00:{minute:02}:00Z"


def test_the_first_time_is_that_of_the_service():
    assert TriggerTimes().of(SERVICE, [pod("a", at(5))]) == CREATED


def test_later_times_are_the_earliest_of_changed_pods():
    times = TriggerTimes()
    times.of(SERVICE, [pod("a", at(5)), pod("b", "")])
    assert times.of(SERVICE, [pod("a", at(5)), pod("b", "")]) == ""
    assert times.of(SERVICE, [pod("a", at(9)), pod("b", at(7))]) == at(7)
    assert times.of(SERVICE, [pod("a", at(9))]) == ""
    times.forget("u")
    assert times.of(SERVICE, [pod("a", at(9))]) == CREATED


def test_a_write_has_the_time_of_its_own_change_or_none():
    bare = {"metadata": {"name": "web"}}
    assert marked(bare, "") == bare
    first = marked(bare, at(1))
    assert first["metadata"]["annotations"] == {ANNOTATION: at(1)}
    assert marked(first, at(2))["metadata"]["annotations"] == {ANNOTATION: at(2)}
    assert marked(first, "")["metadata"]["annotations"] == {}
