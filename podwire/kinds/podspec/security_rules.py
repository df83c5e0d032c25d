"""Security contexts of pods and containers: users, profiles, capabilities, sysctls."""

import re
from collections.abc import Mapping, Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, descending, named, user_id
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, invalid, required, too_long

_PROFILES = Choice(("Localhost", "RuntimeDefault", "Unconfined"))
_PROC_MOUNTS = Choice(("Default", "Unmasked"))
_GROUP_POLICIES = Choice(("Merge", "Strict"))
_FS_GROUP_POLICIES = Choice(("Always", "OnRootMismatch"))
_SELINUX_POLICIES = Choice(("MountOption", "Recursive"))
_LONGEST_PROFILE = 4095
"""One less than PATH_MAX."""
_LONGEST_SYSCTL = 253
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_IPC_SYSCTLS = frozenset(
    f"kernel.{word}"
    for word in ("sem", "shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msg", "msgmax", "msgmnb", "msgmni")
)
_LONGEST_CREDENTIAL_SPEC = 64 * 1024

_SWAPPED: Mapping[int, str] = {ord("/"): ".", ord("."): "/"}


def container_security(container: Object, host_users: bool, path: str, errors: Errors) -> None:
    context: Object = container["securityContext"]
    user_id(context.get("runAsUser"), f"{path}.runAsUser", errors)
    user_id(context.get("runAsGroup"), f"{path}.runAsGroup", errors)
    if (proc_mount := context.get("procMount")) is not None:
        _PROC_MOUNTS.check(proc_mount, f"{path}.procMount", errors)
        if host_users and proc_mount == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            errors.append(invalid(f"{path}.procMount", proc_mount, detail))
    _seccomp(context.get("seccompProfile"), f"{path}.seccompProfile", errors)
    if context.get("allowPrivilegeEscalation") is False:
        _no_escalation(context, path, errors)
    _windows(context.get("windowsOptions"), f"{path}.windowsOptions", errors)
    _app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile", errors)


def _no_escalation(context: Object, path: str, errors: Errors) -> None:
    if context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.append(invalid(path, context, detail))
    added = (context.get("capabilities") or {}).get("add") or ()
    if "CAP_SYS_ADMIN" in added:
        detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        errors.append(invalid(path, context, detail))


def pod_security(spec: Object, path: str, errors: Errors) -> None:
    context: Object = spec["securityContext"]
    path = f"{path}.securityContext"
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        user_id(context.get(field), f"{path}.{field}", errors)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        user_id(group, f"{path}.supplementalGroups[{index}]", errors)
    _sysctls(context.get("sysctls") or (), spec, f"{path}.sysctls", errors)
    if (policy := context.get("fsGroupChangePolicy")) is not None:
        _FS_GROUP_POLICIES.check(policy, f"{path}.fsGroupChangePolicy", errors)
    _seccomp(context.get("seccompProfile"), f"{path}.seccompProfile", errors)
    _windows(context.get("windowsOptions"), f"{path}.windowsOptions", errors)
    _app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile", errors)
    if (policy := context.get("supplementalGroupsPolicy")) is not None:
        _GROUP_POLICIES.check(policy, f"{path}.supplementalGroupsPolicy", errors)
    if (policy := context.get("seLinuxChangePolicy")) is not None:
        _SELINUX_POLICIES.check(policy, f"{path}.seLinuxChangePolicy", errors)


def _sysctls(given: Sequence[Object], spec: Object, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(given):
        name, place = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            errors.append(required(place))
        elif len(name) > _LONGEST_SYSCTL or not _SYSCTL.fullmatch(name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex ^{_SYSCTL.pattern}$"
            errors.append(invalid(place, name, detail))
        elif name in seen:
            errors.append(duplicate(place, name))
        seen.add(name)
        # A pod in a namespace of the host would set the host's own value
        dotted = _dotted(name)
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.append(invalid(place, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            errors.append(invalid(place, name, "may not be specified when 'hostIPC' is true"))


def _dotted(name: str) -> str:
    """Returns the name with dots as separators; when the first separator is a slash, dots and slashes change places."""
    first = next((character for character in name if character in "./"), ".")
    return name.translate(_SWAPPED) if first == "/" else name


def _seccomp(profile: Object | None, path: str, errors: Errors) -> None:
    if profile is None:
        return
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    else:
        _PROFILES.check(kind, f"{path}.type", errors)
    place = f"{path}.localhostProfile"
    if kind != "Localhost":
        if file is not None:
            errors.append(invalid(place, profile, "can only be set when seccomp type is Localhost"))
    elif file is None:
        errors.append(required(place, "must be set when seccomp type is Localhost"))
    else:
        descending(file, place, errors)


def _app_armor(profile: Object | None, path: str, errors: Errors) -> None:
    if profile is None:
        return
    kind, name = profile.get("type", ""), profile.get("localhostProfile")
    place = f"{path}.localhostProfile"
    if not kind:
        errors.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    elif kind == "Localhost":
        _app_armor_name(name, place, errors)
    elif kind not in _PROFILES.values:
        _PROFILES.check(kind, f"{path}.type", errors)
    elif name is not None:
        errors.append(invalid(place, name, "can only be set when AppArmor type is Localhost"))


def _app_armor_name(name: str | None, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path, "must be set when AppArmor type is Localhost"))
        return
    if name != name.strip():
        errors.append(invalid(path, name, "must not be padded with whitespace"))
    if len(name) > _LONGEST_PROFILE:
        errors.append(too_long(path, _LONGEST_PROFILE))


def _windows(options: Object | None, path: str, errors: Errors) -> None:
    """Checks lengths and exclusive fields only: podwire has no Windows nodes."""
    if options is None:
        return
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        named(names.dns_subdomain, name, f"{path}.gmsaCredentialSpecName", errors)
    if (spec := options.get("gmsaCredentialSpec")) is not None:
        place = f"{path}.gmsaCredentialSpec"
        if not spec:
            errors.append(invalid(place, spec, "gmsaCredentialSpec cannot be an empty string"))
        elif len(spec) > _LONGEST_CREDENTIAL_SPEC:
            errors.append(invalid(place, spec, "gmsaCredentialSpec size must be under 64 KiB"))
    if options.get("runAsUserName") == "":
        errors.append(invalid(f"{path}.runAsUserName", "", "runAsUserName cannot be an empty string"))
