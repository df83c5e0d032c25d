"""Rules of PersistentVolumes, their claims and storage classes, in upstream's words."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, named, no_backsteps, unchanged
from podwire.kinds.podspec.affinity_rules import node_selector
from podwire.kinds.podspec.storage_volume_rules import STORAGE_SOURCES
from podwire.kinds.podspec.volume_rules import access_modes, claim_spec, host_path
from podwire.objects import names
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, not_supported, required, too_long

_RECLAIM_POLICIES = Choice(("Delete", "Recycle", "Retain"))
_CLASS_RECLAIM_POLICIES = Choice(("Delete", "Retain"))
_VOLUME_MODES = Choice(("Block", "Filesystem"))
_BINDING_MODES = Choice(("Immediate", "WaitForFirstConsumer"))
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_MOST_PARAMETERS, _PARAMETERS_LENGTH = 512, 256 * 1024
_DRIVER_LENGTH = 63


def _local(source: Object, path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
        return
    no_backsteps(source["path"], f"{path}.path", errors)


def _csi(source: Object, path: str, errors: Errors) -> None:
    driver = source.get("driver", "")
    if not driver:
        errors.append(required(f"{path}.driver"))
    elif len(driver) > _DRIVER_LENGTH:
        errors.append(too_long(f"{path}.driver", _DRIVER_LENGTH))
    for message in names.dns_subdomain(driver.lower()) if driver else ():
        errors.append(invalid(f"{path}.driver", driver, message))
    if not source.get("volumeHandle"):
        errors.append(required(f"{path}.volumeHandle"))


_SOURCES = {
    **{name: check for name, check in STORAGE_SOURCES.items() if name != "gitRepo"},
    "local": _local,
    "csi": _csi,
}
_SOURCES["hostPath"] = host_path


def volume(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    access_modes(spec.get("accessModes") or [], "spec.accessModes", errors, why="")
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.append(required("spec.capacity"))
    if set(capacity) != {"storage"}:
        errors.append(not_supported("spec.capacity", capacity, ("storage",)))
    for name, amount in capacity.items():
        if Quantity.parse(amount).nano <= 0:
            errors.append(invalid(f"spec.capacity[{name}]", amount, "must be greater than zero"))
    if policy := spec.get("persistentVolumeReclaimPolicy"):
        _RECLAIM_POLICIES.check(policy, "spec.persistentVolumeReclaimPolicy", errors)
    if (affinity := spec.get("nodeAffinity")) is not None:
        _affinity(affinity, errors)
    _source(spec, errors)
    for name in ("storageClassName", "volumeAttributesClassName"):
        if value := spec.get(name):
            named(names.dns_subdomain, value, f"spec.{name}", errors)
    if (mode := spec.get("volumeMode")) is not None:
        _VOLUME_MODES.check(mode, "spec.volumeMode", errors)
    return errors


def _affinity(affinity: Object, errors: Errors) -> None:
    if affinity.get("required") is None:
        errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
    else:
        node_selector(affinity["required"], "spec.nodeAffinity.required", errors)


def _source(spec: Object, errors: Errors) -> None:
    """A volume has exactly one source; a local one needs to say on which node it is."""
    given = [name for name in _SOURCES if spec.get(name) is not None]
    if not given:
        errors.append(required("spec", "must specify a volume type"))
        return
    _SOURCES[given[0]](spec[given[0]], f"spec.{given[0]}", errors)
    errors += [forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in given[1:]]
    if "local" in given and not spec.get("nodeAffinity"):
        errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    recycled = spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    if recycled and (spec.get("hostPath") or {}).get("path", "").rstrip("/") == "" and "hostPath" in given:
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden("spec.persistentVolumeReclaimPolicy", detail))


def volume_update(new: Object, old: Object) -> list[FieldError]:
    errors = volume(new)
    before, now = old.get("spec") or {}, new.get("spec") or {}
    if any(_fixed(before.get(name)) != _fixed(now.get(name)) for name in _SOURCES):
        text = "spec.persistentvolumesource is immutable after creation"
        errors.append(forbidden("spec.persistentvolumesource", text))
    unchanged(now.get("volumeMode"), before.get("volumeMode"), "volumeMode", errors)
    if before.get("nodeAffinity") is not None:
        unchanged(now.get("nodeAffinity"), before["nodeAffinity"], "nodeAffinity", errors)
    return errors


def _fixed(source: Any) -> Any:
    """Returns a source without the secret that may be added later."""
    if not isinstance(source, Mapping):
        return source
    return {key: value for key, value in source.items() if key != "controllerExpandSecretRef"}


def claim(obj: Object) -> list[FieldError]:
    errors: Errors = []
    claim_spec(obj.get("spec") or {}, "spec", errors)
    return errors


def claim_update(new: Object, old: Object) -> list[FieldError]:
    """After creation a claim gets its volume and its class once, and grows while it is bound."""
    errors = claim(new)
    before, now = dict(old.get("spec") or {}), dict(new.get("spec") or {})
    free = ["volumeAttributesClassName"] if _is_bound(new) else []
    free += [] if before.get("volumeName") else ["volumeName"]
    annotation = (old["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
    free += [] if before.get("storageClassName") is not None or annotation else ["storageClassName"]
    size, previous = _size(now), _size(before)
    if _is_bound(new):
        for spec in (before, now):
            spec["resources"] = {**(spec.get("resources") or {}), "requests": None}
    if any(before.get(name) != now.get(name) for name in {*before, *now} - {*free}):
        what = "resources.requests and volumeAttributesClassName for bound claims"
        errors.append(forbidden("spec", f"spec is immutable after creation except {what}"))
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage") or "0"
    if size.nano < previous.nano and size.nano <= Quantity.parse(capacity).nano:
        errors.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    unchanged(now.get("volumeMode"), before.get("volumeMode"), "volumeMode", errors)
    return errors


def _is_bound(claim_: Object) -> bool:
    return bool((claim_.get("status") or {}).get("phase") == "Bound")


def _size(spec: Object) -> Quantity:
    return Quantity.parse(((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0")


def storage_class(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _driver(obj, "provisioner", errors)
    _parameters(obj, errors)
    if policy := obj.get("reclaimPolicy"):
        _CLASS_RECLAIM_POLICIES.check(policy, "reclaimPolicy", errors)
    if mode := obj.get("volumeBindingMode"):
        _BINDING_MODES.check(mode, "volumeBindingMode", errors)
    return errors


def storage_class_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        unchanged(new.get(field), old.get(field), field, errors)
    return errors


def attributes_class(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _driver(obj, "driverName", errors)
    if not obj.get("parameters"):
        errors.append(required("parameters", "must contain at least one key/value pair"))
    _parameters(obj, errors)
    return errors


def attributes_class_update(new: Object, old: Object) -> list[FieldError]:
    return [
        forbidden(field, f"updates to {field} are forbidden.")
        for field in ("driverName", "parameters")
        if new.get(field) != old.get(field)
    ]


def _driver(obj: Object, field: str, errors: Errors) -> None:
    driver = obj.get(field) or ""
    if not driver:
        errors.append(required(field))
    for message in names.qualified_name(driver.lower()) if driver else ():
        errors.append(invalid(field, driver, message))


def _parameters(obj: Object, errors: Errors) -> None:
    parameters = obj.get("parameters") or {}
    if len(parameters) > _MOST_PARAMETERS:
        errors.append(too_long("parameters", _MOST_PARAMETERS))
    if "" in parameters:
        errors.append(invalid("parameters", "", "field can not be empty."))
    if sum(len(key) + len(value) for key, value in parameters.items()) > _PARAMETERS_LENGTH:
        errors.append(too_long("parameters", _PARAMETERS_LENGTH))
