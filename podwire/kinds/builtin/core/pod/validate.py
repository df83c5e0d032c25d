"""Validation of Pod: creation, update, status, ephemeral containers and resize."""

from podwire.kinds.builtin.core.pod import status_rules, update_rules
from podwire.kinds.field_checks import Errors, Object, non_negative
from podwire.kinds.podspec import annotation_rules, validation
from podwire.protocols.k8sapi.status import FieldError, forbidden

_EMPTY: Object = {}


def create(obj: Object) -> list[FieldError]:
    metadata, spec = obj.get("metadata") or _EMPTY, obj.get("spec") or _EMPTY
    errors = _pod(metadata, spec)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    if annotations := metadata.get("annotations"):
        annotation_rules.match_fields(annotations, spec, "spec", errors)
    return errors


def update(new: Object, old: Object) -> list[FieldError]:
    """Checks a change of the pod itself: of labels and annotations, and of very little in its spec."""
    spec, old_spec = new.get("spec") or _EMPTY, old.get("spec") or _EMPTY
    if spec == old_spec:  # it was valid when it was stored; most updates are about metadata
        return _annotation_changes(new, old)
    errors = _pod(new.get("metadata") or _EMPTY, spec)
    errors += _annotation_changes(new, old, judge_values=False)
    update_rules.spec_changes(spec, old_spec, errors)
    return errors


def update_status(new: Object, old: Object) -> list[FieldError]:
    errors = _annotation_changes(new, old)
    status_rules.changes(new, old, errors)
    return errors


def update_ephemeral_containers(new: Object, old: Object) -> list[FieldError]:
    """Ephemeral containers may be added, never changed or removed."""
    if annotation_rules.MIRROR in ((old.get("metadata") or _EMPTY).get("annotations") or ()):
        return [forbidden("", "static pods do not support ephemeral containers")]
    spec, old_spec = new.get("spec") or _EMPTY, old.get("spec") or _EMPTY
    errors = _pod(new.get("metadata") or _EMPTY, spec)
    errors += _annotation_changes(new, old, judge_values=False)
    update_rules.ephemeral_changes(spec, old_spec, errors)
    return errors


def update_resources(new: Object, old: Object) -> list[FieldError]:
    """Cpu and memory may change while the pod runs."""
    if annotation_rules.MIRROR in ((old.get("metadata") or _EMPTY).get("annotations") or ()):
        return [forbidden("", "static pods cannot be resized")]
    if ((old.get("spec") or _EMPTY).get("os") or _EMPTY).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    errors = _pod(new.get("metadata") or _EMPTY, new.get("spec") or _EMPTY)
    update_rules.resize_changes(new, old, errors)
    return errors


def _pod(metadata: Object, spec: Object) -> list[FieldError]:
    """Checks the rules of a pod that creation and updates share, without those of the metadata."""
    errors: Errors = []
    if annotations := metadata.get("annotations"):
        annotation_rules.values(annotations, spec, "metadata.annotations", errors)
    errors += validation.validate(spec, "spec", metadata)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for position, source in enumerate((volume.get("projected") or _EMPTY).get("sources") or ()):
                if "serviceAccountToken" in source:
                    place = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    errors.append(forbidden(place, "must not be specified when serviceAccountName is not set"))
    non_negative(spec.get("terminationGracePeriodSeconds", 0), "spec.terminationGracePeriodSeconds", errors)
    return errors


def _annotation_changes(new: Object, old: Object, *, judge_values: bool = True) -> list[FieldError]:
    errors: Errors = []
    annotations = (new.get("metadata") or _EMPTY).get("annotations") or _EMPTY
    before = (old.get("metadata") or _EMPTY).get("annotations") or _EMPTY
    if annotations != before:
        annotation_rules.changes(annotations, before, "metadata.annotations", errors)
        if judge_values:
            annotation_rules.values(annotations, new.get("spec") or _EMPTY, "metadata.annotations", errors)
    return errors
