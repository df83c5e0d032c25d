"""What the plugin counts, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
PREFIX = "podwire_nri_network"

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How often something took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        total = 0
        for bound, count in zip((*BOUNDS, None), self._counts, strict=True):
            total += count
            yield f"{_sample(f'{name}_bucket', (*labels, ('le', '+Inf' if bound is None else f'{bound:g}')))} {total}"
        yield f"{_sample(f'{name}_sum', labels)} {self._sum:g}"
        yield f"{_sample(f'{name}_count', labels)} {total}"


class Meter:
    """Is told what cannot be looked up later."""

    def __init__(self) -> None:
        self._hooks: dict[str, Histogram] = {}
        self._updates: dict[str, Histogram] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._reads: Counter[str] = Counter()

    def hook(self, name: str, seconds: float) -> None:
        """A hook was answered."""
        self._hooks.setdefault(name, Histogram()).observe(seconds)

    def updated(self, what: str, seconds: float) -> None:
        """Changes were brought into the kernel: policies, routes, mesh."""
        self._updates.setdefault(what, Histogram()).observe(seconds)

    def failed(self, what: str, reason: str) -> None:
        self._failures[what, reason] += 1

    def read(self, source: str) -> None:
        """A resource that a pod names was read: from the api, or from the cache."""
        self._reads[source] += 1

    def text(self, gauges: Mapping[str, tuple[str, Iterable[tuple[Labels, float]]]]) -> str:
        """All of it, and what is now: by name what it means, and its samples."""
        lines: list[str] = []
        lines += _timings("hook_duration_seconds", "From the runtime's question to the answer", "hook", self._hooks)
        lines += _timings("update_duration_seconds", "From a change to the kernel's rules", "part", self._updates)
        failures = ((_labels(part=part, reason=reason), count) for (part, reason), count in self._failures.items())
        lines += _family("failures_total", "counter", "What could not be set, by part and reason", failures)
        reads = ((_labels(source=source), count) for source, count in self._reads.items())
        lines += _family("named_reads_total", "counter", "Resources that pods name, by where they were read", reads)
        for name, (meaning, samples) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _family(name, kind, meaning, samples)
        return "\n".join(lines) + "\n"


def _timings(name: str, meaning: str, label: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    yield from _head(name, "histogram", meaning)
    for value, histogram in found.items():
        yield from histogram.lines(f"{PREFIX}_{name}", ((label, value),))


def _family(name: str, kind: str, meaning: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    for labels, value in samples:
        yield f"{_sample(f'{PREFIX}_{name}', labels)} {value:g}"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {PREFIX}_{name} {meaning}", f"# TYPE {PREFIX}_{name} {kind}"


def _labels(**values: str) -> Labels:
    return tuple(values.items())


def _sample(name: str, labels: Labels) -> str:
    told = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{told}}}" if told else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
