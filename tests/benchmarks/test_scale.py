"""The lines about large clusters: a short run with small ones, and how growth is judged."""

import pytest

from benchmarks import large_clusters
from benchmarks.large_clusters import CONSTANT, LINEAR, growth


@pytest.mark.timeout(400)
def test_clusters_of_several_sizes_are_measured_and_compared(monkeypatch):
    monkeypatch.setattr(large_clusters, "SIZES", (100, 110))
    figures = list(large_clusters.measure(0.1))
    small = [figure for figure in figures if figure.group == "100 nodes, 100 pods, SQLite"]
    assert [figure.what for figure in small if figure.unit == "/s"] == [
        "pods bound, plain",
        "pods bound, affinity",
        "pods bound, claims",
    ]
    assert all(figure.value > 0 for figure in small if figure.unit in ("/s", " ms", " MB"))
    assert any(figure.what.startswith("POST → Running on a hollow node") for figure in small)
    assert any(figure.group.startswith("Growth from 100 to 110 nodes") for figure in figures)


@pytest.mark.parametrize(
    ("how", "values", "met"),
    [
        pytest.param(CONSTANT, [1, 1, 1.5], True, id="the same, but for noise"),
        pytest.param(CONSTANT, [1, 1, 5], False, id="each costs more, the more there are"),
        pytest.param(LINEAR, [1, 10, 50], True, id="in step with the nodes"),
        pytest.param(LINEAR, [1, 10, 250], False, id="faster than the nodes"),
    ],
)
def test_growth_is_judged_by_the_last_step(how, values, met):
    [figure] = growth({("what", how, " ms"): values}, (100, 1000, 5000))
    assert figure.met is met
