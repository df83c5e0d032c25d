"""Volumes of a pod: unique names, exactly one source each, and the rules of the common sources."""

from collections.abc import Callable, Mapping, Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, labels, named, no_backsteps
from podwire.kinds.object_meta import annotations
from podwire.kinds.podspec.projection_rules import config_map, downward_api, projected, secret
from podwire.kinds.podspec.storage_volume_rules import STORAGE_SOURCES, iscsi_name
from podwire.objects import names
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import duplicate, forbidden, invalid, required, too_long

PULL_POLICIES = Choice(("Always", "IfNotPresent", "Never"))
_HOST_PATH_TYPES = Choice(
    ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
)
_DRIVER_LENGTH = 63
Source = Callable[[Object, str, Errors], None]

_ACCESS_MODES = Choice(("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"))
_VOLUME_MODES = Choice(("Block", "Filesystem"))


def volumes(given: Sequence[Object], pod: str, is_pod: bool, path: str, errors: Errors) -> dict[str, Object]:
    """Checks all volumes; those without a fault, by name. `pod` is the pod's name where there is one already."""
    valid: dict[str, Object] = {}
    created = {f"{pod}-{entry.get('name', '')}" for entry in given if "ephemeral" in entry} if pod else set()
    for index, volume in enumerate(given):
        before = len(errors)
        name = volume.get("name", "")
        _source(volume, name, pod, f"{path}[{index}]", errors)
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        else:
            named(names.dns_label, name, f"{path}[{index}].name", errors)
        if name in valid:
            errors.append(duplicate(f"{path}[{index}].name", name))
        if is_pod and "image" in volume:
            _image_reference(volume["image"], f"{path}[{index}].image", errors)
        if len(errors) == before:
            valid[name] = volume
        if created and (claim := volume.get("persistentVolumeClaim")) and claim.get("claimName") in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            place = f"{path}[{index}].persistentVolumeClaim.claimName"
            errors.append(invalid(place, claim["claimName"], detail))
    return valid


def _source(volume: Object, name: str, pod: str, path: str, errors: Errors) -> None:
    kinds = [field for field in volume if field in SOURCES]
    if len(kinds) > 1:
        kinds.sort(key=_ORDER.__getitem__)
    elif not kinds:
        errors.append(required(path, "must specify a volume type"))
        return
    SOURCES[kinds[0]](volume[kinds[0]], f"{path}.{kinds[0]}", errors)
    for kind in kinds[1:]:
        errors.append(forbidden(f"{path}.{kind}", "may not specify more than 1 volume type"))
    if "iscsi" in volume:
        iscsi_name(volume["iscsi"], name, f"{path}.name", errors)
    if kinds[0] == "ephemeral" and pod and name:
        for message in names.dns_subdomain(f"{pod}-{name}"):
            errors.append(invalid(f"{path}.name", name, f'PVC name "{pod}-{name}": {message}'))


def _empty_dir(source: Object, path: str, errors: Errors) -> None:
    if source.get("sizeLimit", "").startswith("-"):
        errors.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def host_path(source: Object, path: str, errors: Errors) -> None:
    if not (host_path := source.get("path")):
        errors.append(required(f"{path}.path"))
        return
    no_backsteps(host_path, f"{path}.path", errors)
    if (kind := source.get("type")) is not None:
        _HOST_PATH_TYPES.check(kind, f"{path}.type", errors)


def _claim(source: Object, path: str, errors: Errors) -> None:
    if not source.get("claimName"):
        errors.append(required(f"{path}.claimName"))


def _csi(source: Object, path: str, errors: Errors) -> None:
    driver = source.get("driver", "")
    if not driver:
        errors.append(required(f"{path}.driver"))
    else:
        if len(driver) > _DRIVER_LENGTH:
            errors.append(too_long(f"{path}.driver", _DRIVER_LENGTH))
        for message in names.dns_subdomain(driver.lower()):
            errors.append(invalid(f"{path}.driver", driver, message))
    if (ref := source.get("nodePublishSecretRef")) is not None:
        if not (name := ref.get("name")):
            errors.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            named(names.dns_subdomain, name, f"{path}.name", errors)


def _ephemeral(source: Object, path: str, errors: Errors) -> None:
    if (template := source.get("volumeClaimTemplate")) is None:
        errors.append(required(f"{path}.volumeClaimTemplate"))
    else:
        claim_template(template, f"{path}.volumeClaimTemplate", errors)


def _image(source: Object, path: str, errors: Errors) -> None:
    PULL_POLICIES.require(source.get("pullPolicy", ""), f"{path}.pullPolicy", errors)


def _image_reference(source: Object, path: str, errors: Errors) -> None:
    """Checks an image; a template may leave out the reference."""
    if not source.get("reference"):
        errors.append(required(f"{path}.reference"))


SOURCES: Mapping[str, Source] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "secret": secret,
    "persistentVolumeClaim": _claim,
    "downwardAPI": downward_api,
    "configMap": config_map,
    **STORAGE_SOURCES,
    "projected": projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
"""In the order in which the first of several counts as the one that was meant."""

_ORDER = {kind: index for index, kind in enumerate(SOURCES)}


def claim_template(template: Object, path: str, errors: Errors) -> None:
    metadata = template.get("metadata") or {}
    annotations(metadata.get("annotations") or {}, f"{path}.metadata.annotations", errors)
    labels(metadata.get("labels") or {}, f"{path}.metadata.labels", errors)
    for key, value in metadata.items():
        if key not in ("annotations", "labels") and value:
            errors.append(forbidden(f"{path}.metadata.{key}", "cannot be set"))
    claim_spec(template.get("spec") or {}, f"{path}.spec", errors)


def claim_spec(spec: Object, path: str, errors: Errors) -> None:
    access_modes(spec.get("accessModes") or [], f"{path}.accessModes", errors)
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


def access_modes(
    modes: list[str], path: str, errors: Errors, *, why: str = "at least 1 access mode is required"
) -> None:
    if not modes:
        errors.append(required(path, why))
    for mode in modes:
        _ACCESS_MODES.check(mode, path, errors)
    if "ReadWriteOncePod" in modes and any(
        mode in _ACCESS_MODES.values and mode != "ReadWriteOncePod" for mode in modes
    ):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
