"""Keeps the book as the watches tell it, and says which waiting pods that may help."""

import logging
from collections.abc import Callable

import msgspec

from podwire.objects import claims, device_classes, device_taints, slices
from podwire.objects.claims import ResourceClaim
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Updated, key_of, metadata
from podwire.scheduler.claims import pod_claims
from podwire.scheduler.claims.cache import Book
from podwire.scheduler.framework import Happening
from podwire.scheduler.pod_info import PodInfo

log = logging.getLogger("podwire.scheduler")

Wake = Callable[[Happening, Callable[[PodInfo], bool] | None], None]


class ClaimFollower:
    def __init__(self, book: Book, wake: Wake) -> None:
        self._book = book
        self._wake = wake

    def claim(self, change: Change) -> None:
        """A claim that gives devices back may help anybody; any other only the pods that speak of it."""
        match change:
            case Added(object_) | Updated(object_):
                _understood(object_, self._put_claim)
            case Deleted(object_):
                meta = metadata(object_)
                if self._book.drop_claim(f"{meta.get('namespace', '')}/{meta.get('name', '')}"):
                    self._wake(Happening.DEVICES, None)

    def _put_claim(self, object_: Object) -> None:
        claim: ResourceClaim = claims.read(object_)
        freed = self._book.put_claim(claim)
        self._wake(Happening.DEVICES, None if freed else lambda info: pod_claims.named(info.pod, claim))

    def slice(self, change: Change) -> None:
        inventory = self._book.inventory
        match change:
            case Added(object_) | Updated(object_):
                _understood(object_, lambda each: inventory.put_slice(slices.read(each)))
            case Deleted(object_):
                inventory.drop_slice(metadata(object_).get("name", ""))
        self._wake(Happening.DEVICES, None)

    def device_class(self, change: Change) -> None:
        match change:
            case Added(object_) | Updated(object_):
                _understood(object_, self._put_class)
            case Deleted(object_):
                self._book.classes.pop(metadata(object_).get("name", ""), None)
        self._wake(Happening.DEVICES, None)

    def _put_class(self, object_: Object) -> None:
        class_ = device_classes.read(object_)
        self._book.classes[class_.name] = class_

    def rule(self, change: Change) -> None:
        inventory = self._book.inventory
        match change:
            case Added(object_) | Updated(object_):
                _understood(object_, lambda each: inventory.put_rule(device_taints.read_rule(each)))
            case Deleted(object_):
                inventory.drop_rule(metadata(object_).get("name", ""))
        self._wake(Happening.DEVICES, None)


def _understood(object_: Object, put: Callable[[Object], None]) -> None:
    try:
        put(object_)
    except (msgspec.ValidationError, ValueError) as error:
        kind, key = object_.get("kind", ""), "/".join(key_of(object_))
        log.warning("object cannot be read", extra={"kind": kind, "object": key, "why": str(error)})
