"""Limits of local storage: sizeLimit of emptyDirs, ephemeral-storage of pods and containers. Pure."""

from podwire.kubelet.config.resources import amount, pod_limits, quantity
from podwire.kubelet.eviction.usage import ContainerUsage, PodUsage
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume

STORAGE = "ephemeral-storage"
_NONE = ContainerUsage()


def limited(pod: Pod) -> bool:
    """Whether a pod has a limit that the kernel does not enforce, so that it has to be measured."""
    return STORAGE in pod_limits(pod) or any(_size_limit(volume) for volume in pod.spec.volumes)


def exceeded(pod: Pod, used: PodUsage) -> str:
    """Why a pod is evicted, in upstream's words; empty when it is within all limits.

    A pod with a limit whose directories cannot be measured to their end is over it: nobody needs millions of files in
    one directory, except to hide others from being counted.
    """
    for volume in pod.spec.volumes:
        limit = _size_limit(volume)
        if limit and used.volumes.get(volume.name, 0) > limit and volume.empty_dir is not None:
            size = quantity(volume.empty_dir.size_limit or 0).canonical()
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{size}". '
    total = pod_limits(pod).get(STORAGE)
    if total is not None and used.disk > total.value():
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {total.canonical()}. "
    sidecars = (container for container in pod.spec.init_containers if container.sidecar)
    for container in (*pod.spec.containers, *sidecars):
        own = amount(container.resources.limits, STORAGE)
        if own.value() and used.containers.get(container.name, _NONE).disk > own.value():
            return f'Container {container.name} exceeded its local ephemeral storage limit "{own.canonical()}". '
    if not used.complete and limited(pod):
        return "Pod ephemeral local storage usage cannot be measured: too many files or directories. "
    return ""


def _size_limit(volume: Volume) -> int:
    """Bytes; 0 without a limit. The limit of an emptyDir in memory is the size of its tmpfs."""
    source = volume.empty_dir
    if source is None or source.medium or not source.size_limit:
        return 0
    return quantity(source.size_limit).value()
