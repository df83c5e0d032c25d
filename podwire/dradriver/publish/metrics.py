"""What the driver counts, for Prometheus."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from podwire.dradriver.ports import Now
from podwire.protocols.prometheus import Histogram, Samples, family, timings

PREFIX = "podwire_network_driver"
BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)


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
            self._phases.setdefault(name, Histogram(BOUNDS)).observe(self._now() - begun)

    def text(self, gauges: Mapping[str, tuple[str, Samples]]) -> str:
        """All of it, and what is now: by name what it means, and its samples."""
        counted = (((("method", method), ("status", status)), n) for (method, status), n in self._requests.items())
        lines = [*family(f"{PREFIX}_requests_total", "Claims and pods, by call and how it ended", counted)]
        lines += timings(f"{PREFIX}_phase_duration_seconds", "How long each phase took", "phase", self._phases)
        for name, (meaning, samples) in gauges.items():
            lines += family(f"{PREFIX}_{name}", meaning, samples)
        return "\n".join(lines) + "\n"
