"""Annotations of a pod that mean something: the mirror of a static pod, deletion cost, security profiles."""

import re
from collections.abc import Mapping

from podwire.kinds.field_checks import Errors, Object, descending
from podwire.kinds.podspec.os_rules import containers_of
from podwire.protocols.k8sapi.status import forbidden, invalid

MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_INTEGER = re.compile("0|-[0-9]{1,10}|[1-9][0-9]{0,9}")
_LOCALHOST = "localhost/"
_PROFILE_NAMES = {
    "Unconfined": ("unconfined",),
    "RuntimeDefault": ("runtime/default", "docker/default"),
}

Annotations = Mapping[str, str]


def values(annotations: Annotations, spec: Object, path: str, errors: Errors) -> None:
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], detail))
    if _DELETION_COST in annotations and not _is_int32(annotations[_DELETION_COST]):
        errors.append(invalid(f"{path}[{_DELETION_COST}]", annotations[_DELETION_COST], "must be a 32bit integer"))
    for key, value in annotations.items():
        if key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            _seccomp(value, f"{path}.{key}", errors)
    if any(key.startswith(_APP_ARMOR) for key in annotations):
        _app_armor(annotations, spec, path, errors)


def _is_int32(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def _seccomp(profile: str, path: str, errors: Errors) -> None:
    if profile.startswith(_LOCALHOST):
        descending(profile.removeprefix(_LOCALHOST), path, errors)
    elif profile not in ("runtime/default", "docker/default", "unconfined"):
        errors.append(invalid(path, profile, "must be a valid seccomp profile"))


def _app_armor(annotations: Annotations, spec: Object, path: str, errors: Errors) -> None:
    containers = {container.get("name", "") for _, container in containers_of(spec, "spec")}
    for key, profile in annotations.items():
        if not key.startswith(_APP_ARMOR):
            continue
        name = key.removeprefix(_APP_ARMOR)
        if name not in containers:
            errors.append(invalid(f"{path}[{key}]", name, "container not found"))
        if profile not in ("", "runtime/default", "unconfined") and not profile.startswith(_LOCALHOST):
            errors.append(invalid(f"{path}[{key}]", profile, f'invalid AppArmor profile name: "{profile}"'))


def changes(new: Annotations, old: Annotations, path: str, errors: Errors) -> None:
    """Rejects changes of the annotations for profiles and mirror pods."""
    if new == old:
        return
    for key, value in old.items():
        if new.get(key) != value:
            _unchangeable(key, "remove or update", path, errors)
    for key in new.keys() - old.keys():
        _unchangeable(key, "add", path, errors)


def _unchangeable(key: str, change: str, path: str, errors: Errors) -> None:
    if key.startswith(_APP_ARMOR):
        errors.append(forbidden(f"{path}[{key}]", f"may not {change} AppArmor annotations"))
    elif key == MIRROR:
        errors.append(forbidden(f"{path}[{key}]", f"may not {change} mirror pod annotation"))


def match_fields(annotations: Annotations, spec: Object, path: str, errors: Errors) -> None:
    """Checks that a profile set by annotation and by field is the same."""
    if not any("seccomp.security.alpha" in key or key.startswith(_APP_ARMOR) for key in annotations):
        return
    pod = spec.get("securityContext") or {}
    profile = pod.get("seccompProfile")
    if profile is not None and _SECCOMP_POD in annotations:
        place = f"{path}.securityContext.seccompProfile"
        _match(annotations[_SECCOMP_POD], profile, "seccomp", place, errors)
    for place, container in containers_of(spec, path):
        own = container.get("securityContext") or {}
        name = container.get("name", "")
        annotation = annotations.get(f"{_SECCOMP_CONTAINER}{name}")
        if annotation is not None and (profile := own.get("seccompProfile")) is not None:
            _match(annotation, profile, "seccomp", f"{place}.securityContext.seccompProfile", errors)
        annotation = annotations.get(f"{_APP_ARMOR}{name}")
        profile = own.get("appArmorProfile", pod.get("appArmorProfile"))
        if annotation is not None and profile is not None:
            _match(annotation, profile, "apparmor", f"{place}.securityContext.appArmorProfile", errors)


def _match(annotation: str, profile: Object, kind: str, path: str, errors: Errors) -> None:
    expected = _PROFILE_NAMES.get(profile.get("type", ""))
    if expected is not None:
        if annotation not in expected:
            errors.append(forbidden(f"{path}.type", f"{kind} type in annotation and field must match"))
    elif not annotation.startswith(_LOCALHOST):
        errors.append(forbidden(f"{path}.type", f"{kind} type in annotation and field must match"))
    elif annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
        errors.append(forbidden(f"{path}.localhostProfile", f"{kind} profile in annotation and field must match"))
