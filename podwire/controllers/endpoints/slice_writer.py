"""Writes EndpointSlices, and knows which of its writes the feed has not reported yet."""

from collections.abc import Iterable

from podwire.controllers.endpoints.slices import Changes
from podwire.controllers.expectations import Expectations
from podwire.controllers.kinds import ENDPOINT_SLICES
from podwire.controllers.metadata import PartialObject
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.pod_control import namespace_is_terminating
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError


class SliceWriter:
    """Writes the slices of one controller."""

    def __init__(self, api: Client, expectations: Expectations, writes: OwnWrites) -> None:
        self._api = api
        self._expectations = expectations
        self._writes = writes

    def lags(self, owner: str, slices: Iterable[PartialObject]) -> bool:
        """Returns whether the feed lacks our last writes for an owner; its report calls the controller again."""
        lagging = [slice_ for slice_ in slices if self._writes.lags(slice_)]
        return bool(lagging) or not self._expectations.satisfied(owner)

    async def write(self, owner: str, changes: Changes) -> None:
        """Creates, updates, then deletes: an endpoint is never missing in between."""
        deletions = [slice_["metadata"]["uid"] for slice_ in changes.delete]
        if changes.create or deletions:
            self._expectations.expect(owner, creations=len(changes.create), deletions=deletions)
        done = 0
        try:
            for slice_ in changes.create:
                await self._api.create(slice_)
                done += 1
            for slice_ in changes.update:
                self._writes.wrote(await self._api.replace(slice_))
            for slice_ in changes.delete:
                await self._delete(slice_["metadata"], owner)
                deletions.remove(slice_["metadata"]["uid"])
        except ApiError as error:
            self._expectations.created(owner, len(changes.create) - done)
            for uid in deletions:
                self._expectations.deleted(owner, uid)
            if not namespace_is_terminating(error):
                raise

    async def _delete(self, meta: dict[str, str], owner: str) -> None:
        try:
            await self._api.delete(ENDPOINT_SLICES, meta["name"], meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            self._expectations.deleted(owner, meta["uid"])
            if error.code not in (404, 409):
                raise
