"""Checks of the level baseline: known ways to escalate privileges are forbidden. Pure."""

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from podwire.apiserver.admission.pod_security.results import (
    Check,
    Violation,
    containers,
    in_user_namespace,
    named,
    plural,
    quoted,
    security,
    setters,
)
from podwire.kinds.stored import Object

APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
ALLOWED_PROFILES = ("RuntimeDefault", "Localhost")

DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
SYSCTLS_1_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def app_armor(metadata: Object, spec: Object) -> Violation | None:
    values, names = set[str](), []
    pod = False
    if (profile := security(spec).get("appArmorProfile")) and profile.get("type") not in ALLOWED_PROFILES:
        pod = True
        values.add(profile.get("type", ""))
    for container in containers(spec):
        profile = security(container).get("appArmorProfile")
        if profile and profile.get("type") not in ALLOWED_PROFILES:
            names.append(container["name"])
            values.add(profile.get("type", ""))
    annotations = sorted(
        f"{key}={json.dumps(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(APPARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    who = setters(pod=pod, names=names)
    if annotations:
        who = " and ".join(filter(None, (who, plural(len(annotations), "annotation"))))
    if not who:
        return None
    forbidden = [*sorted(values), *annotations]
    reason = plural(len(forbidden), "forbidden AppArmor profile")
    return Violation(reason, f"{who} must not set AppArmor profile type to {quoted(forbidden)}")


def capabilities(_metadata: Object, spec: Object) -> Violation | None:
    names, values = [], set[str]()
    for container in containers(spec):
        added = set((security(container).get("capabilities") or {}).get("add") or ()) - DEFAULT_CAPABILITIES
        if added:
            names.append(container["name"])
            values |= added
    if not names:
        return None
    return Violation(
        "non-default capabilities",
        f"{named(names)} must not include {quoted(sorted(values))} in securityContext.capabilities.add",
    )


def host_namespaces(_metadata: Object, spec: Object) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(_metadata: Object, spec: Object) -> Violation | None:
    names = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", named(names, "volume")) if names else None


def host_ports(_metadata: Object, spec: Object) -> Violation | None:
    names, ports = [], set[str]()
    for container in containers(spec):
        used = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if used:
            names.append(container["name"])
            ports |= used
    if not names:
        return None
    verb = plural(len(names), "uses", "use")
    return Violation("hostPort", f"{named(names)} {verb} {plural(len(ports), 'hostPort')} {', '.join(sorted(ports))}")


def host_probes(_metadata: Object, spec: Object) -> Violation | None:
    names, hosts = set[str](), set[str]()
    for container in containers(spec):
        used = {
            host
            for handler in _handlers(container)
            for action in ("httpGet", "tcpSocket")
            if (host := (handler.get(action) or {}).get("host"))
        }
        if used:
            names.add(container["name"])
            hosts |= used
    if not names:
        return None
    verb, what = plural(len(names), "uses", "use"), plural(len(hosts), "probe or lifecycle host")
    return Violation("probe or lifecycle host", f"{named(sorted(names))} {verb} {what} {quoted(sorted(hosts))}")


def _handlers(container: Object) -> Iterator[Object]:
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield container.get(probe) or {}
    for hook in ("postStart", "preStop"):
        yield (container.get("lifecycle") or {}).get(hook) or {}


def privileged(_metadata: Object, spec: Object) -> Violation | None:
    names = [container["name"] for container in containers(spec) if security(container).get("privileged")]
    return Violation("privileged", f"{named(names)} must not set securityContext.privileged=true") if names else None


def proc_mount(_metadata: Object, spec: Object) -> Violation | None:
    names, values = [], set[str]()
    for container in containers(spec):
        kind = security(container).get("procMount")
        if kind is not None and kind != "Default":
            names.append(container["name"])
            values.add(kind)
    if not names:
        return None
    return Violation("procMount", f"{named(names)} must not set securityContext.procMount to {quoted(sorted(values))}")


def proc_mount_1_35(metadata: Object, spec: Object) -> Violation | None:
    return None if in_user_namespace(spec) else proc_mount(metadata, spec)


def selinux(allowed: AbstractSet[str]) -> Check:
    """Returns the check for a set of allowed types."""

    def check(_metadata: Object, spec: Object) -> Violation | None:
        holders = [("", security(spec)), *((container["name"], security(container)) for container in containers(spec))]
        found = [(name, options) for name, context in holders if (options := context.get("seLinuxOptions"))]
        bad = [
            (name, options)
            for name, options in found
            if options.get("type", "") not in allowed or options.get("user") or options.get("role")
        ]
        if not bad:
            return None
        types = sorted({options.get("type", "") for _, options in bad} - allowed)
        data = [f"{plural(len(types), 'type')} {quoted(types)}"] if types else []
        data += [f"{part} may not be set" for part in ("user", "role") if any(options.get(part) for _, options in bad)]
        who = setters(pod=any(not name for name, _ in bad), names=[name for name, _ in bad if name])
        return Violation("seLinuxOptions", f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}")

    return check


def seccomp(metadata: Object, spec: Object) -> Violation | None:
    """The check of versions before 1.19, when profiles were annotations."""
    annotations = metadata.get("annotations") or {}
    keys = {SECCOMP_POD, *(f"{SECCOMP_CONTAINER}{container['name']}" for container in containers(spec))}
    forbidden = sorted(
        f"{key}={json.dumps(value)}"
        for key, value in annotations.items()
        if key in keys and value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    if not forbidden:
        return None
    return Violation("seccompProfile", f"forbidden {plural(len(forbidden), 'annotation')} {', '.join(forbidden)}")


def seccomp_1_19(_metadata: Object, spec: Object) -> Violation | None:
    names, values = [], set[str]()
    own = security(spec).get("seccompProfile")
    pod = own is not None and own.get("type") not in ALLOWED_PROFILES
    if own is not None and pod:
        values.add(own.get("type", ""))
    for container in containers(spec):
        profile = security(container).get("seccompProfile")
        if profile is not None and profile.get("type") not in ALLOWED_PROFILES:
            names.append(container["name"])
            values.add(profile.get("type", ""))
    if not values:
        return None
    who = setters(pod=pod, names=names)
    return Violation(
        "seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    )


def sysctls(allowed: AbstractSet[str]) -> Check:
    """Returns the check for a set of allowed sysctls."""

    def check(_metadata: Object, spec: Object) -> Violation | None:
        given = security(spec).get("sysctls") or ()
        forbidden = [sysctl["name"] for sysctl in given if sysctl["name"] not in allowed]
        return Violation("forbidden sysctls", ", ".join(forbidden)) if forbidden else None

    return check


def windows_host_process(_metadata: Object, spec: Object) -> Violation | None:
    pod = bool((security(spec).get("windowsOptions") or {}).get("hostProcess"))
    names = [
        container["name"]
        for container in containers(spec)
        if (security(container).get("windowsOptions") or {}).get("hostProcess")
    ]
    if not pod and not names:
        return None
    who = setters(pod=pod, names=names)
    return Violation("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true")
