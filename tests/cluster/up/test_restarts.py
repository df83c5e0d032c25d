import pytest

from podwire.cluster.up.supervisor import LIMITS, Restarts


def after(*deaths):
    restarts = Restarts()
    for lived, ready in deaths:
        restarts = restarts.exited(lived=lived, was_ready=ready)
    return restarts


@pytest.mark.parametrize(
    ("deaths", "wait"),
    [
        pytest.param([(1, True)], 0.1, id="the first comes back at once"),
        pytest.param([(1, True)] * 3, 0.4, id="each time it takes twice as long"),
        pytest.param([(1, True)] * 20, LIMITS.longest_backoff, id="up to a limit"),
        pytest.param([(1, True)] * 5 + [(LIMITS.healthy, True)], 0.1, id="one that was well for a while begins anew"),
        pytest.param([(1, True)] * 2 + [(LIMITS.healthy, False)], 0.4, id="one that was never ready does not"),
    ],
)
def test_a_component_is_started_again_after(deaths, wait):
    assert after(*deaths).backoff == pytest.approx(wait)


def test_deaths_without_ever_being_ready_are_hopeless_in_the_end():
    assert not after(*[(1, False)] * (LIMITS.unready_exits - 1)).hopeless
    assert after(*[(1, False)] * LIMITS.unready_exits).hopeless
    assert not after(*[(1, False)] * (LIMITS.unready_exits - 1), (1, True), (1, False)).hopeless


def test_all_deaths_are_counted():
    assert after((1, True), (LIMITS.healthy, True), (1, False)).count == 3
