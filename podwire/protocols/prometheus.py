"""Counts and timings in the text format that Prometheus reads (version 0.0.4)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[Labels, float]]


class Histogram:
    """How often something took how long."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            yield f"{_sample(f'{name}_bucket', (*labels, ('le', '+Inf' if bound is None else f'{bound:g}')))} {total}"
        yield f"{_sample(f'{name}_sum', labels)} {self._sum:g}"
        yield f"{_sample(f'{name}_count', labels)} {total}"


def timing(name: str, meaning: str, histogram: Histogram) -> Iterator[str]:
    """The lines of one histogram."""
    yield from _head(name, "histogram", meaning)
    yield from histogram.lines(name, ())


def timings(name: str, meaning: str, label: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    """The lines of histograms that differ in one label."""
    yield from _head(name, "histogram", meaning)
    for value, histogram in found.items():
        yield from histogram.lines(name, ((label, value),))


def family(name: str, meaning: str, samples: Samples, *, kind: str = "") -> Iterator[str]:
    """The lines of a counter or of a gauge; without `kind`, a counter's name ends with `_total`."""
    yield from _head(name, kind or ("counter" if name.endswith("_total") else "gauge"), meaning)
    for labels, value in samples:
        yield f"{_sample(name, labels)} {value:.15g}"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels) -> str:
    text = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{text}}}" if text else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
