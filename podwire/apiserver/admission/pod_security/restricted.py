"""Checks of the level restricted: best practices of hardening, besides those of baseline. Pure."""

from podwire.apiserver.admission.pod_security.baseline import ALLOWED_PROFILES, seccomp_1_19
from podwire.apiserver.admission.pod_security.results import (
    Violation,
    containers,
    in_user_namespace,
    is_windows,
    named,
    plural,
    quoted,
    security,
    setters,
)
from podwire.kinds.stored import Object

ALLOWED_VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
RESTRICTED_VOLUMES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)


def privilege_escalation(_metadata: Object, spec: Object) -> Violation | None:
    names = [
        container["name"]
        for container in containers(spec)
        if security(container).get("allowPrivilegeEscalation") is not False
    ]
    if not names:
        return None
    return Violation(
        "allowPrivilegeEscalation != false", f"{named(names)} must set securityContext.allowPrivilegeEscalation=false"
    )


def privilege_escalation_1_25(metadata: Object, spec: Object) -> Violation | None:
    return None if is_windows(spec) else privilege_escalation(metadata, spec)


def capabilities(_metadata: Object, spec: Object) -> Violation | None:
    keeping, adding, values = [], [], set[str]()
    for container in containers(spec):
        given = security(container).get("capabilities") or {}
        if "ALL" not in (given.get("drop") or ()):
            keeping.append(container["name"])
        added = set(given.get("add") or ()) - {"NET_BIND_SERVICE"}
        if added:
            adding.append(container["name"])
            values |= added
    details = []
    if keeping:
        details.append(f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        values_text = quoted(sorted(values))
        details.append(f"{named(adding)} must not include {values_text} in securityContext.capabilities.add")
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def capabilities_1_25(metadata: Object, spec: Object) -> Violation | None:
    return None if is_windows(spec) else capabilities(metadata, spec)


def volumes(_metadata: Object, spec: Object) -> Violation | None:
    names, types = [], set[str]()
    for volume in spec.get("volumes") or ():
        if not any(volume.get(kind) is not None for kind in ALLOWED_VOLUMES):
            names.append(volume["name"])
            types.add(next((kind for kind in RESTRICTED_VOLUMES if volume.get(kind) is not None), "unknown"))
    if not names:
        return None
    verb, what = plural(len(names), "uses", "use"), plural(len(types), "restricted volume type")
    return Violation("restricted volume types", f"{named(names, 'volume')} {verb} {what} {quoted(sorted(types))}")


def run_as_non_root(_metadata: Object, spec: Object) -> Violation | None:
    own = security(spec).get("runAsNonRoot")
    refusing, silent = [], []
    for container in containers(spec):
        given = security(container).get("runAsNonRoot")
        if given is False:
            refusing.append(container["name"])
        elif given is None and own is not True:
            silent.append(container["name"])
    reason = "runAsNonRoot != true"
    if own is False or refusing:
        who = setters(pod=own is False, names=refusing)
        return Violation(reason, f"{who} must not set securityContext.runAsNonRoot=false")
    if silent:
        return Violation(reason, f"pod or {named(silent)} must set securityContext.runAsNonRoot=true")
    return None


def run_as_non_root_1_35(metadata: Object, spec: Object) -> Violation | None:
    return None if in_user_namespace(spec) else run_as_non_root(metadata, spec)


def run_as_user(_metadata: Object, spec: Object) -> Violation | None:
    pod = security(spec).get("runAsUser") == 0
    names = [container["name"] for container in containers(spec) if security(container).get("runAsUser") == 0]
    if not pod and not names:
        return None
    return Violation("runAsUser=0", f"{setters(pod=pod, names=names)} must not set runAsUser=0")


def run_as_user_1_35(metadata: Object, spec: Object) -> Violation | None:
    return None if in_user_namespace(spec) else run_as_user(metadata, spec)


def seccomp(metadata: Object, spec: Object) -> Violation | None:
    if forbidden := seccomp_1_19(metadata, spec):
        return forbidden
    if (security(spec).get("seccompProfile") or {}).get("type") in ALLOWED_PROFILES:
        return None
    names = [container["name"] for container in containers(spec) if security(container).get("seccompProfile") is None]
    if not names:
        return None
    allowed = '"RuntimeDefault" or "Localhost"'
    return Violation(
        "seccompProfile", f"pod or {named(names)} must set securityContext.seccompProfile.type to {allowed}"
    )


def seccomp_1_25(metadata: Object, spec: Object) -> Violation | None:
    return None if is_windows(spec) else seccomp(metadata, spec)
