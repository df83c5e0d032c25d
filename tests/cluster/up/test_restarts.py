import pytest

from podwire.cluster.up.restarts import HOPELESS, LONGEST, SETTLED, Restarts


def after(*deaths):
    restarts = Restarts()
    for lived, ready in deaths:
        restarts = restarts.died(lived=lived, was_ready=ready)
    return restarts


@pytest.mark.parametrize(
    ("deaths", "wait"),
    [
        pytest.param([(1, True)], 0.1, id="the first comes back at once"),
        pytest.param([(1, True)] * 3, 0.4, id="each time it takes twice as long"),
        pytest.param([(1, True)] * 20, LONGEST, id="up to a limit"),
        pytest.param([(1, True)] * 5 + [(SETTLED, True)], 0.1, id="one that was well for a while begins anew"),
        pytest.param([(1, True)] * 2 + [(SETTLED, False)], 0.4, id="one that was never ready does not"),
    ],
)
def test_a_component_is_started_again_after(deaths, wait):
    assert after(*deaths).wait == pytest.approx(wait)


def test_deaths_without_ever_being_ready_are_hopeless_in_the_end():
    assert not after(*[(1, False)] * (HOPELESS - 1)).hopeless
    assert after(*[(1, False)] * HOPELESS).hopeless
    assert not after(*[(1, False)] * (HOPELESS - 1), (1, True), (1, False)).hopeless


def test_all_deaths_are_counted():
    assert after((1, True), (SETTLED, True), (1, False)).count == 3
