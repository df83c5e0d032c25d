"""Adoption: which objects a controller owns, adopts because its selector matches them, or releases because it does not.

The decision is pure (`claim`); `Adoption` carries it out. An orphan is adopted only after the server confirmed that the
owner still exists with the same uid and is not being deleted: the feed may lag behind a deletion that orphans.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.controllers.metadata import PartialObject
from podwire.protocols.k8sapi.client_side import Client, PatchType
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Object


@dataclass(frozen=True, slots=True)
class Claim:
    """The objects of one owner."""

    owned: tuple[PartialObject, ...] = ()
    adopt: tuple[PartialObject, ...] = ()
    release: tuple[PartialObject, ...] = ()


def claim(owner: PartialObject, candidates: Iterable[PartialObject], matches: Callable[[PartialObject], bool]) -> Claim:
    """Decides on the objects of the owner's namespace. An owner that is being deleted neither adopts nor releases."""
    owned, adopted, released = [], [], []
    for candidate in candidates:
        controller = candidate.controller
        if controller is not None:
            if controller.uid != owner.uid:
                continue
            if matches(candidate):
                owned.append(candidate)
            elif not owner.deleting:
                released.append(candidate)
        elif not owner.deleting and not candidate.deleting and matches(candidate):
            adopted.append(candidate)
    return Claim(tuple(owned), tuple(adopted), tuple(released))


def controller_reference(owner: Mapping[str, Any]) -> Object:
    """Returns the reference that makes an object a dependent of its controller."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Adoption:
    """Adopts and releases objects."""

    def __init__(self, api: Client) -> None:
        self._api = api

    async def settle(
        self,
        owner: PartialObject,
        candidates: Iterable[PartialObject],
        matches: Callable[[PartialObject], bool],
        finalizer: str = "",
    ) -> list[PartialObject]:
        """Carries out the claim of an owner; returns the objects that it owns then. Adopted ones get the finalizer."""
        decision = claim(owner, candidates, matches)
        owned = list(decision.owned)
        for released in decision.release:
            await self._release(owner, released)
        if decision.adopt and await self._may_adopt(owner):
            owned += [adopted for adopted in decision.adopt if await self._adopt(owner, adopted, finalizer)]
        return owned

    async def _may_adopt(self, owner: PartialObject) -> bool:
        try:
            fresh = await self._api.get(owner.kind, owner.name, owner.namespace)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return fresh["metadata"]["uid"] == owner.uid and not fresh["metadata"].get("deletionTimestamp")

    async def _adopt(self, owner: PartialObject, adopted: PartialObject, finalizer: str) -> bool:
        described = {
            "apiVersion": owner.kind.api_version,
            "kind": owner.kind.kind,
            "metadata": {"name": owner.name, "uid": owner.uid},
        }
        return await self._patch(adopted, [controller_reference(described)], finalizer)

    async def _release(self, owner: PartialObject, released: PartialObject) -> None:
        await self._patch(released, [{"$patch": "delete", "uid": owner.uid}])

    async def _patch(self, object_: PartialObject, references: list[Object], finalizer: str = "") -> bool:
        """Patches owner references; returns False for an object that is gone, replaced or owned by another."""
        patch: Object = {"metadata": {"uid": object_.uid, "ownerReferences": references}}
        if finalizer:
            patch["metadata"]["finalizers"] = [finalizer]
        try:
            await self._api.patch(object_.kind, object_.name, patch, object_.namespace, type_=PatchType.STRATEGIC)
        except ApiError as error:
            if error.code == 404 or error.reason in (Reason.INVALID, Reason.CONFLICT):
                return False
            raise
        return True
