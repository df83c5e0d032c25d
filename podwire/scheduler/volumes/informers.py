"""Feeds watch events into the volume cache and activates the pending pods that they may help."""

from collections.abc import Callable, MutableMapping
from typing import Any

from podwire.objects import persistent_volumes as storage
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Updated, key_of, metadata
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.volumes.cache import Object, VolumeCache

Wake = Callable[[ClusterEvent, Callable[[PodInfo], bool] | None], None]


class VolumeInformers:
    def __init__(self, cache: VolumeCache, activate: Wake) -> None:
        self._cache = cache
        self._activate = activate

    def claim(self, change: Change) -> None:
        """Helps the pods that use the claim."""
        object_ = _follow(self._cache.claims, change, key_of)
        namespace, name = key_of(object_)
        self._wake(lambda pod: pod.pod.namespace == namespace and any(name == own for own, _made in pod.claims))

    def volume(self, change: Change) -> None:
        """Helps the pods with a claim that it is bound to, or that waits for a volume of its class."""
        object_ = _follow(self._cache.volumes, change, _name)
        name, class_ = _name(object_), storage.class_of_volume(object_)

        def helps(claim: Object) -> bool:
            bound = claim["spec"].get("volumeName")
            return bound == name if bound else storage.class_of_claim(claim) == class_

        self._wake_claims(helps)

    def storage_class(self, change: Change) -> None:
        """Helps the pods with claims of that class that are not bound; most changes of a class help nobody."""
        object_ = _follow(self._cache.classes, change, _name)
        before = change.previous if isinstance(change, Updated) else None
        if before is not None and before.get("allowedTopologies") == object_.get("allowedTopologies"):
            return
        name = _name(object_)
        self._wake_claims(lambda claim: not storage.is_fully_bound(claim) and storage.class_of_claim(claim) == name)

    def driver(self, change: Change) -> None:
        _follow(self._cache.drivers, change, _name)
        self._wake(None)

    def csi_node(self, change: Change) -> None:
        _follow(self._cache.csi_nodes, change, _name)
        self._wake(None)

    def capacity(self, change: Change) -> None:
        """Helps the pods with claims of its class."""
        name = _follow(self._cache.capacities, change, key_of).get("storageClassName")
        self._wake_claims(lambda claim: storage.class_of_claim(claim) == name)

    def _wake_claims(self, helps: Callable[[Object], bool]) -> None:
        """Wakes the pods with a claim that a change may help."""

        def concerns(pod: PodInfo) -> bool:
            claims = [self._cache.claims.get((pod.pod.namespace, name)) for name, _made in pod.claims]
            return any(claim is not None and helps(claim) for claim in claims)

        self._wake(concerns)

    def _wake(self, concerns: Callable[[PodInfo], bool] | None) -> None:
        self._cache.notify()
        self._activate(ClusterEvent.VOLUMES, concerns)


def _name(object_: Object) -> str:
    return str(metadata(dict(object_)).get("name", ""))


def _follow(table: MutableMapping[Any, Object], change: Change, key: Callable[[dict[str, Any]], Any]) -> Object:
    """Stores or removes the object of a change, and returns it."""
    match change:
        case Added(object_) | Updated(object_):
            table[key(object_)] = object_
        case Deleted(object_):
            table.pop(key(object_), None)
        case _:
            raise AssertionError("an informer's Synced is not a change of an object")
    return object_
