"""ContainerStats and PodSandboxStats, from cgroups and the counters of links."""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.linux.errors import LinuxError
from podwire.linux.fs.trees import tree_usage
from podwire.linux.net.link_counters import read_link_counters
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.container import Container
from podwire.runtime.sandboxes.sandbox import Sandbox

DEFAULT_INTERFACE = "eth0"
"""The name that the runtime gives the pod's own interface; plugins may add others."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Reads statistics. Blocking."""

    bundles: Bundles
    clock: Clock

    def container(self, container: Container) -> pb.ContainerStats:
        """Returns the statistics of a container; only its layer when its cgroup is gone."""
        config, now = container.config, int(self.clock.wall() * 1e9)
        stats = pb.ContainerStats()
        stats.attributes.id = container.id
        stats.attributes.metadata.CopyFrom(config.metadata)
        stats.attributes.labels.update(dict(config.labels))
        stats.attributes.annotations.update(dict(config.annotations))
        stats.cpu.timestamp = stats.memory.timestamp = now
        self._writable(container, stats.writable_layer, now)
        try:
            used = self.bundles.cgroups.usage(self.bundles.cgroup(container.id))
        except LinuxError:
            return stats
        stats.cpu.usage_core_nano_seconds.value = used.cpu_nanoseconds or 0
        stats.memory.usage_bytes.value = used.memory or 0
        stats.memory.working_set_bytes.value = used.working_set or 0
        stats.memory.rss_bytes.value = used.rss or 0
        stats.memory.page_faults.value = used.page_faults or 0
        stats.memory.major_page_faults.value = used.major_page_faults or 0
        return stats

    def _writable(self, container: Container, usage: pb.FilesystemUsage, now: int) -> None:
        """Counts the writable layer; files that come or go meanwhile may be missing."""
        usage.timestamp = now
        usage.fs_id.mountpoint = str(self.bundles.directory)
        try:
            used = tree_usage(self.bundles.writable(container.id)[0])
        except OSError:  # the container is being removed
            return
        usage.used_bytes.value, usage.inodes_used.value = used.used_bytes, used.inodes

    def _processes(self, container: Container) -> int:
        """Returns the number of its processes and threads; 0 when its cgroup is gone."""
        try:
            return self.bundles.cgroups.usage(self.bundles.cgroup(container.id)).pids or 0
        except LinuxError:
            return 0

    def sandbox(self, sandbox: Sandbox, containers: Sequence[Container]) -> pb.PodSandboxStats:
        """Returns the statistics of a pod: the sum of its containers, and its network."""
        now = int(self.clock.wall() * 1e9)
        stats = pb.PodSandboxStats()
        stats.attributes.id = sandbox.id
        stats.attributes.metadata.CopyFrom(sandbox.config.metadata)
        stats.attributes.labels.update(dict(sandbox.config.labels))
        stats.attributes.annotations.update(dict(sandbox.config.annotations))
        running = [container for container in containers if container.running]
        parts = [self.container(container) for container in running]
        linux = stats.linux
        linux.containers.extend(parts)
        linux.cpu.timestamp = linux.memory.timestamp = linux.network.timestamp = now
        linux.cpu.usage_core_nano_seconds.value = sum(part.cpu.usage_core_nano_seconds.value for part in parts)
        linux.memory.usage_bytes.value = sum(part.memory.usage_bytes.value for part in parts)
        linux.memory.working_set_bytes.value = sum(part.memory.working_set_bytes.value for part in parts)
        linux.process.timestamp = now
        linux.process.process_count.value = sum(self._processes(container) for container in running)
        if sandbox.record.network and sandbox.ready:
            _fill_network(linux.network, sandbox.record.network)
        return stats


def _fill_network(usage: pb.NetworkUsage, netns: str) -> None:
    """Fills in the counters of the pod's links; none when its namespace is just being removed."""
    try:
        counters = read_link_counters(netns)
    except LinuxError:
        return
    for link in counters:
        row = usage.interfaces.add(name=link.name)
        row.rx_bytes.value, row.rx_errors.value = link.rx_bytes, link.rx_errors
        row.tx_bytes.value, row.tx_errors.value = link.tx_bytes, link.tx_errors
    if rows := sorted(usage.interfaces, key=lambda row: row.name != DEFAULT_INTERFACE):
        usage.default_interface.CopyFrom(rows[0])
