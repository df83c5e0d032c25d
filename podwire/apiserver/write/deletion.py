"""delete: at once, after a grace period, or when the last finalizer is removed."""

from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.authentication import User
from podwire.apiserver.ports import Store
from podwire.apiserver.request import offload
from podwire.apiserver.write.updates import finished
from podwire.interfaces import Clock
from podwire.kinds.field_checks import Choice
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.status import (
    FieldError,
    Problem,
    conflict,
    invalid,
    invalid_object,
    not_found,
    not_supported,
)
from podwire.protocols.storage import Item, Stale

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_FINALIZERS = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
POLICIES = Choice(("Foreground", "Background", "Orphan", "nil"))
"""In upstream's order; `nil` is only named."""
UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_NOT_WITH_UNSAFE = ("dryRun", "propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions")
LONGEST_GRACE = 2**31 - 1
"""Seconds. A pod may request more than a date can represent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a deletion. Failed preconditions are conflicts."""

    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    policy: str = ""
    dry_run: bool = False
    run_policies: bool = True
    """Runs validating policies; an eviction has run them already."""


def options_of(body: Object, *, collection: bool = False) -> DeleteOptions:
    """Returns the options of a DeleteOptions body (or of the same query parameters); raises Invalid."""
    preconditions = body.get("preconditions") or {}
    policy, orphan, errors = body.get("propagationPolicy") or "", body.get("orphanDependents"), []
    if orphan is not None and policy:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, why))
    if policy == "nil" or (policy and policy not in POLICIES.values):
        errors.append(FieldError(Problem.NOT_SUPPORTED, "propagationPolicy", policy, POLICIES.detail))
    if any(value != "All" for value in body.get("dryRun", [])):
        errors.append(not_supported("dryRun", body["dryRun"], ["All"]))
    if body.get(UNSAFE):
        errors += _unsafe_errors(body, collection=collection)
    if errors:
        raise invalid_object("DeleteOptions", "", errors, group="meta.k8s.io")
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace_seconds=body.get("gracePeriodSeconds"),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        policy=policy,
        dry_run=bool(body.get("dryRun")),
    )


def _unsafe_errors(body: Object, *, collection: bool) -> list[FieldError]:
    """Returns why an object is not deleted unread. This server has no object that it cannot read: it refuses to start
    with a damaged store."""
    together = [option for option in _NOT_WITH_UNSAFE if body.get(option) not in (None, [])]
    if together:
        return [invalid(UNSAFE, True, f"cannot be set together with .{option}") for option in together]
    if collection:
        return [invalid(UNSAFE, True, "is not allowed with DELETECOLLECTION, try again after removing the option")]
    why = "is exclusively used to delete corrupt object(s), try again by removing this option"
    return [invalid(UNSAFE, True, why)]


class Deleted(msgspec.Struct, frozen=True):
    """The result of a deletion: `item` as it is now or last was; `gone` when it is deleted."""

    item: Item
    uid: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Deleter:
    """Deletes objects."""

    store: Store
    admission: Admission
    clock: Clock

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, user: User
    ) -> Deleted:
        """Deletes an object or marks it for deletion; retries after a concurrent change."""
        key = resource.key(namespace, name)
        item = await self.store.get(key)
        while item is not None:
            try:
                return await self._attempt(resource, namespace, item, options, user)
            except Stale as error:
                item = error.current or await self.store.get(key)
        raise not_found(resource.name, name, group=resource.group)

    async def _attempt(
        self, resource: Resource, namespace: str, item: Item, options: DeleteOptions, user: User
    ) -> Deleted:
        offload.note_size(len(item.value))
        old = await offload.run(resource.unpack, item)
        _check_preconditions(resource, old, options)
        operation = Operation(
            verb="DELETE", resource=resource, namespace=namespace, obj=old, old=old, user=user, dry_run=options.dry_run
        )
        await self.admission.admit(operation)
        if options.run_policies:
            await self.admission.validate(operation)
        marked = await offload.run(_marked, resource, item, options, self.clock.wall())
        uid: str = old["metadata"]["uid"]
        if finished(resource, marked):
            if options.dry_run:
                return Deleted(item, uid, gone=True)
            revision = await self.store.delete(item.key, expected=item.revision)
            return Deleted(Item(item.key, item.value, revision, item.created), uid, gone=True)
        value = await offload.run(resource.pack, marked)
        if marked == old or options.dry_run:
            return Deleted(Item(item.key, value, item.revision, item.created), uid, gone=False)
        return Deleted(await self.store.update(item.key, value, expected=item.revision), uid, gone=False)


def _check_preconditions(resource: Resource, obj: Object, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    for what, wanted, real, happened in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if wanted and wanted != real:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record ({real}). "
                f"The object might have been {happened}"
            )
            raise conflict(resource.kind.kind, metadata["name"], why, group=resource.group)


def _marked(resource: Resource, item: Item, options: DeleteOptions, now: float) -> Object:
    return mark(resource, resource.unpack(item), options, now)


def mark(resource: Resource, obj: Object, options: DeleteOptions, now: float) -> Object:
    """Returns the object marked for deletion; pure.

    While a grace period runs, a second request may shorten it and otherwise changes nothing.
    """
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        grace = _bounded(resource.strategy.grace_seconds(obj, options.grace_seconds))
        metadata["deletionTimestamp"] = rfc3339(now + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    elif left := metadata.get("deletionGracePeriodSeconds", 0):
        if options.grace_seconds is None or _bounded(options.grace_seconds) >= left:
            return obj
        _shorten(metadata, left, _bounded(options.grace_seconds), now)
    _set_propagation(metadata, options.policy)
    resource.strategy.prepare_delete(obj)
    return obj


def _shorten(metadata: dict[str, Any], left: int, grace: int, now: float) -> None:
    """Shortens the grace period, counted from the first request; if it has already passed, a graceful end gets one
    second."""
    end = parse(metadata["deletionTimestamp"]) - left + grace
    metadata["deletionTimestamp"] = rfc3339(max(end, now))
    metadata["deletionGracePeriodSeconds"] = min(grace, 1) if end < now else grace


def _set_propagation(metadata: dict[str, Any], policy: str) -> None:
    """Sets the propagation policy: orphan and foreground are exclusive finalizers, background is neither; the last
    request counts."""
    if not policy:
        return
    before = metadata.get("finalizers", [])
    after = [finalizer for finalizer in before if finalizer not in (ORPHAN, FOREGROUND)]
    if policy in _FINALIZERS:
        after.append(_FINALIZERS[policy])
    if set(after) != set(before):
        metadata["finalizers"] = after
    if not after:
        metadata.pop("finalizers", None)


def _bounded(grace: int) -> int:
    return min(grace, LONGEST_GRACE) if grace >= 0 else 1
