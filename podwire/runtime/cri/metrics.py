"""ListMetricDescriptors and ListPodSandboxMetrics: metrics of containers by cAdvisor's names.

A kubelet that takes its `/metrics/cadvisor` from CRI passes them on as they are. CRI's values are whole numbers, so
that metrics in seconds are rounded down, as with other runtimes. A metric without a source (no controller, no swap, no
pressure accounting in this kernel) has a descriptor and no values.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from podwire.interfaces import Clock
from podwire.linux.cgroups.counters import DeviceIo
from podwire.linux.errors import LinuxError
from podwire.linux.fs.trees import tree_usage
from podwire.linux.net.link_counters import read_link_counters
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.container import Container
from podwire.runtime.cri.statuses import shown_image
from podwire.runtime.sandboxes.sandbox import Sandbox

SECOND = 1_000_000_000
BASE = ("pod", "namespace", "container", "id", "image")
"""The labels of all metrics."""
POD = "POD"
"""The container's name in metrics of a whole pod."""
DEFAULT_PERIOD, DEFAULT_SHARES = 100_000, 1024


class _Kind(NamedTuple):
    """A metric: what it says, whether it only grows, and its labels besides those of all metrics."""

    help: str
    counter: bool = False
    labels: tuple[str, ...] = ()


_DEVICE, _INTERFACE = ("device",), ("interface",)
_OPERATION = ("device", "major", "minor", "operation")
METRICS = {
    "container_blkio_device_usage_total": _Kind("Bytes moved by block devices", True, _OPERATION),
    "container_cpu_cfs_periods_total": _Kind("Elapsed periods of the processor quota", True),
    "container_cpu_cfs_throttled_periods_total": _Kind("Periods in which the container was throttled", True),
    "container_cpu_cfs_throttled_seconds_total": _Kind("Time that the container was throttled", True),
    "container_cpu_system_seconds_total": _Kind("Processor time in the kernel", True),
    "container_cpu_usage_seconds_total": _Kind("Processor time", True),
    "container_cpu_user_seconds_total": _Kind("Processor time in user space", True),
    "container_file_descriptors": _Kind("Open files of all processes"),
    "container_fs_inodes_free": _Kind("Free inodes of the file system that holds the writable layer", labels=_DEVICE),
    "container_fs_inodes_total": _Kind("Inodes of the file system that holds the writable layer", labels=_DEVICE),
    "container_fs_limit_bytes": _Kind("Size of the file system that holds the writable layer", labels=_DEVICE),
    "container_fs_reads_bytes_total": _Kind("Bytes read from block devices", True, _DEVICE),
    "container_fs_reads_total": _Kind("Reads from block devices", True, _DEVICE),
    "container_fs_usage_bytes": _Kind("Bytes in the writable layer", labels=_DEVICE),
    "container_fs_writes_bytes_total": _Kind("Bytes written to block devices", True, _DEVICE),
    "container_fs_writes_total": _Kind("Writes to block devices", True, _DEVICE),
    "container_hugetlb_max_usage_bytes": _Kind("Most huge pages that were used, in bytes", labels=("pagesize",)),
    "container_hugetlb_usage_bytes": _Kind("Huge pages in use, in bytes", labels=("pagesize",)),
    "container_last_seen": _Kind("When the container was last seen, in seconds since 1970"),
    "container_memory_cache": _Kind("Memory of the page cache"),
    "container_memory_failcnt": _Kind("Times that the memory limit was hit", True),
    "container_memory_failures_total": _Kind("Page faults", True, ("failure_type", "scope")),
    "container_memory_kernel_usage": _Kind("Memory of the kernel for the container"),
    "container_memory_mapped_file": _Kind("Memory of mapped files"),
    "container_memory_max_usage_bytes": _Kind("Most memory that was used"),
    "container_memory_rss": _Kind("Anonymous memory"),
    "container_memory_swap": _Kind("Swap in use"),
    "container_memory_usage_bytes": _Kind("Memory in use, with the page cache"),
    "container_memory_working_set_bytes": _Kind("Memory in use, without inactive files"),
    "container_network_receive_bytes_total": _Kind("Bytes received", True, _INTERFACE),
    "container_network_receive_errors_total": _Kind("Errors while receiving", True, _INTERFACE),
    "container_network_receive_packets_dropped_total": _Kind("Received packets that were dropped", True, _INTERFACE),
    "container_network_receive_packets_total": _Kind("Packets received", True, _INTERFACE),
    "container_network_transmit_bytes_total": _Kind("Bytes sent", True, _INTERFACE),
    "container_network_transmit_errors_total": _Kind("Errors while sending", True, _INTERFACE),
    "container_network_transmit_packets_dropped_total": _Kind("Packets to send that were dropped", True, _INTERFACE),
    "container_network_transmit_packets_total": _Kind("Packets sent", True, _INTERFACE),
    "container_oom_events_total": _Kind("Processes killed because memory ran out", True),
    "container_pressure_cpu_stalled_seconds_total": _Kind("Time that all tasks waited for a processor", True),
    "container_pressure_cpu_waiting_seconds_total": _Kind("Time that some tasks waited for a processor", True),
    "container_pressure_io_stalled_seconds_total": _Kind("Time that all tasks waited for input or output", True),
    "container_pressure_io_waiting_seconds_total": _Kind("Time that some tasks waited for input or output", True),
    "container_pressure_memory_stalled_seconds_total": _Kind("Time that all tasks waited for memory", True),
    "container_pressure_memory_waiting_seconds_total": _Kind("Time that some tasks waited for memory", True),
    "container_processes": _Kind("Processes"),
    "container_sockets": _Kind("Open sockets of all processes"),
    "container_spec_cpu_period": _Kind("Period of the processor quota, in microseconds"),
    "container_spec_cpu_quota": _Kind("Processor quota, in microseconds of each period"),
    "container_spec_cpu_shares": _Kind("Processor shares"),
    "container_spec_memory_limit_bytes": _Kind("Memory limit; 0 is none"),
    "container_spec_memory_reservation_limit_bytes": _Kind("Memory that is protected; 0 is none"),
    "container_spec_memory_swap_limit_bytes": _Kind("Limit of memory and swap; 0 is none"),
    "container_start_time_seconds": _Kind("When the container was started, in seconds since 1970"),
    "container_threads": _Kind("Threads"),
    "container_threads_max": _Kind("Limit of threads; 0 is none"),
    "container_ulimits_soft": _Kind("Soft limits of the first process", labels=("ulimit",)),
}  # fmt: skip
"""cAdvisor's names, types and labels."""

_NUMBERS = {
    "container_cpu_cfs_periods_total": "cpu_periods",
    "container_cpu_cfs_throttled_periods_total": "cpu_throttled_periods",
    "container_memory_cache": "memory_cache",
    "container_memory_failcnt": "memory_failures",
    "container_memory_kernel_usage": "memory_kernel",
    "container_memory_mapped_file": "memory_mapped",
    "container_memory_max_usage_bytes": "memory_max",
    "container_memory_rss": "memory_rss",
    "container_memory_swap": "swap",
    "container_memory_usage_bytes": "memory",
    "container_memory_working_set_bytes": "working_set",
    "container_oom_events_total": "oom_kills",
    "container_spec_memory_limit_bytes": "memory_limit",
    "container_spec_memory_reservation_limit_bytes": "memory_reservation",
    "container_spec_memory_swap_limit_bytes": "swap_limit",
    "container_threads": "threads",
    "container_threads_max": "threads_max",
}
"""Metrics that are a counter of the cgroup as it is."""
_TIMES = {
    "container_cpu_cfs_throttled_seconds_total": "cpu_throttled",
    "container_cpu_system_seconds_total": "cpu_system",
    "container_cpu_usage_seconds_total": "cpu",
    "container_cpu_user_seconds_total": "cpu_user",
    "container_pressure_cpu_stalled_seconds_total": "cpu_full",
    "container_pressure_cpu_waiting_seconds_total": "cpu_some",
    "container_pressure_io_stalled_seconds_total": "io_full",
    "container_pressure_io_waiting_seconds_total": "io_some",
    "container_pressure_memory_stalled_seconds_total": "memory_full",
    "container_pressure_memory_waiting_seconds_total": "memory_some",
}
"""Metrics that are a time of the cgroup, in seconds."""

Value = tuple[str, int, tuple[str, ...]]
"""A metric's name, its value, and the values of its own labels."""


def descriptors() -> list[pb.MetricDescriptor]:
    """Returns all metrics with their labels."""
    return [
        pb.MetricDescriptor(name=name, help=kind.help, label_keys=[*BASE, *kind.labels])
        for name, kind in METRICS.items()
    ]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Reads the metrics of pods and their containers. Blocking."""

    bundles: Bundles
    clock: Clock

    def sandbox(self, sandbox: Sandbox, containers: Sequence[Container]) -> pb.PodSandboxMetrics:
        """Returns the metrics of a pod: its network, and each running container."""
        now = int(self.clock.wall() * SECOND)
        about = sandbox.config.metadata
        values = _network(sandbox.record.network) if sandbox.record.network else iter(())
        metrics = pb.PodSandboxMetrics(
            pod_sandbox_id=sandbox.id,
            metrics=_messages(values, now, (about.name, about.namespace, POD, sandbox.id, "")),
        )
        for container in containers:
            if container.running:
                image = shown_image(container.config).image
                labels = (about.name, about.namespace, container.config.metadata.name, container.id, image)
                rows = _messages(self._container(container, now), now, labels)
                metrics.container_metrics.add(container_id=container.id, metrics=rows)
        return metrics

    def _container(self, container: Container, now: int) -> Iterator[Value]:
        group = self.bundles.cgroup(container.id)
        counters = self.bundles.cgroups.counters(group)
        for name, key in _NUMBERS.items():
            if key in counters.numbers:
                yield name, counters.numbers[key], ()
        for name, key in _TIMES.items():
            if key in counters.numbers:
                yield name, counters.numbers[key] // SECOND, ()
        for kind in ("page_faults", "major_page_faults"):
            if kind in counters.numbers:
                type_ = "pgfault" if kind == "page_faults" else "pgmajfault"
                yield "container_memory_failures_total", counters.numbers[kind], (type_, "container")
        for size, (used, most) in counters.huge_pages.items():
            yield "container_hugetlb_usage_bytes", used, (size,)
            yield "container_hugetlb_max_usage_bytes", most, (size,)
        for device in counters.devices:
            yield from _device(device)
        yield from self._file_system(container)
        yield from _processes(self.bundles.cgroups.pids(group), container.record.pid)
        limits = container.limits
        yield "container_spec_cpu_period", limits.cpu_period or DEFAULT_PERIOD, ()
        yield "container_spec_cpu_shares", limits.cpu_shares or DEFAULT_SHARES, ()
        if (limits.cpu_quota or 0) > 0:
            yield "container_spec_cpu_quota", limits.cpu_quota or 0, ()
        yield "container_last_seen", now // SECOND, ()
        yield "container_start_time_seconds", container.record.started_at // SECOND, ()

    def _file_system(self, container: Container) -> Iterator[Value]:
        """Yields sizes of the writable layer and of its file system; none while the container is being removed."""
        try:
            upper = self.bundles.writable(container.id)[0]
            used, disk, number = tree_usage(upper), os.statvfs(upper), upper.stat().st_dev
        except OSError:
            return
        device = (_device_name(os.major(number), os.minor(number)),)
        yield "container_fs_usage_bytes", used.used_bytes, device
        yield "container_fs_limit_bytes", disk.f_blocks * disk.f_frsize, device
        yield "container_fs_inodes_total", disk.f_files, device
        yield "container_fs_inodes_free", disk.f_ffree, device


def _messages(values: Iterator[Value], now: int, labels: tuple[str, ...]) -> list[pb.Metric]:
    return [
        pb.Metric(
            name=name,
            timestamp=now,
            metric_type=pb.COUNTER if METRICS[name].counter else pb.GAUGE,
            label_values=[*labels, *own],
            value=pb.UInt64Value(value=max(value, 0)),
        )
        for name, value, own in values
    ]


def _network(netns: str) -> Iterator[Value]:
    try:
        counters = read_link_counters(netns)
    except LinuxError:  # the sandbox is being removed
        return
    for link in counters:
        for direction, kinds in (("receive", link[1:5]), ("transmit", link[5:9])):
            for kind, value in zip(("bytes", "packets", "errors", "packets_dropped"), kinds, strict=True):
                yield f"container_network_{direction}_{kind}_total", value, (link.name,)


def _device(io: DeviceIo) -> Iterator[Value]:
    name = _device_name(io.major, io.minor)
    yield "container_fs_reads_total", io.reads, (name,)
    yield "container_fs_writes_total", io.writes, (name,)
    yield "container_fs_reads_bytes_total", io.read_bytes, (name,)
    yield "container_fs_writes_bytes_total", io.written_bytes, (name,)
    for operation, value in (("Read", io.read_bytes), ("Write", io.written_bytes)):
        yield "container_blkio_device_usage_total", value, (name, str(io.major), str(io.minor), operation)


def _device_name(major: int, minor: int) -> str:
    """Returns the path of a block device; the numbers where it has none."""
    try:
        return f"/dev/{Path(f'/sys/dev/block/{major}:{minor}').readlink().name}"
    except OSError:
        return f"{major}:{minor}"


def _processes(pids: Sequence[int], first: int) -> Iterator[Value]:
    """Yields the numbers of processes, open files and sockets. Processes that end meanwhile are not counted."""
    files = sockets = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                files += 1
                with contextlib.suppress(OSError):
                    sockets += str(entry.readlink()).startswith("socket:")
    yield "container_processes", len(pids), ()
    yield "container_file_descriptors", files, ()
    yield "container_sockets", sockets, ()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{first}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith("Max open files"):
                soft = line.split()[3]
                yield "container_ulimits_soft", int(soft) if soft.isdigit() else 0, ("max_open_files",)
