"""What the driver counts, in the text format that Prometheus reads."""

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from podwire.dradriver.ports import Now

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "podwire_network_driver"
BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[Labels, float]]


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
    """Is told of requests (a kubelet's and a runtime's), and of the phases that they consist of."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._requests: Counter[tuple[str, str]] = Counter()
        self._phases: dict[str, Histogram] = {}

    def answered(self, method: str, *, ok: bool) -> None:
        """One claim or one pod, in a request of that name."""
        self._requests[method, "ok" if ok else "error"] += 1

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = self._now()
        try:
            yield
        finally:
            self._phases.setdefault(name, Histogram()).observe(self._now() - begun)

    def text(self, gauges: Mapping[str, tuple[str, Samples]]) -> str:
        """All of it, and what is now: by name what it means, and its samples."""
        counted = (((("method", method), ("status", status)), n) for (method, status), n in self._requests.items())
        lines = [*_family("requests_total", "counter", "Claims and pods, by call and how it ended", counted)]
        lines += _head("phase_duration_seconds", "histogram", "How long each phase took")
        for name, histogram in self._phases.items():
            lines += histogram.lines(f"{PREFIX}_phase_duration_seconds", (("phase", name),))
        for name, (meaning, samples) in gauges.items():
            lines += _family(name, "counter" if name.endswith("_total") else "gauge", meaning, samples)
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, meaning: str, samples: Samples) -> Iterator[str]:
    yield from _head(name, kind, meaning)
    for labels, value in samples:
        yield f"{_sample(f'{PREFIX}_{name}', labels)} {value:.15g}"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {PREFIX}_{name} {meaning}", f"# TYPE {PREFIX}_{name} {kind}"


def _sample(name: str, labels: Labels) -> str:
    told = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{told}}}" if told else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
