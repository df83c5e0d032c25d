"""`/metrics/cadvisor`: the runtime's metrics of containers in the text format of Prometheus. Pure."""

from collections.abc import Iterable

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.prometheus import Labels, family


def text(descriptors: Iterable[pb.MetricDescriptor], pods: Iterable[pb.PodSandboxMetrics]) -> str:
    """Returns all metrics that have a descriptor and as many labels as it says."""
    samples: dict[str, list[tuple[Labels, float]]] = {}
    kinds: dict[str, str] = {}
    described = {descriptor.name: descriptor for descriptor in descriptors}
    for pod in pods:
        for metric in (*pod.metrics, *(row for container in pod.container_metrics for row in container.metrics)):
            descriptor = described.get(metric.name)
            if descriptor is not None and len(descriptor.label_keys) == len(metric.label_values):
                labels = tuple(zip(descriptor.label_keys, metric.label_values, strict=True))
                samples.setdefault(metric.name, []).append((labels, metric.value.value))
                kinds[metric.name] = "counter" if metric.metric_type == pb.COUNTER else "gauge"
    lines = [
        line
        for name, rows in sorted(samples.items())
        for line in family(name, described[name].help, rows, kind=kinds[name])
    ]
    return "\n".join(lines) + "\n"
