"""Devices that a pod requests, by container. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from podwire.kubelet.config.resources import amount
from podwire.objects.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """Number of devices by resource that one container requests."""

    container: str
    counts: Mapping[str, int]
    passes_on: bool = False
    """It ends before the next containers start (an init container), so that these may have its devices."""


def device_requests(pod: Pod, resources: Collection[str]) -> list[DeviceRequest]:
    """Requests in the order in which containers start; containers without any are left out."""
    requests = []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        limits = container.resources.limits
        counts = {name: amount(limits, name).value() for name in limits if name in resources}
        if counts := {name: count for name, count in counts.items() if count > 0}:
            passes_on = container in pod.spec.init_containers and not container.sidecar
            requests.append(DeviceRequest(container=container.name, counts=counts, passes_on=passes_on))
    return requests
