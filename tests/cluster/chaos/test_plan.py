"""The steps of a run follow from its seed."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from podwire.cluster.chaos.plan import DEFAULT, LONGEST_DELAY, SUMMARIES, WEIGHTS, Fault, planned

SERVICE_STEPS = {"create-service", "delete-service", "write"}


def test_every_fault_has_a_summary_and_a_weight():
    assert set(SUMMARIES) == set(WEIGHTS) == set(Fault)
    assert set(DEFAULT) <= set(Fault)


@given(st.integers(0, 10**9), st.integers(1, 100), st.floats(1.0, 20.0), st.sets(st.sampled_from(Fault)))
def test_the_same_seed_gives_the_same_steps_in_order(seed, round_, seconds, faults):
    steps = planned(seed, round_, seconds, faults)
    assert steps == planned(seed, round_, seconds, faults)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert all(0.0 <= step.at < seconds and 0.0 <= step.pick < 1.0 for step in steps)
    assert {step.action for step in steps} <= {"create", "delete", *SERVICE_STEPS, *faults}


def test_pods_do_not_depend_on_the_faults_that_are_chosen():
    def pods(faults):
        return [step for step in planned(7, 1, 10.0, faults) if step.action not in faults]

    assert pods(()) == pods(DEFAULT) == pods(list(Fault))


def test_another_seed_or_round_gives_other_steps():
    plans = [planned(seed, round_, 10.0, DEFAULT) for seed in range(3) for round_ in range(3)]
    assert all(one != other for one, other in itertools.combinations(plans, 2))


def test_requests_follow_each_other_within_the_longest_delay():
    times = [step.at for step in planned(3, 1, 30.0, ()) if step.action not in SERVICE_STEPS]
    assert all(later - earlier <= LONGEST_DELAY for earlier, later in itertools.pairwise(times))
    assert len(times) > 100
