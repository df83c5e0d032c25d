"""Gathers the statistics of the node and its pods when somebody asks: from the runtime, the kernel and directories."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.ports import Cri, PodLister
from podwire.kubelet.server import resource_metrics
from podwire.kubelet.server.disk_usage import DiskMeter, PodDisk, VolumeUsage
from podwire.kubelet.server.limits import ServerLimits
from podwire.kubelet.server.rates import Rates
from podwire.kubelet.server.summary import NODE, NodeReading, PodFacts, Summary, facts_of
from podwire.kubelet.volumes.usage import MountedUsage
from podwire.linux.fs.trees import TreeUsage
from podwire.linux.node_usage import FileSystem, NodeUsage, read_file_system, read_node_usage
from podwire.objects.pods import Pod
from podwire.objects.quantity import parse
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError


class Statistics:
    def __init__(
        self,
        node: str,
        pods: PodLister,
        cri: Cri,
        limits: ServerLimits,
        paths: KubeletPaths | None = None,
        mounted: Callable[[Pod], Awaitable[Mapping[str, MountedUsage]]] | None = None,
    ) -> None:
        """`mounted` gives the usage of persistent and CSI volumes, by the name of the pod's volume."""
        self._mounted = mounted
        self._lister = pods
        self._cri = cri
        self._limits = limits
        self._disks = DiskMeter(paths) if paths is not None else None
        self._rates = Rates()
        self._summary = Summary(node, self._rates)

    async def summary(self, *, only_cpu_and_memory: bool = False) -> dict[str, Any]:
        """Returns /stats/summary; the first call in two minutes takes two readings, for the rates. Raises RpcError.

        By containers, if the runtime does not implement statistics of pods (containerd 1.6).
        """
        usage = await asyncio.to_thread(_node_usage)
        if usage is not None and not self._rates.knows(NODE, usage.time):
            await self._render(NodeReading(usage=usage), {})
            await asyncio.sleep(self._limits.first_rates)
            usage = await asyncio.to_thread(_node_usage)
        pods, disks, reading = self._lister.all(), dict[str, PodDisk](), None
        if usage is not None:
            reading = NodeReading(usage=usage)
        if usage is not None and self._disks is not None and not only_cpu_and_memory:
            disks, disk = await asyncio.to_thread(self._measured, self._disks, [pod for pod, _ in pods])
            await self._add_mounted([pod for pod, _ in pods], disks)
            image_disk, images = await self._images()
            reading = NodeReading(usage=usage, disk=disk, image_disk=image_disk, images=images)
        return await self._render(reading, _facts(pods, disks))

    async def _add_mounted(self, pods: Sequence[Pod], disks: dict[str, PodDisk]) -> None:
        """Replaces the usage of pods that have such volumes."""
        if self._mounted is None:
            return
        for pod in pods:
            usages = await self._mounted(pod)
            if usages and pod.uid in disks:
                volumes = {name: _mounted_volume(used) for name, used in usages.items()}
                disks[pod.uid] = replace(disks[pod.uid], volumes={**disks[pod.uid].volumes, **volumes})

    async def _render(self, reading: NodeReading | None, facts: Mapping[str, PodFacts]) -> dict[str, Any]:
        timeout = self._limits.call
        try:
            pods = await self._pod_stats()
        except RpcError:
            request = pb.ListContainerStatsRequest()
            containers = await self._cri.call(methods.LIST_CONTAINER_STATS, request, timeout=timeout)
            self._keep([stats.attributes.id for stats in containers.stats])
            return self._summary.of_containers(reading, containers.stats, facts)
        ids = [stats.attributes.id for pod in pods for stats in pod.linux.containers]
        self._keep([*ids, *(pod.attributes.metadata.uid for pod in pods)])
        return self._summary.of_pods(reading, pods, facts)

    def _keep(self, keys: Sequence[str]) -> None:
        self._rates.keep({NODE, *keys})

    async def resources(self) -> str:
        """Returns /metrics/resource. Raises RpcError."""
        usage = await asyncio.to_thread(_node_usage)
        return resource_metrics.text(usage, await self._pod_stats(), _facts(self._lister.all(), {}))

    async def _pod_stats(self) -> list[pb.PodSandboxStats]:
        """Returns the statistics of the newest sandbox of each pod."""
        request = pb.ListPodSandboxStatsRequest()
        listed = await self._cri.call(methods.LIST_POD_SANDBOX_STATS, request, timeout=self._limits.call)
        newest: dict[str, pb.PodSandboxStats] = {}
        for stats in listed.stats:
            known = newest.get(stats.attributes.metadata.uid)
            if known is None or known.attributes.metadata.attempt <= stats.attributes.metadata.attempt:
                newest[stats.attributes.metadata.uid] = stats
        return list(newest.values())

    async def _images(self) -> tuple[FileSystem | None, TreeUsage]:
        """Returns the file system of images, and the space that they use; none if the runtime does not say."""
        try:
            answer = await self._cri.call(methods.IMAGE_FS_INFO, pb.ImageFsInfoRequest(), timeout=self._limits.call)
        except RpcError:
            return None, TreeUsage()
        for usage in answer.image_filesystems:
            used = TreeUsage(usage.used_bytes.value, usage.inodes_used.value)
            try:
                return await asyncio.to_thread(read_file_system, usage.fs_id.mountpoint), used
            except OSError:
                continue
        return None, TreeUsage()

    @staticmethod
    def _measured(disks: DiskMeter, pods: list[Pod]) -> tuple[dict[str, PodDisk], FileSystem]:
        return disks.pods(pods), disks.node()


def _mounted_volume(used: MountedUsage) -> VolumeUsage:
    disk = FileSystem(used.capacity, used.available, used.used, used.inodes, used.inodes_free)
    return VolumeUsage(TreeUsage(used.used, used.inodes_used), disk, ephemeral=False, claim=used.claim)


def _node_usage() -> NodeUsage | None:
    try:
        return read_node_usage()
    except (OSError, ValueError, IndexError):  # a kernel without these files
        return None


def _facts(pods: Sequence[tuple[Pod, Mapping[str, Any]]], disks: Mapping[str, PodDisk]) -> dict[str, PodFacts]:
    return {pod.uid: facts_of(object_, _memory_limits(pod), disks.get(pod.uid)) for pod, object_ in pods}


def _memory_limits(pod: Pod) -> dict[str, int]:
    limits = {}
    for container in pod.spec.every_container:
        if (limit := container.resources.limits.get("memory")) is not None:
            limits[container.name] = parse(str(limit)).value()
    return limits
