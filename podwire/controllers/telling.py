"""Tells people what a controller did to an object: Events."""

import logging

from podwire.controllers.ports import Api
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.seams import Clock

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"


class Teller:
    """Speaks for one component. An event that is refused is logged; nobody's work depends on it."""

    def __init__(self, api: Api, clock: Clock, component: str) -> None:
        self._api = api
        self._clock = clock
        self._component = component
        self._stamp = 0

    async def tell(self, about: Object, type_: str, reason: str, message: str) -> None:
        try:
            await self._api.create(self._event(about, type_, reason, message))
        except (ApiError, ClientError) as error:
            log.info("event not told", extra={"reason": reason, "why": str(error)})

    def _event(self, about: Object, type_: str, reason: str, message: str) -> Object:
        wall = self._clock.wall()
        self._stamp = max(self._stamp + 1, int(wall * 1e9))
        meta, now = about["metadata"], rfc3339(wall)
        reference = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            **{key: meta[key] for key in ("name", "namespace", "uid") if meta.get(key)},
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{self._stamp:x}", "namespace": meta.get("namespace") or "default"},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
