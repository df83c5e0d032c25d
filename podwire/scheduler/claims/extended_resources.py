"""Extended resources that map to a DeviceClass: not turned into claims by this scheduler, and explained. Pure."""

from collections.abc import Sequence

from podwire.objects.device_classes import DeviceClass
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

IMPLICIT = "deviceclass.resource.kubernetes.io/"


def explain(pod: PodInfo, snapshot: Snapshot, _nodes: Sequence[NodeInfo]) -> str:
    sentences = [
        f"{resource} stands for DeviceClass {class_.name}: this scheduler gives its devices to spec.resourceClaims only"
        for class_ in snapshot.claims.classes.values()
        for resource in _names(class_)
        if pod.requests.get(resource)
    ]
    return " ".join(f"{sentence}." for sentence in sentences)


def _names(class_: DeviceClass) -> Sequence[str]:
    own = class_.spec.extended_resource_name
    return (IMPLICIT + class_.name, own) if own else (IMPLICIT + class_.name,)
