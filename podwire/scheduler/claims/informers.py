"""Feeds watch events into the claim cache and activates the pending pods that they may help."""

import logging
from collections.abc import Callable

import msgspec

from podwire.objects import claims, device_classes, device_taints, slices
from podwire.objects.claims import ResourceClaim
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Updated, key_of, metadata
from podwire.scheduler.claims import pod_claims
from podwire.scheduler.claims.cache import ClaimCache
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.pod_info import PodInfo

log = logging.getLogger("podwire.scheduler")

Wake = Callable[[ClusterEvent, Callable[[PodInfo], bool] | None], None]


class DeviceInformers:
    def __init__(self, claim_cache: ClaimCache, activate: Wake) -> None:
        self._claim_cache = claim_cache
        self._activate = activate

    def claim(self, change: Change) -> None:
        """Freed devices may help any pod; other changes only the pods that use the claim."""
        match change:
            case Added(object_) | Updated(object_):
                _parse_and_put(object_, self._put_claim)
            case Deleted(object_):
                meta = metadata(object_)
                if self._claim_cache.drop_claim(f"{meta.get('namespace', '')}/{meta.get('name', '')}"):
                    self._activate(ClusterEvent.DEVICES, None)

    def _put_claim(self, object_: Object) -> None:
        claim: ResourceClaim = claims.read(object_)
        freed = self._claim_cache.put_claim(claim)
        self._activate(ClusterEvent.DEVICES, None if freed else lambda info: pod_claims.named(info.pod, claim))

    def slice(self, change: Change) -> None:
        inventory = self._claim_cache.inventory
        match change:
            case Added(object_) | Updated(object_):
                _parse_and_put(object_, lambda item: inventory.put_slice(slices.read(item)))
            case Deleted(object_):
                inventory.drop_slice(metadata(object_).get("name", ""))
        self._activate(ClusterEvent.DEVICES, None)

    def device_class(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                _parse_and_put(object_, self._put_class)
            case Deleted(object_):
                self._claim_cache.classes.pop(metadata(object_).get("name", ""), None)
        self._activate(ClusterEvent.DEVICES, None)

    def _put_class(self, object_: Object) -> None:
        class_ = device_classes.read(object_)
        self._claim_cache.classes[class_.name] = class_

    def rule(self, change: Change) -> None:
        inventory = self._claim_cache.inventory
        match change:
            case Added(object_) | Updated(object_):
                _parse_and_put(object_, lambda item: inventory.put_rule(device_taints.read_rule(item)))
            case Deleted(object_):
                inventory.drop_rule(metadata(object_).get("name", ""))
        self._activate(ClusterEvent.DEVICES, None)


def _parse_and_put(object_: Object, put: Callable[[Object], None]) -> None:
    try:
        put(object_)
    except (msgspec.ValidationError, ValueError) as error:
        kind, key = object_.get("kind", ""), "/".join(key_of(object_))
        log.warning("cannot parse watched object", extra={"kind": kind, "object": key, "error": str(error)})
