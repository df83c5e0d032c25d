"""Prometheus metrics of the network plugin."""

from collections import Counter
from collections.abc import Mapping

from podwire.protocols.prometheus import Histogram, Labels, Samples, family, timings

BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
PREFIX = "podwire_nri_network"


class Meter:
    """Counts and times events; gauges are computed when they are scraped."""

    def __init__(self) -> None:
        self._hooks: dict[str, Histogram] = {}
        self._updates: dict[str, Histogram] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._reads: Counter[str] = Counter()

    def hook(self, name: str, seconds: float) -> None:
        """A hook was answered."""
        self._hooks.setdefault(name, Histogram(BOUNDS)).observe(seconds)

    def updated(self, what: str, seconds: float) -> None:
        """Policies, or routes and mesh, were applied."""
        self._updates.setdefault(what, Histogram(BOUNDS)).observe(seconds)

    def failed(self, what: str, reason: str) -> None:
        self._failures[what, reason] += 1

    def read(self, source: str) -> None:
        """A resource that a pod names was read: from the api, or from the cache."""
        self._reads[source] += 1

    def text(self, gauges: Mapping[str, tuple[str, Samples]]) -> str:
        """All metrics in text format; `gauges` by name: help text and samples."""
        lines: list[str] = []
        lines += timings(
            f"{PREFIX}_hook_duration_seconds", "From the runtime's question to the answer", "hook", self._hooks
        )
        lines += timings(
            f"{PREFIX}_update_duration_seconds", "From a change to the kernel's rules", "part", self._updates
        )
        failures = ((_labels(part=part, reason=reason), count) for (part, reason), count in self._failures.items())
        lines += family(f"{PREFIX}_failures_total", "What could not be set, by part and reason", failures)
        reads = ((_labels(source=source), count) for source, count in self._reads.items())
        lines += family(f"{PREFIX}_named_reads_total", "Resources that pods name, by where they were read", reads)
        for name, (meaning, samples) in gauges.items():
            lines += family(f"{PREFIX}_{name}", meaning, samples)
        return "\n".join(lines) + "\n"


def _labels(**values: str) -> Labels:
    return tuple(values.items())
