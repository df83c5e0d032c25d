"""Validation of volumeMounts and volumeDevices."""

from collections.abc import Mapping, Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, descending, not_found
from podwire.protocols.k8sapi.status import forbidden, invalid, required

Volumes = Mapping[str, Object]
"""The volumes of the pod that are valid themselves, by name."""

_PROPAGATIONS = Choice(("Bidirectional", "HostToContainer", "None"))
_RECURSIVE = Choice(("Disabled", "Enabled", "IfPossible"))


def mounts(container: Object, volumes: Volumes, path: str, errors: Errors) -> None:
    """The container's volumeMounts."""
    seen: set[str] = set()
    devices = container.get("volumeDevices") or ()
    device_names = {device.get("name", "") for device in devices}
    device_paths = {device.get("devicePath", "") for device in devices}
    for index, mount in enumerate(container["volumeMounts"]):
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name or name not in volumes or name in device_names:
            _mount_name(name, volumes, device_names, f"{path}[{index}].name", errors)
        if not where or where in seen or where in device_paths:
            _mount_path(where, seen, device_paths, f"{path}[{index}].mountPath", errors)
        seen.add(where)
        if len(mount) > 2:
            # Sub paths, propagation and recursion; upstream names these without the index of the mount.
            sub_path, expression = mount.get("subPath"), mount.get("subPathExpr")
            if sub_path:
                descending(sub_path, f"{path}.subPath", errors)
            if expression:
                if sub_path:
                    detail = "subPathExpr and subPath are mutually exclusive"
                    errors.append(invalid(f"{path}[{index}].subPathExpr", expression, detail))
                descending(expression, f"{path}.subPathExpr", errors)
            if (propagation := mount.get("mountPropagation")) is not None:
                _propagation(propagation, container, f"{path}.mountPropagation", errors)
            if (recursive := mount.get("recursiveReadOnly")) is not None:
                _recursive_read_only(recursive, mount, f"{path}.recursiveReadOnly", errors)


def _mount_name(name: str, volumes: Volumes, device_names: set[str], path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
    if name not in volumes:
        errors.append(not_found(path, name))
    if name in device_names:
        errors.append(invalid(path, name, "must not already exist in volumeDevices"))


def _mount_path(where: str, seen: set[str], device_paths: set[str], path: str, errors: Errors) -> None:
    if not where:
        errors.append(required(path))
    if where in seen:
        errors.append(invalid(path, where, "must be unique"))
    if where in device_paths:
        errors.append(invalid(path, where, "must not already exist as a path in volumeDevices"))


def _propagation(propagation: str, container: Object, path: str, errors: Errors) -> None:
    _PROPAGATIONS.check(propagation, path, errors)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        detail = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(forbidden(path, detail))


def _recursive_read_only(recursive: str, mount: Object, path: str, errors: Errors) -> None:
    _RECURSIVE.check(recursive, path, errors)
    if recursive not in ("Enabled", "IfPossible"):
        return
    if not mount.get("readOnly"):
        errors.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        errors.append(forbidden(path, "may only be specified when mountPropagation is None or not specified"))


def devices(container: Object, volumes: Volumes, path: str, errors: Errors) -> None:
    """The container's volumeDevices."""
    mounted: Sequence[Object] = container.get("volumeMounts") or ()
    mount_names = {mount.get("name", "") for mount in mounted}
    mount_paths = {mount.get("mountPath", "") for mount in mounted}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for index, device in enumerate(container["volumeDevices"]):
        place, name, where = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        _device_name(name, seen_names, volumes, f"{place}.name", errors)
        _device_path(where, seen_paths, f"{place}.devicePath", errors)
        if name in mount_names:
            errors.append(invalid(f"{place}.name", name, "must not already exist in volumeMounts"))
        if where in mount_paths:
            detail = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{place}.devicePath", where, detail))


def _device_name(name: str, seen: set[str], volumes: Volumes, path: str, errors: Errors) -> None:
    volume = volumes.get(name)
    if not name:
        errors.append(required(path))
    elif name in seen:
        errors.append(invalid(path, name, "must be unique"))
    seen.add(name)
    if volume is None:
        errors.append(not_found(path, name))
    elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
        detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        errors.append(invalid(path, name, detail))


def _device_path(where: str, seen: set[str], path: str, errors: Errors) -> None:
    if not where:
        errors.append(required(path))
    if where in seen:
        errors.append(invalid(path, where, "must be unique"))
    if ".." in where.split("/"):
        errors.append(invalid(path, where, "can not contain backsteps ('..')"))
    else:
        seen.add(where)
