"""Pods on tainted devices, decided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers import device_taints
from podwire.controllers.device_taints import Effect, Eviction
from podwire.objects import claims, slices
from podwire.objects.device_taints import DeviceTaint, read_rule
from podwire.objects.times import parse, rfc3339

ADDED = "2027-01-01T00:00:00Z"
START = parse(ADDED)
TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute", "timeAdded": ADDED}


def claim(*tolerations, device="eth2"):
    result = {"request": "nic", "driver": "d", "pool": "n1", "device": device, "tolerations": list(tolerations)}
    return claims.read({"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}})


def slice_(name="s", generation=1, **taints):
    devices = [{"name": device, "taints": each} for device, each in taints.items()]
    spec = {"driver": "d", "pool": {"name": "n1", "generation": generation}, "devices": devices}
    return device_taints.noexecute_taints(slices.read({"metadata": {"name": name}, "spec": spec}))


def rule(selector=None, effect="NoExecute", uid="r-1", generation=3):
    spec = {"taint": {**TAINT, "effect": effect}, **({} if selector is None else {"deviceSelector": selector})}
    return read_rule({"metadata": {"name": "r", "uid": uid, "generation": generation}, "spec": spec})


def tolerated(seconds=None, **toleration):
    return {
        "key": "broken",
        "operator": "Exists",
        **toleration,
        **({} if seconds is None else {"tolerationSeconds": seconds}),
    }


@pytest.mark.parametrize(
    ("given_", "taints", "when"),
    [
        pytest.param(claim(), [TAINT], 0, id="at once"),
        pytest.param(claim(), [], None, id="no taint"),
        pytest.param(claim(), [{**TAINT, "effect": "NoSchedule"}], None, id="a taint that ends nobody"),
        pytest.param(claim(device="eth3"), [TAINT], None, id="of another device"),
        pytest.param(claim(tolerated()), [TAINT], None, id="tolerated for ever"),
        pytest.param(claim(tolerated(30)), [TAINT], 30, id="tolerated for a while"),
        pytest.param(claim(tolerated(-5)), [TAINT], 0, id="tolerated for less than nothing"),
        pytest.param(claim(tolerated(30), tolerated(10)), [TAINT], 10, id="the shortest counts"),
        pytest.param(claim(tolerated(30), tolerated()), [TAINT], None, id="unless one is for ever"),
        pytest.param(claim(tolerated(effect="NoSchedule")), [TAINT], 0, id="another effect is tolerated"),
        pytest.param(claim(tolerated(30)), [TAINT, {**TAINT, "key": "k"}], 0, id="one of two is tolerated"),
    ],
)
def test_a_claim_is_given_up_when_its_devices_taint_is_not_tolerated(given_, taints, when):
    tainted = device_taints.tainted([slice_(eth2=taints)])

    expected = None if when is None else Eviction(START + when)

    assert device_taints.eviction_of(given_, tainted, []) == expected


def test_only_the_newest_generation_of_a_pool_counts():
    old, new = slice_("old", 1, eth2=[TAINT]), slice_("new", 2, eth3=[TAINT])

    assert device_taints.tainted([old]) == {("d", "n1", "eth2"): (DeviceTaint(**_snake(TAINT)),)}
    assert set(device_taints.tainted([new, old])) == {("d", "n1", "eth3")}


def _snake(taint):
    return {"time_added" if key == "timeAdded" else key: value for key, value in taint.items()}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        pytest.param(rule({"driver": "d"}), Eviction(START, frozenset({"r-1"})), id="of the driver"),
        pytest.param(rule({"pool": "other"}), None, id="of another pool"),
        pytest.param(rule(), None, id="of no device"),
        pytest.param(rule({}, "NoSchedule"), None, id="of another effect"),
    ],
)
def test_a_rule_taints_devices_independently_of_their_slice(given_, expected):
    assert device_taints.eviction_of(claim(), {}, [given_]) == expected


@given(st.lists(st.integers(min_value=0, max_value=10**6), min_size=1, max_size=6))
def test_the_first_of_all_times_counts_and_all_rules_are_named(seconds):
    rules = [
        read_rule(
            {
                "metadata": {"name": f"r{index}", "uid": f"u{index}"},
                "spec": {"deviceSelector": {}, "taint": {**TAINT, "timeAdded": rfc3339(START + each)}},
            }
        )
        for index, each in enumerate(seconds)
    ]
    expected = Eviction(START + min(seconds), frozenset(rule.metadata.uid for rule in rules))
    assert device_taints.eviction_of(claim(), {}, rules) == expected


@pytest.mark.parametrize(
    ("effect", "numbers", "status", "reason", "message"),
    [
        pytest.param("NoExecute", Effect(), "False", "NotStarted", "", id="nothing to do"),
        pytest.param(
            "NoExecute",
            Effect(pods=1, namespaces=1),
            "True",
            "PodsPendingEviction",
            "1 pod needs to be evicted in 1 namespace.",
            id="one pod",
        ),
        pytest.param(
            "NoExecute",
            Effect(pods=3, namespaces=2, evicted=1),
            "True",
            "PodsPendingEviction",
            "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
            id="several",
        ),
        pytest.param(
            "NoExecute",
            Effect(evicted=2),
            "False",
            "Completed",
            "2 pods evicted since starting the controller.",
            id="done",
        ),
        pytest.param(
            "NoSchedule",
            Effect(),
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.",
            id="other",
        ),
        pytest.param(
            "None",
            Effect(pods=1, namespaces=1, published=4, allocated=1),
            "False",
            "NoEffect",
            "4 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the "
            "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to "
            "trigger an update.",
            id="a rehearsal",
        ),
    ],
)
def test_a_rules_status_reports_its_effect(effect, numbers, status, reason, message):
    assert device_taints.condition(rule({}, effect), numbers) == {
        "type": "EvictionInProgress",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 3,
    }
