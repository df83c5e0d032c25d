"""/stats/summary: resource usage of pods, from the runtime's statistics. Pure."""

from collections.abc import Iterable
from typing import Any

from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.objects import times
from podwire.protocols.cri import cri_pb2 as pb


def of(node: str, pods: Iterable[pb.PodSandboxStats]) -> dict[str, Any]:
    """The summary by pods; without the node's own usage, which the runtime does not report."""
    return {"node": {"nodeName": node}, "pods": [_pod(stats) for stats in pods]}


def of_containers(node: str, containers: Iterable[pb.ContainerStats]) -> dict[str, Any]:
    """The summary by containers, without totals of pods."""
    pods: dict[str, dict[str, Any]] = {}
    for stats in containers:
        labels = stats.attributes.labels
        if UID not in labels:
            continue
        named = {"name": labels[NAME], "namespace": labels[NAMESPACE], "uid": labels[UID]}
        pods.setdefault(labels[UID], {"podRef": named, "containers": []})["containers"].append(_container(stats))
    return {"node": {"nodeName": node}, "pods": list(pods.values())}


def _pod(stats: pb.PodSandboxStats) -> dict[str, Any]:
    named, linux = stats.attributes.metadata, stats.linux
    pod = {
        "podRef": {"name": named.name, "namespace": named.namespace, "uid": named.uid},
        "containers": [_container(container) for container in linux.containers],
        "cpu": _cpu(linux.cpu),
        "memory": _memory(linux.memory),
    }
    if linux.network.interfaces:
        pod["network"] = _network(linux.network)
    return pod


def _container(stats: pb.ContainerStats) -> dict[str, Any]:
    written = stats.writable_layer
    return {
        "name": stats.attributes.metadata.name,
        "cpu": _cpu(stats.cpu),
        "memory": _memory(stats.memory),
        "rootfs": {
            "time": _time(written.timestamp),
            "usedBytes": written.used_bytes.value,
            "inodesUsed": written.inodes_used.value,
        },
    }


def _cpu(used: pb.CpuUsage) -> dict[str, Any]:
    usage = {"time": _time(used.timestamp), "usageCoreNanoSeconds": used.usage_core_nano_seconds.value}
    if used.HasField("usage_nano_cores"):
        usage["usageNanoCores"] = used.usage_nano_cores.value
    return usage


def _memory(used: pb.MemoryUsage) -> dict[str, Any]:
    return {
        "time": _time(used.timestamp),
        "usageBytes": used.usage_bytes.value,
        "workingSetBytes": used.working_set_bytes.value,
        "rssBytes": used.rss_bytes.value,
        "pageFaults": used.page_faults.value,
        "majorPageFaults": used.major_page_faults.value,
    }


def _network(used: pb.NetworkUsage) -> dict[str, Any]:
    return {
        "time": _time(used.timestamp),
        **_interface(used.default_interface),
        "interfaces": [_interface(interface) for interface in used.interfaces],
    }


def _interface(used: pb.NetworkInterfaceUsage) -> dict[str, Any]:
    return {"name": used.name, "rxBytes": used.rx_bytes.value, "txBytes": used.tx_bytes.value}


def _time(nanoseconds: int) -> str:
    return times.rfc3339(nanoseconds / 1e9)
