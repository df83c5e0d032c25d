"""The driver's file, read strictly; the filter; how long a condition lasts."""

import pytest

from podwire.dradriver.config import load
from podwire.dradriver.inventory.config import Config, Shared, config
from podwire.dradriver.inventory.filter import Filter
from podwire.dradriver.inventory.health import Condition, Health, HealthTracker
from podwire.protocols.settings import BadConfig


def test_file_sets_every_setting(tmp_path):
    path = tmp_path / "driver.yaml"
    path.write_text(
        """
filter: attributes["kind"] != "veth"
shared:
- interface: eth1
  slots: 32
  bandwidth: 10G
- interface: br0
shareBridges: false
bridgeSlots: 8
trustedBridges: [br1]
taintEffect: NoExecute
patienceSeconds: 0.5
"""
    )
    parents = (Shared(interface="eth1", slots=32, bandwidth=10_000_000_000), Shared(interface="br0"))
    expected = Config(
        filter='attributes["kind"] != "veth"',
        shared=parents,
        bridges=False,
        slots=8,
        trusted_bridges=("br1",),
        taint="NoExecute",
        patience=0.5,
    )
    assert load(path).offering == expected


def test_empty_file_gives_the_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert load(tmp_path / "empty.yaml").offering == Config()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], "must be a mapping with filter, shared, shareBridges, bridgeSlots, trustedBridges, taintEffect"),
        ({"share": []}, "share: is not a setting; known settings: filter"),
        ({"shared": {}}, "shared: must be a list of up to 64"),
        ({"shared": ["eth1"]}, "shared[0]: must be a mapping with interface, slots, bandwidth"),
        ({"shared": [{"slots": 3}]}, "shared[0].interface: is required"),
        ({"shared": [{"interface": "a/b"}]}, "shared[0].interface: 'a/b' is not a name of a link"),
        ({"shared": [{"interface": "x" * 16}]}, "shared[0].interface: 'xxxxxxxxxxxxxxxx' is not a name of a link"),
        ({"shared": [{"interface": "a"}, {"interface": "a"}]}, "shared[1].interface: a is listed twice"),
        ({"shared": [{"interface": "a", "slots": 0}]}, "shared[0].slots: 0 must be a number from 1 to 4096"),
        ({"shared": [{"interface": "a", "slots": True}]}, "shared[0].slots: True must be a number from 1 to 4096"),
        ({"shared": [{"interface": "a", "speed": 1}]}, "shared[0].speed: is not a setting; known settings: interface"),
        ({"shared": [{"interface": "a", "bandwidth": "fast"}]}, "shared[0].bandwidth: 'fast' is not a bandwidth"),
        ({"shared": [{"interface": "a", "bandwidth": "1k"}]}, "shared[0].bandwidth: '1k' is not a bandwidth"),
        ({"shared": [{"interface": "a", "bandwidth": -5}]}, "shared[0].bandwidth: -5 is not a bandwidth"),
        ({"shared": [{"interface": "a", "bandwidth": "1.2.3G"}]}, "shared[0].bandwidth: '1.2.3G' is not a bandwidth"),
        ({"shareBridges": "yes please"}, "shareBridges: must be true or false"),
        ({"trustedBridges": "br0"}, "trustedBridges: must be a list of up to 64 names of links"),
        ({"trustedBridges": ["a/b"]}, "trustedBridges[0]: 'a/b' is not a name of a link"),
        ({"taintEffect": "NoWay"}, "taintEffect: 'NoWay' must be one of None, NoSchedule, NoExecute"),
        ({"patienceSeconds": -1}, "patienceSeconds: -1 is not a number of seconds from 0 to 3600"),
        ({"filter": 7}, "filter: is not an expression of up to 10240 bytes"),
    ],
)
def test_error_names_the_key_and_the_reason(found, expected):
    with pytest.raises(BadConfig) as caught:
        config(found)
    assert str(caught.value).startswith(expected)


def test_error_names_the_whole_key_of_a_part():
    with pytest.raises(BadConfig) as caught:
        config({"shared": [{"interface": ""}]}, "inventory")
    assert caught.value.key == "inventory.shared[0].interface"


@pytest.mark.parametrize("text", ["a: [", "filter: a\nfilter: b", "a: &x [*x]", "!!python/object:os.system {}"])
def test_invalid_yaml_is_refused(tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(BadConfig):
        load(tmp_path / "bad.yaml")


VALUES = {"interface": "eth1", "kind": "veth", "mtu": 9000, "carrier": True, "speed": None}


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", ""),
        ('attributes["kind"] == "veth"', ""),
        ('attributes["interface"].startsWith("eth") && attributes.mtu >= 9000', ""),
        ('attributes["kind"] != "veth"', "the filter excludes it"),
        ('attributes["speed"] > 1000', "the filter failed: no such key: speed"),
        ("has(attributes.speed) && attributes.speed > 1000", "the filter excludes it"),
        ('attributes["mtu"].startsWith("9")', "the filter failed: "),
        ('attributes["mtu"]', "the filter says 9000, neither true nor false"),
    ],
)
def test_device_for_which_the_filter_fails_is_not_offered(expression, why):
    found = Filter(expression).why_not(VALUES)
    assert found.startswith(why) if why else not found


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("attributes[", "filter: "),
        ("device.driver == 'x'", "filter: "),
        ("'yes'", "filter: must evaluate to bool, not to string"),
    ],
)
def test_a_filter_that_is_none_is_refused_at_once(expression, why):
    with pytest.raises(BadConfig, match=why):
        Filter(expression)


DOWN, GONE = Condition("down", "has no carrier"), Condition("gone", "was deleted", certain=True)


def test_a_condition_counts_when_it_has_lasted():
    tracker = HealthTracker(3.0)
    assert tracker.update({"a": None}, 0.0, 1000.0) == {"a": Health(True, "", 1000.0)}
    assert tracker.waits(0.0) is None
    assert tracker.update({"a": DOWN}, 10.0, 1010.0)["a"].healthy
    assert tracker.waits(11.0) == 2.0
    assert tracker.update({"a": DOWN}, 13.0, 1013.0) == {"a": Health(False, "has no carrier", 1013.0, "down")}
    assert tracker.waits(13.0) is None
    assert tracker.update({"a": DOWN}, 14.0, 1014.0)["a"].since == 1013.0
    assert tracker.update({"a": None}, 15.0, 1015.0) == {"a": Health(True, "", 1015.0)}


def test_condition_that_ends_in_time_is_not_reported():
    tracker = HealthTracker(3.0)
    for now in (0.0, 2.0, 4.0, 6.0):
        assert tracker.update({"a": DOWN}, now, now)["a"].healthy
        assert tracker.update({"a": None}, now + 1, now + 1)["a"].healthy
        assert tracker.waits(now + 1) is None


def test_certain_condition_counts_at_once():
    tracker = HealthTracker(3.0)
    assert tracker.update({"a": DOWN}, 0.0, 0.0)["a"].healthy
    assert tracker.update({"a": GONE}, 1.0, 1.0) == {"a": Health(False, "was deleted", 1.0, "gone")}


def test_another_condition_has_to_last_too():
    tracker = HealthTracker(3.0)
    tracker.update({"a": GONE}, 0.0, 0.0)
    assert tracker.update({"a": DOWN}, 1.0, 1.0)["a"].taint == "gone"
    assert tracker.waits(1.0) == 3.0
    assert tracker.update({"a": DOWN}, 4.0, 4.0)["a"].taint == "down"


def test_health_of_removed_devices_is_forgotten():
    tracker = HealthTracker(3.0)
    tracker.update({"a": DOWN}, 0.0, 0.0)
    assert tracker.update({}, 1.0, 1.0) == {}
    assert tracker.waits(1.0) is None
