"""Disk usage of pods: logs and volumes, measured by walking their directories in a worker thread.

A walk costs much more than all other statistics, so that a result is used again for a while.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.paths import VolumePaths, type_of
from podwire.linux.errors import LinuxError
from podwire.linux.fs.trees import TreeUsage, tree_usage
from podwire.linux.node_usage import FileSystem, read_file_system
from podwire.objects.pods import Pod

KEPT_SECONDS = 10.0
MEMORY = "Memory"


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    used: TreeUsage
    disk: FileSystem
    ephemeral: bool
    """Whether it counts as the pod's ephemeral storage."""
    claim: str = ""
    """The name of its PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisk:
    time: int
    node: FileSystem
    """The file system of the kubelet's root."""
    logs: Mapping[str, TreeUsage] = field(default_factory=dict)
    volumes: Mapping[str, VolumeUsage] = field(default_factory=dict)
    other: TreeUsage = field(default_factory=TreeUsage)


class DiskMeter:
    """Measures the directories of pods. Blocking."""

    def __init__(self, paths: KubeletPaths) -> None:
        self._paths = paths
        self._volumes = VolumePaths(paths.root)
        self._measured: dict[str, PodDisk] = {}

    def node(self) -> FileSystem:
        return read_file_system(self._paths.root)

    def pods(self, pods: Iterable[Pod]) -> dict[str, PodDisk]:
        """Returns the usage of each pod by its uid."""
        now, node = time.time_ns(), self.node()
        measured = {}
        for pod in pods:
            known = self._measured.get(pod.uid)
            fresh = known is not None and now - known.time < KEPT_SECONDS * 1e9
            measured[pod.uid] = known if known is not None and fresh else self._measure(pod, now, node)
        self._measured = measured
        return measured

    def _measure(self, pod: Pod, now: int, node: FileSystem) -> PodDisk:
        logs = self._paths.pod_logs(pod.namespace, pod.name, pod.uid)
        volumes = {}
        for volume in pod.spec.volumes:
            if not type_of(volume):
                continue  # a path of the host is not the pod's
            try:
                path = self._volumes.volume(pod.uid, volume)
                used, disk = tree_usage(path), read_file_system(path)
            except (OSError, LinuxError, VolumeError):  # not mounted yet, or not any more
                continue
            in_memory = volume.empty_dir is not None and volume.empty_dir.medium == MEMORY
            volumes[volume.name] = VolumeUsage(used, disk, ephemeral=volume.empty_dir is not None and not in_memory)
        return PodDisk(
            time=now,
            node=node,
            logs={container.name: tree_usage(logs / container.name) for container in pod.spec.every_container},
            volumes=volumes,
            other=tree_usage(self._paths.pod(pod.uid) / "containers"),
        )
