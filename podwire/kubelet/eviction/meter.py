"""Measures the resource usage of pods: directories in a worker thread, containers by the runtime.

Project quotas of the kernel would count for free, but most machines have them disabled; so the directories of a pod are
walked. Only pods with limits are measured all the time, and no pod for more than a twentieth of it.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace

from podwire.kubelet.eviction.usage import ContainerUsage, PodUsage
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.ports import Cri
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.linux.fs.trees import TreeUsage, tree_usage
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError


class PodMeter:
    def __init__(self, cri: Cri, paths: KubeletPaths, timeout: float) -> None:
        self._cri = cri
        self._paths = paths
        self._timeout = timeout

    async def measure(self, pod: Pod, observed: ObservedPod) -> PodUsage:
        """Memory and disk of a pod. What the runtime does not answer for is missing."""
        measured = await asyncio.to_thread(self._directories, pod)
        containers = dict(measured.containers)
        for container in observed.containers:  # exited ones, too: their layers are on the disk
            stats = await self._stats(container)
            known = containers.get(container.name, ContainerUsage())
            containers[container.name] = ContainerUsage(
                memory=known.memory + stats.memory.working_set_bytes.value,
                disk=known.disk + stats.writable_layer.used_bytes.value,
                inodes=known.inodes + stats.writable_layer.inodes_used.value,
            )
        return replace(measured, containers=containers)

    async def processes(self) -> dict[str, int]:
        """Processes and threads by pod; empty if the runtime does not count them."""
        request = pb.ListPodSandboxStatsRequest()
        try:
            answer = await self._cri.call(methods.LIST_POD_SANDBOX_STATS, request, timeout=self._timeout)
        except RpcError:
            return {}
        return {stats.attributes.metadata.uid: stats.linux.process.process_count.value for stats in answer.stats}

    async def _stats(self, container: ObservedContainer) -> pb.ContainerStats:
        request = pb.ContainerStatsRequest(container_id=container.id)
        try:
            answer = await self._cri.call(methods.CONTAINER_STATS, request, timeout=self._timeout)
        except RpcError:
            return pb.ContainerStats()
        return answer.stats

    def _directories(self, pod: Pod) -> PodUsage:
        volume_paths = VolumePaths(self._paths.root)
        volumes = {
            volume.name: tree_usage(volume_paths.volume(pod.uid, volume))
            for volume in pod.spec.volumes
            if volume.empty_dir is not None and not volume.empty_dir.medium
        }
        directory = self._paths.pod_logs(pod.namespace, pod.name, pod.uid)
        logs = {container.name: tree_usage(directory / container.name) for container in pod.spec.every_container}
        others = tree_usage(self._paths.pod(pod.uid) / "containers")
        with contextlib.suppress(OSError):
            hosts = os.lstat(self._paths.etc_hosts(pod.uid))
            others += TreeUsage(hosts.st_blocks * 512, 1)
        return PodUsage(
            containers={name: ContainerUsage(disk=used.used_bytes, inodes=used.inodes) for name, used in logs.items()},
            volumes={name: used.used_bytes for name, used in volumes.items()},
            other_disk=others.used_bytes,
            other_inodes=others.inodes + sum(used.inodes for used in volumes.values()),
            complete=_complete((*volumes.values(), *logs.values(), others)),
        )


def _complete(usages: Iterable[TreeUsage]) -> bool:
    return all(used.complete for used in usages)
