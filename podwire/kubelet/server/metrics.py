"""Metrics of the kubelet in the text format of Prometheus."""

from collections.abc import Iterable

from podwire.kubelet.pods.observed import ObservedPod
from podwire.linux.proc.own_metrics import process_lines
from podwire.protocols.prometheus import Histogram, family, timing

START_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class KubeletMetrics:
    """Counts what cannot be derived at the time of the request."""

    def __init__(self) -> None:
        self._starts = Histogram(START_BUCKETS)
        self._damaged = 0

    def pod_started(self, seconds: float) -> None:
        """Observe the seconds from the first sight of a pod until all its containers run."""
        self._starts.observe(seconds)

    def record_damaged(self) -> None:
        """Count a record of the kubelet that was found damaged."""
        self._damaged += 1

    def text(self, pods: Iterable[ObservedPod]) -> str:
        """All metrics."""
        observed = list(pods)
        ready = sum(bool(pod.sandbox and pod.sandbox.ready) for pod in observed)
        states = {
            "exited": sum(container.exited for pod in observed for container in pod.containers),
            "running": sum(len(pod.running) for pod in observed),
        }
        containers = (((("container_state", state),), count) for state, count in states.items())
        lines = [
            *family("kubelet_running_pods", "Pods that have a running sandbox", [((), ready)]),
            *family("kubelet_running_containers", "Containers by their state", containers),
            *timing("kubelet_pod_start_sli_duration_seconds", "From seeing a pod to all of it running", self._starts),
            *family("podwire_kubelet_damaged_records_total", "Records found damaged", [((), self._damaged)]),
            *process_lines(),
        ]
        return "\n".join(lines) + "\n"
