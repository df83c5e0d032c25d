"""Writes Events about what a controller did to an object."""

import logging

from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import CORE_V1, Names, Note, RecordedEvent, Reference, Source, short
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


class EventRecorder:
    """Records events of one component. A refused event is logged; no work depends on it."""

    def __init__(self, api: Client, clock: Clock, component: str) -> None:
        self._api, self._clock, self._source, self._names = api, clock, Source(component), Names()

    async def record(self, about: Object, type_: str, reason: str, message: str) -> None:
        meta, wall = about["metadata"], self._clock.wall()
        place = {key: meta[key] for key in ("namespace", "uid") if meta.get(key)}
        reference = Reference(about["kind"], meta["name"], **place, api_version=about["apiVersion"])
        note, name = Note(reference, type_, reason, short(message)), self._names.new(meta["name"], wall)
        try:
            await self._api.create(CORE_V1.event(RecordedEvent(note, wall, wall, count=1, name=name), self._source))
        except (ApiError, ClientError) as error:
            log.info("cannot write an event", extra={"event": reason, "error": str(error)})
