"""Writes ControllerRevisions: creates the one of the present template, renumbers, and deletes surplus ones."""

from collections.abc import Iterable

from podwire.controllers.apps import revisions
from podwire.controllers.kinds import REVISIONS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object


class Collision(Exception):
    """Another revision has the name: the hash has to change."""


class History:
    """The revisions of DaemonSets or of StatefulSets, which have their hash in different labels."""

    def __init__(self, api: Client, hash_label: str) -> None:
        self._api = api
        self._hash_label = hash_label

    async def create(self, owner: Object, number: int) -> Object:
        """Creates the revision of the present template, or finds it. Raises Collision."""
        wanted = revisions.new_revision(owner, number, self._hash_label)
        try:
            return await self._api.create(wanted)
        except ApiError as error:
            if error.reason is not Reason.ALREADY_EXISTS:
                raise
        meta = wanted["metadata"]
        found = await self._api.get(REVISIONS, meta["name"], meta["namespace"])
        if found.get("data") != wanted["data"]:
            raise Collision
        return found

    async def renumber(self, revision: Object, number: int) -> Object:
        if revisions.number_of(revision) == number:
            return revision
        return await self._api.replace({**revision, "revision": number})

    async def delete(self, surplus: Iterable[Object]) -> None:
        for revision in surplus:
            meta = revision["metadata"]
            try:
                await self._api.delete(REVISIONS, meta["name"], meta["namespace"], uid=meta["uid"])
            except ApiError as error:
                if error.code != 404:
                    raise
