"""States of zones and the rates at which their nodes may be tainted, with upstream's numbers."""

import pytest

from podwire.controllers.limits import Limits
from podwire.controllers.zone_disruption import FULL, NORMAL, PARTIAL, Zones, zone_of

LIMITS = Limits()


def zones(**counts):
    """Zones by name: how many nodes are ready, and how many are not."""
    made = Zones(LIMITS)
    for zone, (ready, failed) in counts.items():
        for number in range(ready + failed):
            made.observe(f"{zone}-{number}", zone, is_ready=number < ready)
    return made


@pytest.mark.parametrize(
    ("counts", "state", "rate"),
    [
        ((3, 0), NORMAL, 0.1),
        ((1, 1), NORMAL, 0.1),
        ((0, 1), FULL, 0.1),
        ((1, 2), NORMAL, 0.1),
        ((2, 3), PARTIAL, 0.0),
        ((3, 3), NORMAL, 0.1),
        ((9, 11), PARTIAL, 0.0),
        ((22, 28), PARTIAL, 0.0),
        ((20, 31), PARTIAL, 0.01),
        ((0, 60), FULL, 0.1),
    ],
)
def test_state_and_rate_follow_the_nodes_that_are_not_ready(counts, state, rate):
    made = zones(a=counts, other=(1, 0))
    assert made.states() == {"a": state, "other": NORMAL}
    assert made.rate("a") == rate


def test_nothing_is_tainted_when_all_zones_are_fully_disrupted():
    made = zones(a=(0, 2), b=(0, 1))
    assert made.is_all_disrupted
    assert made.wait("a-0", 0.0) is None
    assert made.observe("b-0", "b", is_ready=True)
    assert made.wait("a-0", 0.0) == 0.0
    assert made.states() == {"a": FULL, "b": NORMAL}
    assert made.forget("b-0")
    assert made.is_all_disrupted


def test_turns_of_a_zone_come_at_its_rate():
    made = zones(a=(5, 2), b=(5, 1))
    assert [made.wait(name, 100.0) for name in ("a-5", "a-6", "b-5")] == [0.0, 10.0, 0.0]
    assert made.wait("a-6", 104.0) == 6.0
    assert made.wait("a-6", 110.0) == 0.0


def test_zone_is_region_and_zone_of_the_labels():
    def node(**labels):
        return {"metadata": {"labels": labels}}

    assert zone_of({"metadata": {}}) == ""
    topology = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    assert zone_of(node(**topology)) == "r/z"
    assert zone_of(node(**{"failure-domain.beta.kubernetes.io/zone": "z"})) == "/z"
