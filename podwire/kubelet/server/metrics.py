"""Metrics of the kubelet in the text format of Prometheus."""

from collections.abc import Iterable, Iterator

from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.probes.worker import ProbedContainer
from podwire.linux.proc.own_usage import own_usage
from podwire.objects.pods import Pod
from podwire.protocols.prometheus import Labels, Metrics, family

START_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
PROBE_LABELS = ("probe_type", "container", "pod", "namespace")


class KubeletMetrics:
    """Counts what cannot be derived at the time of the request."""

    def __init__(self, metrics: Metrics | None = None, node: str = "") -> None:
        self.metrics = metrics or Metrics()
        """Also of the clients of the kubelet: of the runtime and the API server."""
        if node:
            self.metrics.gauge("kubelet_node_name", "The node's name. The count is always 1.", "node").set(1, node)
        self._starts = self.metrics.histograms(
            "kubelet_pod_start_sli_duration_seconds", "From seeing a pod to all of it running", bounds=START_BUCKETS
        )
        self._damaged = self.metrics.counter("podwire_kubelet_damaged_records_total", "Records found damaged")
        self.metrics.collect_values(own_usage)
        self._probe_metrics = Metrics()
        self._probes = self._probe_metrics.counter(
            "prober_probe_total", "Results of probes", *PROBE_LABELS, "pod_uid", "result"
        )
        self._probe_seconds = self._probe_metrics.histograms(
            "prober_probe_duration_seconds", "Time of a probe", *PROBE_LABELS
        )

    def pod_started(self, seconds: float) -> None:
        """Observe the seconds from the first sight of a pod until all its containers run."""
        self._starts.observe(seconds)

    def record_damaged(self) -> None:
        """Count a record of the kubelet that was found damaged."""
        self._damaged.inc()

    def probed(self, probe: ProbedContainer, result: str, seconds: float) -> None:
        """Count a probe that was run."""
        labels = (probe.type, probe.container, probe.pod.name, probe.pod.namespace)
        self._probes.inc(*labels, probe.pod.uid, result)
        self._probe_seconds.observe(seconds, *labels)

    def probes_text(self, pods: Iterable[Pod]) -> str:
        """The metrics of the probes of these pods; those of others are forgotten."""
        present = list(pods)
        uids, names = {pod.uid for pod in present}, {(pod.name, pod.namespace) for pod in present}
        self._probes.retain(lambda labels: labels[4] in uids)
        self._probe_seconds.retain(lambda labels: (labels[2], labels[3]) in names)
        return self._probe_metrics.text()

    def text(self, pods: Iterable[ObservedPod]) -> str:
        """All metrics."""
        return "\n".join((*_pods(list(pods)), *self.metrics.lines())) + "\n"


def _pods(observed: list[ObservedPod]) -> Iterator[str]:
    ready = sum(bool(pod.sandbox and pod.sandbox.ready) for pod in observed)
    states = {
        "exited": sum(container.exited for pod in observed for container in pod.containers),
        "running": sum(len(pod.running) for pod in observed),
    }
    containers: list[tuple[Labels, float]] = [((("container_state", state),), count) for state, count in states.items()]
    yield from family("kubelet_desired_pods", "Pods that are bound to this node", [((), len(observed))])
    yield from family("kubelet_running_pods", "Pods that have a running sandbox", [((), ready)])
    yield from family("kubelet_running_containers", "Containers by their state", containers)
