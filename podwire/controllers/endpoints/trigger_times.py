"""endpoints.kubernetes.io/last-change-trigger-time: when the change happened that a write of addresses follows.

From this, a proxy measures how long a change takes until it is programmed. It is the earliest of the changes since the
last look: the creation of the Service, and the times at which its pods became ready or unready.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from podwire.controllers.endpoints.addresses import PodAddresses
from podwire.objects.times import parse
from podwire.protocols.k8sapi.watch import Object

ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


@dataclass(slots=True)
class TriggerTimes:
    """The times that were seen last, of the pods of each Service, by its uid."""

    _pods: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, service: Object, pods: Iterable[PodAddresses]) -> str:
        """Returns the time of the earliest change since the last call for this Service; empty: none is known."""
        uid, created = service["metadata"]["uid"], service["metadata"].get("creationTimestamp") or ""
        before = self._pods.get(uid)
        now = self._pods[uid] = {pod.metadata.name: pod.ready_since for pod in pods if pod.ready_since}
        if before is None:
            return created
        changed = [since for name, since in now.items() if _is_later(since, before.get(name, ""))]
        return min(changed, key=parse, default="")

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)


def _is_later(since: str, before: str) -> bool:
    return since != before and (not before or parse(since) > parse(before))


def marked(written: Object, time: str) -> Object:
    """Returns an object that is about to be written, with the annotation, or without one that is not true any more."""
    metadata = written["metadata"]
    others = {key: text for key, text in (metadata.get("annotations") or {}).items() if key != ANNOTATION}
    annotations = {**others, ANNOTATION: time} if time else others
    if not annotations and not metadata.get("annotations"):
        return written
    return {**written, "metadata": {**metadata, "annotations": annotations}}
