"""update and patch: read, change, check, write if nobody else did; again when that is safe."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.authn import User
from podwire.apiserver.creation import check_namespace, counts_generations, mismatch, packed
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Resource
from podwire.apiserver.stored import Object
from podwire.protocols.k8sapi.status import (
    MODIFIED,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_object,
    not_found,
)
from podwire.protocols.storage import Item, Stale, StoreFull

TRIES = 10
"""How often a write without a resourceVersion is applied anew after losing a race."""

Change = Callable[[Object], Object]
"""From the object as it is (a fresh copy) to the object as it should be."""

FROZEN_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

NOT_GENERATIONS = ("status", "approval", "finalize", "binding")
"""Doors through which a change does not count as a new generation."""

_NOT_SPEC = ("metadata", "status", "kind", "apiVersion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One update: what to change, through which subresource, on whose behalf.

    `conditional`: the new object's resourceVersion was given by the client, so a lost race is a conflict.
    """

    resource: Resource
    namespace: str
    name: str
    change: Change
    user: User
    subresource: str = ""
    conditional: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Updater:
    """Updates objects."""

    store: Store
    admission: Admission

    async def update(self, write: Write) -> Item:
        """Change a stored object; raises NotFound, Conflict, Invalid.

        1. Read.  2. Change a copy.  3. Restore what this door may not touch.  4. Default, admit, validate.
        5. Write with the revision that was read; on a lost race begin anew unless the client named a revision.
        """
        resource = write.resource
        key = resource.key(write.namespace, write.name)
        item = await self.store.get(key)
        for _ in range(TRIES):
            if item is None:
                raise not_found(resource.name, write.name, group=resource.group)
            try:
                return await self._attempt(write, item)
            except Stale as error:
                if write.conditional:
                    break
                item = error.current or await self.store.get(key)
        raise conflict(resource.name, write.name, MODIFIED, group=resource.group)

    async def _attempt(self, write: Write, item: Item) -> Item:
        resource = write.resource
        old = resource.unpack(item)
        new = write.change(resource.unpack(item))
        _check_identity(write, new, old)
        new = _through_door(resource, write.subresource, new, old)
        resource.default(new)
        operation = Operation(
            verb="UPDATE", resource=resource, namespace=write.namespace, obj=new, old=old, user=write.user,
            subresource=write.subresource, dry_run=write.dry_run,
        )  # fmt: skip
        await self.admission.admit(operation)
        errors = _finalizer_errors(new, old) + resource.validate_update(new, old, write.subresource)
        if errors:
            raise invalid_object(resource.kind.kind, write.name, errors, group=resource.group)
        if write.subresource not in NOT_GENERATIONS:
            _count_generation(resource, new, old)
        if new == old:
            return item  # a write that changes nothing keeps its revision and is no event
        value = packed(resource, new)
        if write.dry_run:
            return Item(item.key, value, item.revision, item.created)
        if finished(resource, new):
            revision = await self.store.delete(item.key, expected=item.revision)
            return Item(item.key, value, revision, item.created)
        try:
            return await self.store.update(item.key, value, expected=item.revision)
        except (Stale, StoreFull):
            await self.admission.undo(operation)  # only when it is certain that nothing was written
            raise


def finished(resource: Resource, obj: Object) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.name == "namespaces" and not resource.group:
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _check_identity(write: Write, new: Object, old: Object) -> None:
    """The new object must be the one that the URL names, in the version that the client last saw."""
    metadata = new["metadata"]
    if metadata.setdefault("name", write.name) != write.name:
        raise bad_request(mismatch("name", metadata["name"], write.name))
    check_namespace(write.resource, write.namespace, metadata)
    if write.resource.kind.namespaced:
        metadata["namespace"] = write.namespace
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
        raise conflict(write.resource.name, write.name, why, group=write.resource.group)
    _check_version(write, metadata, old)


def _check_version(write: Write, metadata: Object, old: Object) -> None:
    given = metadata.get("resourceVersion", "")
    if not given or given == "0":
        if write.resource.custom and write.conditional:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(write.resource.kind.kind, write.name, [error], group=write.resource.group)
    elif given != old["metadata"]["resourceVersion"]:
        raise conflict(write.resource.name, write.name, MODIFIED, group=write.resource.group)
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]


def _through_door(resource: Resource, subresource: str, new: Object, old: Object) -> Object:
    """The new object with everything restored that this door may not change."""
    metadata = new["metadata"]
    for key in FROZEN_METADATA:
        _restore(metadata, old["metadata"], key)
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    if not subresource:
        if resource.has_status:
            _restore(new, old, "status")
        return new
    door = DOORS.get(subresource)
    return door(resource, new, old) if door else new


def _restore(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _status_door(resource: Resource, new: Object, old: Object) -> Object:
    """Only the status, and of built-in kinds labels and annotations too, which kubelets set on their way."""
    metadata = old["metadata"] if resource.custom else {**new["metadata"]}
    if not resource.custom:
        _restore(metadata, old["metadata"], "ownerReferences")
        _restore(metadata, old["metadata"], "finalizers")
    changed = {**old, "metadata": metadata}
    _restore(changed, new, "status")
    return changed


def _finalize_door(_resource: Resource, new: Object, old: Object) -> Object:
    """Only the finalizers in a namespace's spec."""
    spec = {**old.get("spec", {})}
    _restore(spec, new.get("spec", {}), "finalizers")
    return {**old, "spec": spec}


DOORS: dict[str, Callable[[Resource, Object, Object], Object]] = {
    "status": _status_door,
    "approval": _status_door,
    "finalize": _finalize_door,
}
"""Other subresources change their part only, by construction."""


def _finalizer_errors(new: Object, old: Object) -> list[Any]:
    if not old["metadata"].get("deletionTimestamp"):
        return []
    added = sorted(set(new["metadata"].get("finalizers", ())) - set(old["metadata"].get("finalizers", ())))
    if not added:
        return []
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [forbidden("metadata.finalizers", why)]


def _count_generation(resource: Resource, new: Object, old: Object) -> None:
    """Generation moves with the spec: with anything that is neither metadata nor status."""
    if not counts_generations(resource):
        return
    if any(new.get(key) != old.get(key) for key in {*new, *old}.difference(_NOT_SPEC)):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
