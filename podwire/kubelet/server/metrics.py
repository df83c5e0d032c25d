"""What this kubelet counts, in the text format that Prometheus reads."""

import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from podwire.kubelet.pods.observed import ObservedPod
from podwire.protocols.prometheus import Histogram, family, timing

START_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class KubeletMetrics:
    """Is told what cannot be looked up later."""

    def __init__(self) -> None:
        self._starts = Histogram(START_BUCKETS)

    def pod_started(self, seconds: float) -> None:
        """A pod's containers all run, so long after it was first seen here; pulling images does not count."""
        self._starts.observe(seconds)

    def text(self, pods: Iterable[ObservedPod]) -> str:
        """All of it, now."""
        seen = list(pods)
        ready = sum(bool(each.sandbox and each.sandbox.ready) for each in seen)
        states = {
            "exited": sum(each.exited for pod in seen for each in pod.containers),
            "running": sum(len(each.running) for each in seen),
        }
        containers = (((("container_state", state),), count) for state, count in states.items())
        lines = [
            *family("kubelet_running_pods", "Pods that have a running sandbox", [((), ready)]),
            *family("kubelet_running_containers", "Containers by their state", containers),
            *timing("kubelet_pod_start_sli_duration_seconds", "From seeing a pod to all of it running", self._starts),
            *_process(),
        ]
        return "\n".join(lines) + "\n"


def _process() -> Iterator[str]:
    """Of this process, by the names that every Prometheus client uses."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    seconds, memory = round(used.ru_utime + used.ru_stime, 3), pages * os.sysconf("SC_PAGE_SIZE")
    yield from family("process_cpu_seconds_total", "Processor time that was used", [((), seconds)])
    yield from family("process_resident_memory_bytes", "Memory that is used", [((), memory)])
