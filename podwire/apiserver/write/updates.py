"""update and patch: read, change, check, write if nobody else did; again when that is safe."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.authentication import User
from podwire.apiserver.ports import Store
from podwire.apiserver.write.creation import check_namespace, mismatch, pack_checked
from podwire.apiserver.write.field_managers import (
    MANAGED_FIELDS,
    SERVER,
    FieldManager,
    Tracker,
    unchanged_but_for_times,
)
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import (
    MODIFIED,
    ApiError,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    not_found,
)
from podwire.protocols.storage import Item, Stale, StoreFull
from podwire.tasks.keyed_locks import KeyedLocks

Change = Callable[[Object], Object]
"""From the object as it is (a fresh copy, but for a Write that `copies`) to the object as it should be."""

WITHOUT_GENERATION = ("status", "approval", "finalize", "binding")
"""Doors through which a change does not count as a new generation."""

_NOT_SPEC = ("metadata", "kind", "apiVersion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One update: what to change, through which subresource, on whose behalf.

    `whole`: the client sent the whole object, so its name must be in it, its uid is a precondition, and some kinds
    must say which version they replace.
    """

    resource: Resource
    namespace: str
    name: str
    change: Change
    user: User
    subresource: str = ""
    whole: bool = False
    dry_run: bool = False
    field_manager: FieldManager | None = SERVER
    """Who owns what is changed; None leaves it to whoever owned it."""
    applied: bool = False
    """The change itself says who owns what."""
    shown_as: tuple[str, Change] | None = None
    """The part through which the object is changed and what that shows of it, where policies are shown this."""
    copies: bool = False
    """The change leaves what it is given as it is, and all that its result shares with it is left alone from then on:
    it can be given the old object itself."""
    run_policies: bool = True
    """Policies have their say; not about what the server does itself, or has asked them about in another form."""


@dataclass(frozen=True, slots=True)
class Updater:
    """Updates objects."""

    store: Store
    admission: Admission
    tracker: Tracker
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    """Writers that lost a race for a key retry one at a time: fifty at once would mostly make each other lose."""

    async def update(self, write: Write) -> Item:
        """Change a stored object; raises NotFound, Conflict, Invalid.

        1. Read.  2. Change a copy.  3. Restore what this door may not touch.  4. Default, note who owns what,
        admit, validate, ask policies.  5. Write with the revision that was read; on a lost race begin anew, where a
        client that named a revision meets its conflict. Somebody else has won each time, so this ends; the request's
        deadline ends it sooner.
        """
        resource = write.resource
        key = resource.key(write.namespace, write.name)
        if (item := await self.store.get(key)) is not None:
            with contextlib.suppress(Stale):
                return await self._attempt(write, item)
            async with self.locks.hold(key):
                item = await self.store.get(key)
                while item is not None:
                    try:
                        return await self._attempt(write, item)
                    except Stale as error:
                        item = error.current or await self.store.get(key)
        raise not_found(resource.name, write.name, group=resource.group)

    async def _attempt(self, write: Write, item: Item) -> Item:
        resource = write.resource
        old = resource.unpack(item)
        new = write.change(old if write.copies else resource.unpack(item))
        _check_identity(write, new, old)
        given = new["metadata"].get(MANAGED_FIELDS)
        new = _restrict_to_subresource(resource, write.subresource, new, old)
        resource.default(new)
        self._track(write, new, old, given)
        operation = Operation(
            verb="UPDATE", resource=resource, namespace=write.namespace, obj=new, old=old, user=write.user,
            subresource=write.subresource, dry_run=write.dry_run,
        )  # fmt: skip
        await self.admission.admit(operation)
        try:
            return await self._store(write, item, operation, old)
        except (ApiError, Stale, StoreFull):
            await self.admission.undo(operation)  # only when it is certain that nothing was written
            raise

    def _track(self, write: Write, new: Object, old: Object, given: Any) -> None:
        if write.field_manager is None or write.applied:
            entries = given if write.applied else old["metadata"].get(MANAGED_FIELDS)
            new["metadata"] = {**new["metadata"], MANAGED_FIELDS: entries}
            if not entries:
                del new["metadata"][MANAGED_FIELDS]
        else:
            self.tracker.updated(write.resource, new, old, given, write.field_manager)

    async def _store(self, write: Write, item: Item, operation: Operation, old: Object) -> Item:
        resource, new = write.resource, operation.obj
        if errors := resource.validate_update(new, old, write.subresource):
            raise invalid_object(resource.kind.kind, write.name, errors, group=resource.group)
        if write.run_policies:
            await self.admission.validate(_as_shown(write, operation, old))
        if write.subresource not in WITHOUT_GENERATION:
            _count_generation(resource, new, old)
        if new == old or (write.applied and unchanged_but_for_times(new, old)):
            return item  # a write that changes nothing keeps its revision and is no event
        value = pack_checked(resource, new)
        if write.dry_run:
            return Item(item.key, value, item.revision, item.created)
        if finished(resource, new):
            revision = await self.store.delete(item.key, expected=item.revision)
            return Item(item.key, value, revision, item.created)
        if operation.reserve:
            await operation.reserve()
            value = pack_checked(resource, new)
        return await self.store.update(item.key, value, expected=item.revision)


def _as_shown(write: Write, operation: Operation, old: Object) -> Operation:
    if write.shown_as is None:
        return operation
    part, view = write.shown_as
    return replace(operation, obj=view(operation.obj), old=view(old), subresource=part)


def finished(resource: Resource, obj: Object) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds") and not resource.strategy.removal_blocked(obj)


def _check_identity(write: Write, new: Object, old: Object) -> None:
    """The new object must be the one that the URL names, in the version that the client last saw."""
    metadata = new["metadata"]
    if not metadata.get("name"):
        raise bad_request(
            f"the name of the object ({write.name} based on URL) was undeterminable: name must be provided"
        )
    if metadata["name"] != write.name:
        raise bad_request(mismatch("name", metadata["name"], write.name))
    check_namespace(write.resource, write.namespace, metadata)
    if write.resource.kind.namespaced:
        metadata["namespace"] = write.namespace
    uid = metadata.get("uid")
    if write.whole and uid and uid != old["metadata"]["uid"]:
        raise another_uid(write.resource, write.name, uid, old["metadata"]["uid"])
    _check_version(write, metadata, old)


def another_uid(resource: Resource, name: str, wanted: str, real: str) -> ApiError:
    """The client means an object that is not, or not any more, the one of that name."""
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {real}"
    return conflict(resource.name, name, why, group=resource.group)


def _check_version(write: Write, metadata: Object, old: Object) -> None:
    resource, given = write.resource, metadata.get("resourceVersion", "")
    if not given or given == "0":
        if write.whole and not resource.strategy.allow_unconditional_update:
            # 0x0 is how Go prints its unsigned zero, and what people search for
            error = invalid("metadata.resourceVersion", msgspec.Raw(b"0x0"), "must be specified for an update")
            raise invalid_object(resource.name, write.name, [error], group=resource.group)
    elif given != old["metadata"]["resourceVersion"]:
        raise conflict(resource.name, write.name, MODIFIED, group=resource.group)
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]


def _restrict_to_subresource(resource: Resource, subresource: str, new: Object, old: Object) -> Object:
    """The new object with everything restored that this door may not change."""
    _keep_identity(new["metadata"], old["metadata"])
    if not subresource:
        if resource.has_status:
            _restore(new, old, "status")
        resource.strategy.prepare_update(new, old)
        return new
    restrict = RESTRICTIONS.get(subresource)
    return restrict(resource, new, old) if restrict else new


def _keep_identity(new: Object, old: Object) -> None:
    """What no update changes is taken over; where a client tries to, validation calls it immutable."""
    for key in ("creationTimestamp", "generation"):
        _restore(new, old, key)
    for key in ("uid", "deletionGracePeriodSeconds"):
        if key in old and not new.get(key):
            new[key] = old[key]
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
    new.pop("selfLink", None)


def _restore(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _restrict_to_status(resource: Resource, new: Object, old: Object) -> Object:
    """Only the status, and of built-in kinds labels and annotations too, which kubelets set on their way."""
    metadata = old["metadata"] if resource.custom else {**new["metadata"]}
    if not resource.custom:
        _restore(metadata, old["metadata"], "ownerReferences")
        _restore(metadata, old["metadata"], "finalizers")
    changed = {**old, "metadata": metadata}
    _restore(changed, new, "status")
    return changed


def _restrict_to_finalizers(_resource: Resource, new: Object, old: Object) -> Object:
    """Only the finalizers in a namespace's spec."""
    spec = {**old.get("spec", {})}
    _restore(spec, new.get("spec", {}), "finalizers")
    return {**old, "spec": spec}


RESTRICTIONS: dict[str, Callable[[Resource, Object, Object], Object]] = {
    "status": _restrict_to_status,
    "approval": _restrict_to_status,
    "finalize": _restrict_to_finalizers,
}
"""Other subresources change their part only, by construction."""


def _count_generation(resource: Resource, new: Object, old: Object) -> None:
    """Generation moves with the spec: with anything that is neither metadata nor a status of its own."""
    if not resource.strategy.counts_generation:
        return
    parts = {*new, *old}.difference(_NOT_SPEC, ("status",) if resource.has_status else ())
    changed = any(new.get(key) != old.get(key) for key in parts)
    if resource.strategy.generation_follows_annotations:
        changed |= new["metadata"].get("annotations", {}) != old["metadata"].get("annotations", {})
    if changed:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
