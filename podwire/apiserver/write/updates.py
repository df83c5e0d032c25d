"""update and patch: read, change, check, and write if the revision is unchanged; retried when that is safe."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.authentication import User
from podwire.apiserver.ports import Store
from podwire.apiserver.request import context, offload
from podwire.apiserver.write.creation import check_namespace, mismatch, pack_checked, refuse_too_large
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
"""Returns the new object from the current one (a fresh copy, unless the Write `copies`)."""

WITHOUT_GENERATION = ("status", "approval", "finalize", "binding")
"""Subresources through which a change does not increment the generation."""

_NOT_SPEC = ("metadata", "kind", "apiVersion")


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One update: the change, its subresource and its user.

    `whole`: the client sent the whole object, so its name must be in it, its uid is a precondition, and some kinds must
    name the version that they replace.
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
    """The manager of the changed fields; None leaves managedFields as they are."""
    applied: bool = False
    """The change sets managedFields itself."""
    shown_as: tuple[str, Change] | None = None
    """The subresource under which policies see the object, and the view that they see."""
    copies: bool = False
    """The change does not modify its argument, and shares only parts that nobody modifies afterwards: it gets the old
    object itself."""
    run_policies: bool = True
    """Runs validating policies; not for the server's own writes, or those that were checked in another form."""


@dataclass(frozen=True, slots=True)
class Updater:
    """Updates objects."""

    store: Store
    admission: Admission
    tracker: Tracker
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    """Writers that lost a race for a key retry one at a time: fifty at once would mostly make each other lose."""

    async def update(self, write: Write) -> Item:
        """Changes a stored object; raises NotFound, Conflict, Invalid.

        1. Read.  2. Change a copy.  3. Restore what the subresource may not change.  4. Default, track field managers,
        admit, validate, run policies.  5. Write with the revision that was read. After a lost race it starts again,
        where a client that named a revision gets its conflict. Each lost race is another writer's success, so this
        ends; the request's deadline ends it sooner.
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
        offload.note_size(len(item.value))
        new, old = await offload.run(self._changed, write, item)
        operation = Operation(
            verb="UPDATE", resource=write.resource, namespace=write.namespace, obj=new, old=old, user=write.user,
            subresource=write.subresource, dry_run=write.dry_run, internal=not write.run_policies,
            restrict=lambda obj: _restrict_to_subresource(write.resource, write.subresource, obj, old),
        )  # fmt: skip
        await self.admission.admit(operation)
        try:
            return await self._store(write, item, operation, old)
        except (ApiError, Stale, StoreFull):
            await operation.undo()  # only when certainly nothing was written
            raise

    def _changed(self, write: Write, item: Item) -> tuple[Object, Object]:
        """Returns the new object, complete but not validated, and the old one."""
        resource = write.resource
        old = resource.unpack(item)
        new = write.change(old if write.copies else resource.unpack(item))
        # Checks that the new object is the URL's, in the version that the client last saw.
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
        given = new["metadata"].get(MANAGED_FIELDS)
        new = _restrict_to_subresource(resource, write.subresource, new, old)
        resource.default(new)
        refuse_too_large(resource, new)
        self._track(write, new, old, given)
        return new, old

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
        if errors := await offload.run(resource.validate_update, new, old, write.subresource):
            raise invalid_object(resource.kind.kind, write.name, errors, group=resource.group)
        if write.run_policies:
            await self.admission.validate(_as_shown(write, operation, old))
        if write.subresource not in WITHOUT_GENERATION:
            _count_generation(resource, new, old)
        if not write.subresource:
            for text in await offload.run(resource.strategy.warnings, new, old):
                context.warn(text)
        if not item.stale and (new == old or (write.applied and unchanged_but_for_times(new, old))):
            return item  # a write without changes keeps its revision and causes no event
        value = await offload.run(pack_checked, resource, new)
        if write.dry_run:
            return Item(item.key, value, item.revision, item.created)
        if finished(resource, new):
            revision = await self.store.delete(item.key, expected=item.revision)
            return Item(item.key, value, revision, item.created)
        if operation.reservations:
            await operation.reserve()
            value = pack_checked(resource, new)
        return await self.store.update(item.key, value, expected=item.revision)


def _as_shown(write: Write, operation: Operation, old: Object) -> Operation:
    if write.shown_as is None:
        return operation
    part, view = write.shown_as
    return msgspec.structs.replace(operation, obj=view(operation.obj), old=view(old), subresource=part)


def finished(resource: Resource, obj: Object) -> bool:
    """Returns whether a terminating object has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds") and not resource.strategy.removal_blocked(obj)


def another_uid(resource: Resource, name: str, wanted: str, real: str) -> ApiError:
    """Returns the conflict of a uid that is not, or no longer, the one of that name."""
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {real}"
    return conflict(resource.name, name, why, group=resource.group)


def _check_version(write: Write, metadata: Object, old: Object) -> None:
    resource, given = write.resource, metadata.get("resourceVersion", "")
    if not given or given == "0":
        if write.whole and not resource.strategy.allow_unconditional_update:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(resource.name, write.name, [error], group=resource.group)
    elif given != old["metadata"]["resourceVersion"]:
        raise conflict(resource.name, write.name, MODIFIED, group=resource.group)
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]


def _restrict_to_subresource(resource: Resource, subresource: str, new: Object, old: Object) -> Object:
    """Returns the new object with everything restored that the subresource may not change."""
    _keep_identity(new["metadata"], old["metadata"])
    if not subresource:
        if resource.has_status:
            _restore(new, old, "status")
        resource.strategy.prepare_update(new, old)
        return new
    restrict = RESTRICTIONS.get(subresource)
    return restrict(resource, new, old) if restrict else new


def _keep_identity(new: Object, old: Object) -> None:
    """Keeps immutable metadata; where a client changes it, validation reports it as immutable."""
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
    """Restricts a write to the status; for built-in kinds also labels and annotations, which kubelets set with it."""
    metadata = old["metadata"] if resource.custom else {**new["metadata"]}
    if not resource.custom:
        _restore(metadata, old["metadata"], "ownerReferences")
        _restore(metadata, old["metadata"], "finalizers")
    changed = {**old, "metadata": metadata}
    _restore(changed, new, "status")
    resource.strategy.prepare_status(changed, old)
    return changed


def _restrict_to_finalizers(_resource: Resource, new: Object, old: Object) -> Object:
    """Restricts a write to the finalizers in a namespace's spec."""
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
    """Increments the generation when anything but metadata and status changes."""
    if not resource.strategy.counts_generation:
        return
    parts = {*new, *old}.difference(_NOT_SPEC, ("status",) if resource.has_status else ())
    changed = any(new.get(key) != old.get(key) for key in parts)
    if resource.strategy.generation_follows_annotations:
        changed |= new["metadata"].get("annotations", {}) != old["metadata"].get("annotations", {})
    if changed:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
