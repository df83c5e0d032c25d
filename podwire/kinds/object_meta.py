"""The rules for metadata that all kinds share."""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.kinds.field_checks import IMMUTABLE, Errors, Object, labels, named
from podwire.objects import names
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import forbidden, invalid, not_supported, required, too_long

ANNOTATIONS_LIMIT = 256 * 1024
MANAGER_LENGTH = 128
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

_UNCHANGING = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def create(kind: Kind, metadata: Object, check: names.Check, errors: Errors, *, qualified: bool) -> None:
    """Checks the metadata of a new object whose name has been generated."""
    if prefix := metadata.get("generateName"):
        named(names.as_prefix(check), prefix, "metadata.generateName", errors)
    if name := metadata.get("name"):
        named(check, name, "metadata.name", errors)
    else:
        errors.append(required("metadata.name", "name or generateName is required"))
    namespace = metadata.get("namespace", "")
    if not kind.namespaced:
        if namespace:
            errors.append(forbidden("metadata.namespace", "not allowed on this type"))
    elif namespace:
        named(names.dns_label, namespace, "metadata.namespace", errors)
    else:
        errors.append(required("metadata.namespace"))
    _content(metadata, errors, qualified=qualified)
    finalizers = metadata.get("finalizers") or ()
    for finalizer in finalizers:
        named(names.qualified_name, finalizer, "metadata.finalizers", errors)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid("metadata.finalizers", finalizers, detail))


def update(new: Object, old: Object, errors: Errors, *, qualified: bool) -> None:
    """Checks the metadata of an update; fields that a client may leave out have been taken over from `old`."""
    if old.get("deletionTimestamp"):
        _no_new_finalizers(new.get("finalizers") or (), old.get("finalizers") or (), errors)
    if not new.get("resourceVersion"):
        errors.append(invalid("metadata.resourceVersion", 0, "must be specified for an update"))
    if (new.get("generation") or 0) < (old.get("generation") or 0):
        errors.append(invalid("metadata.generation", new.get("generation") or 0, "must not be decremented"))
    for field in _UNCHANGING:
        if new.get(field) != old.get(field):
            errors.append(invalid(f"metadata.{field}", new.get(field), IMMUTABLE))
    _content(new, errors, qualified=qualified)


def _content(metadata: Object, errors: Errors, *, qualified: bool) -> None:
    """Checks what creation and update have in common; `qualified` finalizers must be qualified or well known."""
    if (generation := metadata.get("generation") or 0) < 0:
        errors.append(invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    if given := metadata.get("labels"):
        labels(given, "metadata.labels", errors)
    if given := metadata.get("annotations"):
        annotations(given, "metadata.annotations", errors)
    if owners := metadata.get("ownerReferences"):
        _owner_references(owners, errors)
    if entries := metadata.get("managedFields"):
        _managed_fields(entries, errors)
    if (finalizers := metadata.get("finalizers")) and qualified:
        for index, finalizer in enumerate(finalizers):
            qualified_finalizer(finalizer, f"metadata.finalizers[{index}]", errors)


def annotations(given: Mapping[str, str], path: str, errors: Errors) -> None:
    """Checks annotations: keys are qualified names in any case; the total size has a limit."""
    size = 0
    for key, value in given.items():
        for message in names.qualified_name(key.lower()):
            errors.append(invalid(path, key, message))
        size += len(key) + len(value)
    # A character has at most four bytes: only sizes near the limit are measured.
    if size * 4 > ANNOTATIONS_LIMIT:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
        if size > ANNOTATIONS_LIMIT:
            errors.append(too_long(path, ANNOTATIONS_LIMIT))


def qualified_finalizer(name: str, path: str, errors: Errors) -> None:
    if "/" not in name and name not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors.append(invalid(path, name, detail))


def _no_new_finalizers(new: Sequence[str], old: Sequence[str], errors: Errors) -> None:
    if added := sorted(set(new) - set(old)):
        shown = ", ".join(f'"{finalizer}"' for finalizer in added)
        detail = "no new finalizers can be added if the object is being deleted, found new finalizers "
        errors.append(forbidden("metadata.finalizers", f"{detail}[]string{{{shown}}}"))


def _owner_references(owners: Sequence[Mapping[str, Any]], errors: Errors) -> None:
    controller = ""
    path = "metadata.ownerReferences"  # upstream names no index
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        if not api_version:
            errors.append(invalid(f"{path}.apiVersion", "", "version must not be empty"))
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                errors.append(invalid(f"{path}.{field}", "", "must not be empty"))
        if api_version and (api_version.count("/") > 1 or api_version.endswith("/")):
            errors.append(invalid(f"{path}.apiVersion", api_version, "must be <group>/<version> or <version>"))
        if api_version == "v1" and owner.get("kind") == "Event":
            errors.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            shown = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                detail = 'Only one reference can have Controller set to true. Found "true" in references for '
                errors.append(invalid("metadata.ownerReferences", owners, f"{detail}{controller} and {shown}"))
            else:
                controller = shown


def _managed_fields(entries: Sequence[Mapping[str, Any]], errors: Errors) -> None:
    for index, entry in enumerate(entries):
        operation = entry.get("operation")
        if operation not in ("Update", "Apply"):
            path = f"metadata.managedFields[{index}].operation"
            missing = required(path, "must not be empty")
            errors.append(not_supported(path, operation, ("Apply", "Update")) if operation else missing)
        if entry.get("fieldsType") not in (None, "", "FieldsV1"):
            path = f"metadata.managedFields[{index}].fieldsType"
            errors.append(invalid(path, entry["fieldsType"], "must be `FieldsV1`"))
        if len(entry.get("manager") or "") > MANAGER_LENGTH:
            errors.append(too_long(f"metadata.managedFields[{index}].manager", MANAGER_LENGTH))
