"""`spec.os` and the namespaces that a pod shares with its node: what the one or the other rules out."""

from collections.abc import Iterator

from podwire.kinds.field_checks import Choice, Errors, Object
from podwire.protocols.k8sapi.status import forbidden, invalid, required

_SYSTEMS = Choice(("linux", "windows"))
_KINDS = ("initContainers", "containers", "ephemeralContainers")

_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_LINUX_POD_CONTEXT = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_LINUX_CONTAINER_CONTEXT = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def operating_system(spec: Object, path: str, errors: Errors) -> None:
    """The pod's declared system, and the options that only the other one has."""
    name = spec["os"].get("name")
    if not name:
        errors.append(required(f"{path}.os.name"))
    elif name not in _SYSTEMS.values:
        _SYSTEMS.check(name, f"{path}.os", errors)
    elif name == "linux":
        for place, context in _contexts(spec, path):
            if "windowsOptions" in context:
                detail = "windows options cannot be set for a linux pod"
                errors.append(forbidden(f"{place}.windowsOptions", detail))
    else:
        _windows(spec, path, errors)


def _windows(spec: Object, path: str, errors: Errors) -> None:
    own = f"{path}.securityContext"
    for place, context in _contexts(spec, path):
        for field in _LINUX_POD_CONTEXT if place == own else _LINUX_CONTAINER_CONTEXT:
            if field in context:
                errors.append(forbidden(f"{place}.{field}", _NOT_ON_WINDOWS))
    for field in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"):
        # hostPID and hostIPC may be false; the other two may not be set at all
        if spec.get(field) or (field in spec and field in ("hostUsers", "shareProcessNamespace")):
            errors.append(forbidden(f"{path}.{field}", _NOT_ON_WINDOWS))


def _contexts(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Yields every security context of the pod, with its path."""
    yield f"{path}.securityContext", spec.get("securityContext") or {}
    for place, container in containers_of(spec, path):
        yield f"{place}.securityContext", container.get("securityContext") or {}


def containers_of(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Yields all containers of a spec, in the order in which they start, with their paths."""
    for kind in _KINDS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}]", container


def shared_processes(spec: Object, path: str, errors: Errors) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{path}.shareProcessNamespace", True, detail))


def own_users(spec: Object, path: str, errors: Errors) -> None:
    """A pod with its own user namespace (`hostUsers: false`) shares no other namespace with the host."""
    if spec["hostUsers"]:
        return
    detail = "when `hostUsers` is false"
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            errors.append(forbidden(f"{path}.{shown}", detail))
    for place, container in containers_of(spec, path):
        if container.get("volumeDevices"):
            errors.append(forbidden(f"{place}.volumeDevices", detail))
