"""/metrics/resource: processor time and memory of the node, its pods and containers, for metrics servers. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from podwire.kubelet.server.summary import NO_FACTS, PodFacts
from podwire.linux.node_usage import NodeUsage
from podwire.objects import times
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.prometheus import Labels, timed_family

Sample = tuple[Labels, float, int]
"""Labels, value, and milliseconds since 1970."""


def text(node: NodeUsage | None, pods: Iterable[pb.PodSandboxStats], facts: Mapping[str, PodFacts]) -> str:
    """Returns the metrics; without the node's, `resource_scrape_error` is 1."""
    samples: dict[str, list[Sample]] = {name: [] for name in _METRICS}
    for stats in pods:
        _add_pod(samples, stats, facts.get(stats.attributes.metadata.uid, NO_FACTS))
    if node is not None:
        at = node.time // 1_000_000
        samples["node_cpu_usage_seconds_total"].append(((), node.cpu_nanoseconds / 1e9, at))
        samples["node_memory_working_set_bytes"].append(((), node.working_set, at))
        samples["node_swap_usage_bytes"].append(((), node.swap, at))
    lines = [line for name, rows in samples.items() if rows for line in timed_family(name, _METRICS[name], rows)]
    lines += _errors(failed=node is None)
    return "\n".join(lines) + "\n"


_METRICS = {
    "container_cpu_usage_seconds_total": "Cumulative cpu time consumed by the container in core-seconds",
    "container_memory_working_set_bytes": "Current working set of the container in bytes",
    "container_start_time_seconds": "Start time of the container since unix epoch in seconds",
    "node_cpu_usage_seconds_total": "Cumulative cpu time consumed by the node in core-seconds",
    "node_memory_working_set_bytes": "Current working set of the node in bytes",
    "node_swap_usage_bytes": "Current swap usage of the node in bytes. Reported only on non-windows systems",
    "pod_cpu_usage_seconds_total": "Cumulative cpu time consumed by the pod in core-seconds",
    "pod_memory_working_set_bytes": "Current working set of the pod in bytes",
}
"""Upstream's names and descriptions."""


def _add_pod(samples: Mapping[str, list[Sample]], stats: pb.PodSandboxStats, facts: PodFacts) -> None:
    named, linux = stats.attributes.metadata, stats.linux
    pod: Labels = (("namespace", named.namespace), ("pod", named.name))
    for container in linux.containers:
        name = container.attributes.metadata.name
        labels: Labels = (("container", name), *pod)
        at = container.cpu.timestamp // 1_000_000
        used = container.cpu.usage_core_nano_seconds.value / 1e9
        samples["container_cpu_usage_seconds_total"].append((labels, used, at))
        samples["container_memory_working_set_bytes"].append((labels, container.memory.working_set_bytes.value, at))
        if started := facts.started.get(name):
            seconds = times.parse(started)
            samples["container_start_time_seconds"].append((labels, seconds, int(seconds * 1000)))
    at = linux.cpu.timestamp // 1_000_000
    samples["pod_cpu_usage_seconds_total"].append((pod, linux.cpu.usage_core_nano_seconds.value / 1e9, at))
    samples["pod_memory_working_set_bytes"].append((pod, linux.memory.working_set_bytes.value, at))


def _errors(*, failed: bool) -> Iterator[str]:
    yield "# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise"
    yield "# TYPE resource_scrape_error gauge"
    yield f"resource_scrape_error {int(failed)}"
