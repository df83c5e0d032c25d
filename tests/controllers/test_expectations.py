"""Expectations: nothing is decided again before the feed reported what was asked for."""

from podwire.controllers.expectations import EXPIRY, Expectations


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_creations_are_counted():
    expectations = Expectations(Clock())
    assert expectations.satisfied("owner")
    expectations.expect("owner", creations=2)
    expectations.created("owner")
    assert not expectations.satisfied("owner")
    expectations.created("owner")
    assert expectations.satisfied("owner")


def test_deletions_are_named_so_that_one_reported_twice_counts_once():
    expectations = Expectations(Clock())
    expectations.expect("owner", deletions=["a", "b"])
    for _ in range(2):
        expectations.deleted("owner", "a")
        expectations.deleted("owner", "another")
    assert not expectations.satisfied("owner")
    expectations.deleted("owner", "b")
    assert expectations.satisfied("owner")


def test_expectations_expire():
    clock = Clock()
    expectations = Expectations(clock)
    expectations.expect("owner", creations=1)
    assert expectations.expires_in("owner") == EXPIRY
    clock.now += EXPIRY + 1
    assert expectations.satisfied("owner")
    assert expectations.expires_in("owner") == 0


def test_a_deleted_owner_is_forgotten():
    expectations = Expectations(Clock())
    expectations.expect("owner", creations=1)
    expectations.forget("owner")
    assert expectations.satisfied("owner")
