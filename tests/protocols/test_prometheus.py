"""Metrics are declared once, counted by label values, and printed as Prometheus reads them."""

import pytest

from podwire.protocols import prometheus
from podwire.protocols.prometheus import Metrics, family


def test_a_counter_is_printed_by_its_labels():
    metrics = Metrics()
    counter = metrics.counter("x_total", "Things", "kind", "code")
    counter.inc("a", "200")
    counter.inc("a", "200", by=2)
    counter.inc('b"\n', "404")
    assert metrics.text().splitlines() == [
        "# HELP x_total Things",
        "# TYPE x_total counter",
        'x_total{kind="a",code="200"} 3',
        'x_total{kind="b\\"\\n",code="404"} 1',
    ]


def test_a_metric_without_labels_is_printed_before_it_is_counted():
    metrics = Metrics()
    metrics.counter("x_total", "Things")
    metrics.gauge("y", "Size").set(-2.5)
    metrics.histograms("z_seconds", "Time", bounds=(1.0,)).observe(0.5)
    assert [line for line in metrics.text().splitlines() if not line.startswith("#")] == [
        "x_total 0",
        "y -2.5",
        'z_seconds_bucket{le="1"} 1',
        'z_seconds_bucket{le="+Inf"} 1',
        "z_seconds_sum 0.5",
        "z_seconds_count 1",
    ]


def test_a_name_that_is_declared_again_is_the_same_metric():
    metrics = Metrics()
    metrics.counter("x_total", "Things").inc()
    metrics.counter("x_total", "Things").inc()
    assert metrics.counter("x_total", "Things").value() == 2
    with pytest.raises(ValueError, match="x_total is declared with two types"):
        metrics.histograms("x_total", "Things")


def test_a_gauge_forgets_what_is_gone():
    metrics = Metrics()
    gauge = metrics.gauge("x", "Things", "name")
    gauge.set(1, "a")
    gauge.remove("a")
    gauge.remove("a")
    assert 'x{name="a"}' not in metrics.text()


def test_label_values_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "MOST_SERIES", 2)
    metrics = Metrics()
    counter, histograms = metrics.counter("x_total", "Things", "name"), metrics.histograms("y", "Times", "name")
    for name in "abcd":
        counter.inc(name)
        histograms.observe(1.0, name)
    assert counter.value("others") == 2
    assert 'y_count{name="others"} 2' in metrics.text()
    assert 'y_count{name="c"}' not in metrics.text()


def test_collectors_are_asked_when_somebody_reads():
    metrics, sizes = Metrics(), [1]
    metrics.collect(lambda: family("x", "Size", [((), sizes[-1])]))
    sizes.append(5)
    assert "x 5" in metrics.text().splitlines()
