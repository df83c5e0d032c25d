"""/stats/summary: resource usage of the node and its pods. Pure.

Upstream's `stats/v1alpha1`: containers from the runtime's statistics, the node from the kernel, disks from walks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.kubelet.server.disk_usage import PodDisk, VolumeUsage
from podwire.kubelet.server.rates import Rates
from podwire.linux.fs.trees import TreeUsage
from podwire.linux.node_usage import FileSystem, NodeUsage
from podwire.objects import times
from podwire.protocols.cri import cri_pb2 as pb

NODE = "/"
"""The node's own key among the rates."""
DEFAULT_INTERFACE = "eth0"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """The node itself: its usage, the file systems of the kubelet and of images, and the space of images."""

    usage: NodeUsage
    disk: FileSystem | None = None
    image_disk: FileSystem | None = None
    images: TreeUsage = field(default_factory=TreeUsage)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """Facts about a pod besides the runtime's statistics."""

    start_time: str = ""
    started: Mapping[str, str] = field(default_factory=dict)
    """The start of each container by its name."""
    memory_limits: Mapping[str, int] = field(default_factory=dict)
    disk: PodDisk | None = None
    host_network: bool = False


NO_FACTS = PodFacts()


def facts_of(pod: Mapping[str, Any], memory_limits: Mapping[str, int], disk: PodDisk | None) -> PodFacts:
    """Returns the facts in a pod's object."""
    status = pod.get("status") or {}
    containers = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    started = {
        container["name"]: running["startedAt"]
        for container in containers
        if (running := (container.get("state") or {}).get("running")) and running.get("startedAt")
    }
    return PodFacts(
        start_time=status.get("startTime") or "",
        started=started,
        memory_limits=memory_limits,
        disk=disk,
        host_network=bool((pod.get("spec") or {}).get("hostNetwork")),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """Renders statistics; rates are computed against the reading before."""

    node: str
    rates: Rates

    def of_pods(
        self, reading: NodeReading | None, pods: Iterable[pb.PodSandboxStats], facts: Mapping[str, PodFacts]
    ) -> dict[str, Any]:
        """Returns the summary by pods; an entry for the newest sandbox of each."""
        listed = [self._pod(stats, facts.get(stats.attributes.metadata.uid, NO_FACTS)) for stats in pods]
        return {"node": self._node(reading), "pods": listed}

    def of_containers(
        self, reading: NodeReading | None, containers: Iterable[pb.ContainerStats], facts: Mapping[str, PodFacts]
    ) -> dict[str, Any]:
        """Returns the summary of a runtime that knows containers only (containerd 1.6)."""
        pods: dict[str, dict[str, Any]] = {}
        for stats in containers:
            labels = stats.attributes.labels
            if UID not in labels:
                continue
            known = facts.get(labels[UID], NO_FACTS)
            named = {"name": labels[NAME], "namespace": labels[NAMESPACE], "uid": labels[UID]}
            pod = pods.setdefault(labels[UID], {"podRef": named, **_started(known.start_time), "containers": []})
            pod["containers"].append(self._container(stats, known))
        return {"node": self._node(reading), "pods": list(pods.values())}

    def _node(self, reading: NodeReading | None) -> dict[str, Any]:
        if reading is None:
            return {"nodeName": self.node}
        used, at = reading.usage, _time(reading.usage.time)
        node: dict[str, Any] = {
            "nodeName": self.node,
            "startTime": times.rfc3339(used.boot_time),
            "cpu": self._rated(NODE, used.time, used.cpu_nanoseconds),
            "memory": {
                "time": at,
                "availableBytes": max(0, used.memory_total - used.working_set),
                "usageBytes": used.memory,
                "workingSetBytes": used.working_set,
                "rssBytes": used.rss,
                "pageFaults": used.page_faults,
                "majorPageFaults": used.major_page_faults,
            },
            "swap": {
                "time": at,
                "swapAvailableBytes": used.swap_total - used.swap,
                "swapUsageBytes": used.swap,
            },
            "rlimit": {"time": at, "maxpid": used.threads_max, "curproc": used.threads},
        }
        links = [
            {"name": link.name, "rxBytes": link.rx_bytes, "rxErrors": link.rx_errors,
             "txBytes": link.tx_bytes, "txErrors": link.tx_errors}
            for link in used.links
        ]  # fmt: skip
        if links:
            first = next((link for link in links if link["name"] == DEFAULT_INTERFACE), links[0])
            node["network"] = {"time": at, **first, "interfaces": links}
        if reading.disk is not None:
            node["fs"] = _file_system(
                at, reading.disk, reading.disk.used, reading.disk.inodes - reading.disk.inodes_free
            )
        if reading.image_disk is not None:
            images = _file_system(at, reading.image_disk, reading.images.used_bytes, reading.images.inodes)
            node["runtime"] = {"imageFs": images, "containerFs": images}
        return node

    def _pod(self, stats: pb.PodSandboxStats, facts: PodFacts) -> dict[str, Any]:
        named, linux = stats.attributes.metadata, stats.linux
        containers = [self._container(container, facts) for container in linux.containers]
        pod: dict[str, Any] = {
            "podRef": {"name": named.name, "namespace": named.namespace, "uid": named.uid},
            **_started(facts.start_time),
            "containers": containers,
            "cpu": self._cpu(named.uid, linux.cpu),
            "memory": _memory(linux.memory, 0),
        }
        if linux.network.interfaces and not facts.host_network:
            pod["network"] = _network(linux.network)
        if linux.HasField("process"):
            pod["process_stats"] = {"process_count": linux.process.process_count.value}
        if facts.disk is not None:
            volumes = facts.disk.volumes
            if volumes:
                at = _time(facts.disk.time)
                pod["volume"] = [_volume(at, name, volume, named.namespace) for name, volume in sorted(volumes.items())]
            pod["ephemeral-storage"] = _ephemeral(facts.disk, linux.containers)
        return pod

    def _container(self, stats: pb.ContainerStats, facts: PodFacts) -> dict[str, Any]:
        name, written = stats.attributes.metadata.name, stats.writable_layer
        container: dict[str, Any] = {
            "name": name,
            **_started(facts.started.get(name, "")),
            "cpu": self._cpu(stats.attributes.id, stats.cpu),
            "memory": _memory(stats.memory, facts.memory_limits.get(name, 0)),
            "rootfs": {
                "time": _time(written.timestamp),
                "usedBytes": written.used_bytes.value,
                "inodesUsed": written.inodes_used.value,
            },
        }
        if facts.disk is not None and (logs := facts.disk.logs.get(name)) is not None:
            container["logs"] = {
                "time": _time(facts.disk.time),
                "usedBytes": logs.used_bytes,
                "inodesUsed": logs.inodes,
            }
        return container

    def _cpu(self, key: str, used: pb.CpuUsage) -> dict[str, Any]:
        """Returns the runtime's own rate if it has one."""
        if used.HasField("usage_nano_cores"):
            nanocores: int = used.usage_nano_cores.value
            total = used.usage_core_nano_seconds.value
            return {"time": _time(used.timestamp), "usageNanoCores": nanocores, "usageCoreNanoSeconds": total}
        return self._rated(key, used.timestamp, used.usage_core_nano_seconds.value)

    def _rated(self, key: str, at: int, total: int) -> dict[str, Any]:
        rate = self.rates.rate(key, at, total)
        shown = {} if rate is None else {"usageNanoCores": rate}
        return {"time": _time(at), **shown, "usageCoreNanoSeconds": total}


def _started(time: str) -> dict[str, str]:
    return {"startTime": time} if time else {}


def _memory(used: pb.MemoryUsage, limit: int) -> dict[str, Any]:
    working_set = used.working_set_bytes.value
    return {
        "time": _time(used.timestamp),
        **({"availableBytes": max(0, limit - working_set)} if limit else {}),
        "usageBytes": used.usage_bytes.value,
        "workingSetBytes": working_set,
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
    return {
        "name": used.name,
        "rxBytes": used.rx_bytes.value,
        "rxErrors": used.rx_errors.value,
        "txBytes": used.tx_bytes.value,
        "txErrors": used.tx_errors.value,
    }


def _file_system(at: str, disk: FileSystem, used: int, inodes_used: int) -> dict[str, Any]:
    return {
        "time": at,
        "availableBytes": disk.available,
        "capacityBytes": disk.capacity,
        "usedBytes": used,
        "inodesFree": disk.inodes_free,
        "inodes": disk.inodes,
        "inodesUsed": inodes_used,
    }


def _volume(at: str, name: str, volume: VolumeUsage, namespace: str) -> dict[str, Any]:
    claim = {"pvcRef": {"name": volume.claim, "namespace": namespace}} if volume.claim else {}
    return {**_file_system(at, volume.disk, volume.used.used_bytes, volume.used.inodes), "name": name, **claim}


def _ephemeral(disk: PodDisk, containers: Iterable[pb.ContainerStats]) -> dict[str, Any]:
    """Returns the pod's share of the node's disk: layers, logs, emptyDirs and the kubelet's own files."""
    used = disk.other
    for logs in disk.logs.values():
        used += logs
    for volume in disk.volumes.values():
        if volume.ephemeral:
            used += volume.used
    for stats in containers:
        used += TreeUsage(stats.writable_layer.used_bytes.value, stats.writable_layer.inodes_used.value)
    return _file_system(_time(disk.time), disk.node, used.used_bytes, used.inodes)


def _time(nanoseconds: int) -> str:
    return times.rfc3339(nanoseconds / 1e9)
