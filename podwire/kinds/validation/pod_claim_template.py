"""The claim that an ephemeral volume is made from: labels, annotations and the spec of a PersistentVolumeClaim."""

from podwire.kinds.validation.meta import annotations
from podwire.kinds.validation.pod_values import Choice, Errors, Object, label_selector, labels, named
from podwire.objects import names
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import forbidden, invalid, required

_ACCESS_MODES = Choice(("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"))
_VOLUME_MODES = Choice(("Block", "Filesystem"))


def claim_template(template: Object, path: str, errors: Errors) -> None:
    metadata = template.get("metadata") or {}
    annotations(metadata.get("annotations") or {}, f"{path}.metadata.annotations", errors)
    labels(metadata.get("labels") or {}, f"{path}.metadata.labels", errors)
    for key, value in metadata.items():
        if key not in ("annotations", "labels") and value:
            errors.append(forbidden(f"{path}.metadata.{key}", "cannot be set"))
    _claim_spec(template.get("spec") or {}, f"{path}.spec", errors)


def _claim_spec(spec: Object, path: str, errors: Errors) -> None:
    _access_modes(spec.get("accessModes") or [], f"{path}.accessModes", errors)
    label_selector(spec.get("selector"), f"{path}.selector", errors)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        errors.append(required(f"{path}.resources[storage]"))
    elif Quantity.parse(storage).nano <= 0:
        errors.append(invalid(f"{path}.resources[storage]", storage, "must be greater than zero"))
    for name in ("storageClassName", "volumeAttributesClassName"):
        if value := spec.get(name):
            named(names.dns_subdomain, value, f"{path}.{name}", errors)
    if (mode := spec.get("volumeMode")) is not None:
        _VOLUME_MODES.check(mode, f"{path}.volumeMode", errors)


def _access_modes(modes: list[str], path: str, errors: Errors) -> None:
    if not modes:
        errors.append(required(path, "at least 1 access mode is required"))
    for mode in modes:
        _ACCESS_MODES.check(mode, path, errors)
    if "ReadWriteOncePod" in modes and any(
        mode in _ACCESS_MODES.values and mode != "ReadWriteOncePod" for mode in modes
    ):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
