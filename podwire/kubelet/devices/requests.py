"""Which devices a pod wants, container by container. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from podwire.kubelet.config.resources import amount
from podwire.objects.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """Of one container; by resource, how many."""

    container: str
    counts: Mapping[str, int]
    passes_on: bool = False
    """It ends before those after it start, so that these may have its devices."""


def device_requests(pod: Pod, resources: Collection[str]) -> list[DeviceRequest]:
    """In the order in which containers start; of containers that want none of these resources, nothing."""
    found = []
    for each in (*pod.spec.init_containers, *pod.spec.containers):
        limits = each.resources.limits
        counts = {name: amount(limits, name).value() for name in limits if name in resources}
        if counts := {name: count for name, count in counts.items() if count > 0}:
            passes_on = each in pod.spec.init_containers and not each.sidecar
            found.append(DeviceRequest(container=each.name, counts=counts, passes_on=passes_on))
    return found
