"""What this kubelet counts, in the text format that Prometheus reads."""

import os
import resource
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from podwire.kubelet.observed import Observed

START_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How often something took how long."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{"+Inf" if bound is None else f"{bound:g}"}"}} {total}'
        yield f"{name}_sum {self._sum:g}"
        yield f"{name}_count {total}"


class Meter:
    """Is told what cannot be looked up later."""

    def __init__(self) -> None:
        self._starts = Histogram(START_BUCKETS)

    def pod_started(self, seconds: float) -> None:
        """A pod's containers all run, so long after it was first seen here; pulling images does not count."""
        self._starts.observe(seconds)

    def text(self, pods: Iterable[Observed]) -> str:
        """All of it, now."""
        seen = list(pods)
        running = sum(len(each.running) for each in seen)
        exited = sum(each.exited for pod in seen for each in pod.containers)
        lines = [
            *_head("kubelet_running_pods", "gauge", "Pods that have a running sandbox"),
            f"kubelet_running_pods {sum(bool(each.sandbox and each.sandbox.ready) for each in seen)}",
            *_head("kubelet_running_containers", "gauge", "Containers by their state"),
            f'kubelet_running_containers{{container_state="exited"}} {exited}',
            f'kubelet_running_containers{{container_state="running"}} {running}',
            *_head("kubelet_pod_start_sli_duration_seconds", "histogram", "From seeing a pod to all of it running"),
            *self._starts.lines("kubelet_pod_start_sli_duration_seconds"),
            *_process(),
        ]
        return "\n".join(lines) + "\n"


def _process() -> Iterable[str]:
    """Of this process, by the names that every Prometheus client uses."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    yield from _head("process_cpu_seconds_total", "counter", "Processor time that was used")
    yield f"process_cpu_seconds_total {used.ru_utime + used.ru_stime:.3f}"
    yield from _head("process_resident_memory_bytes", "gauge", "Memory that is used")
    yield f"process_resident_memory_bytes {pages * os.sysconf('SC_PAGE_SIZE')}"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"
