"""Which devices a pod has whose record is damaged, from what the runtime was told when it was made. Pure."""

from collections.abc import Sequence

from podwire.kubelet.devices.records import ANNOTATION, Held, Record, read_annotation
from podwire.kubelet.observed import NAME, NAMESPACE
from podwire.protocols.cri import cri_pb2 as pb

REST = ""
"""In place of a container's name: what its pod has, and no container that was made."""


class Unknown(Exception):
    """The runtime has the pod, and nobody knows with which devices."""


def recovered(uid: str, sandboxes: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Record | None:
    """None for a pod of which the runtime has nothing, so that nothing uses its devices. Unknown."""
    if not sandboxes:
        return None
    newest = max(sandboxes, key=lambda each: (each.metadata.attempt, each.created_at))
    told = read_annotation(newest.annotations.get(ANNOTATION, ""))
    if told is None:
        raise Unknown(f"sandbox {newest.id} does not say which devices it has")
    made: dict[str, dict[str, Held]] = {}
    rest = {resource: set(ids) for resource, ids in told.items()}
    for each in sorted(containers, key=lambda each: (each.metadata.attempt, each.created_at)):
        for resource, ids in (read_annotation(each.annotations.get(ANNOTATION, "")) or {}).items():
            made.setdefault(each.metadata.name, {})[resource] = Held(ids=tuple(ids))
            rest.setdefault(resource, set()).difference_update(ids)
    left = {resource: Held(ids=tuple(sorted(ids))) for resource, ids in rest.items() if ids}
    return Record(
        uid=uid,
        namespace=newest.labels.get(NAMESPACE, newest.metadata.namespace),
        name=newest.labels.get(NAME, newest.metadata.name),
        containers={**made, **({REST: left} if left else {})},
    )
