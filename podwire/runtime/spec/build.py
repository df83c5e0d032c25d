"""Builds a container's config.json."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec.apparmor import apparmor_profile
from podwire.runtime.spec.capabilities import capabilities
from podwire.runtime.spec.mounts import bind, clean_path, kernel_mounts, requested_mounts, root_propagation
from podwire.runtime.spec.seccomp import profile
from podwire.runtime.spec.user_namespaces import IdRange, check_ids, requested_range
from podwire.runtime.spec.users import Accounts, user_of

VERSION = "1.0.2"
DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
READONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Masked and read-only paths for CRI clients that send none.

Kubelets send them, but for `procMount: Unmasked`, which only pods with a user namespace of their own may have.
"""

POD, CONTAINER, NODE, TARGET = (pb.NamespaceMode.Value(name) for name in ("POD", "CONTAINER", "NODE", "TARGET"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The sandbox: pinned namespaces (empty for the node's own), and files that are mounted into containers."""

    id: str
    config: pb.PodSandboxConfig
    network: str = ""
    ipc: str = ""
    shm: str = ""
    user: str = ""
    """Its user namespace, which owns the others."""
    pids: str = ""
    """Its pid namespace, which containers in the mode POD share."""
    ids: IdRange | None = None
    """The ids of the host that it has, with a user namespace of its own."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths in the container to paths on the host: /etc/hostname, /etc/resolv.conf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The request of CRI, the settings of the image, and the capabilities of this host."""

    id: str
    config: pb.ContainerConfig
    rootfs: str
    cgroup: str = ""
    """Its cgroup. crun runs with --cgroup-manager=disabled; runc needs the path, or it would create another one."""
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Sequence[str] = ()
    working_dir: str = ""
    user: str = ""
    images: Mapping[int, str] = field(default_factory=dict)
    """Where image volumes are mounted, by the number of the mount."""
    accounts: Accounts = field(default_factory=Accounts)
    target_pid: int = 0
    """The process whose pid namespace is joined (mode TARGET)."""
    devices: Sequence[Mapping[str, Any]] = ()
    """Device nodes in the specification's own form, looked up by the caller."""
    device_rules: Sequence[Mapping[str, Any]] = ()
    """The devices that it may use, as rules of the device cgroup."""
    available: Sequence[str] = ()
    """The capabilities of this host."""
    apparmor_profiles: Collection[str] | None = None
    """The AppArmor profiles of this kernel; None without AppArmor."""
    machine: str = "x86_64"
    seccomp_profile: bytes = b""
    """The content of its Localhost profile."""
    oom_score_adj: int | None = None


def build(pod: Pod, container: Container) -> dict[str, Any]:
    """Returns the config.json. Raises InvalidArgument with the field."""
    security = container.config.linux.security_context
    return {
        "ociVersion": VERSION,
        "process": _process(pod, container, security),
        "root": {"path": container.rootfs, "readonly": security.readonly_rootfs},
        "hostname": pod.config.hostname,
        "mounts": _mounts(pod, container, privileged=security.privileged),
        "annotations": _annotations(pod, container),
        "linux": _linux(pod, container, security),
    }


def _process(pod: Pod, container: Container, security: pb.LinuxContainerSecurityContext) -> dict[str, Any]:
    user = user_of(security, container.user, container.accounts)
    check_ids(pod.ids, user.uid, user.gid, user.groups)
    process: dict[str, Any] = {
        "terminal": container.config.tty,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "args": arguments(container),
        "env": environment(container, pod.config.hostname),
        "cwd": clean_path(container.config.working_dir or container.working_dir or "/", "working_dir"),
        "capabilities": capabilities(security, available=container.available),
        "noNewPrivileges": security.no_new_privs,
    }
    if apparmor := apparmor_profile(security, container.apparmor_profiles):
        process["apparmorProfile"] = apparmor
    if container.oom_score_adj is not None:
        process["oomScoreAdj"] = container.oom_score_adj
    return process


def arguments(container: Container) -> list[str]:
    """Returns the command line: Kubernetes' command replaces the image's entrypoint and its command."""
    config = container.config
    command = list(config.command) or list(container.entrypoint)
    extra = list(config.args) or ([] if config.command else list(container.command))
    if not command and not extra:
        raise InvalidArgument("command: neither the container nor its image has a command")
    return [*command, *extra]


def environment(container: Container, hostname: str = "") -> list[str]:
    """Returns HOSTNAME, the image's variables, then the container's; a later one of the same name wins."""
    variables: dict[str, str] = {}
    for variable in (DEFAULT_PATH, f"HOSTNAME={hostname}", *container.environment):
        name, _, value = variable.partition("=")
        variables[name] = value
    if not variables["HOSTNAME"]:
        del variables["HOSTNAME"]
    for number, pair in enumerate(container.config.envs):
        if not pair.key or "=" in pair.key or "\x00" in pair.key:
            raise InvalidArgument(f"envs[{number}].key: {pair.key!r} is not a valid name of an environment variable")
        variables[pair.key] = _text(pair.value, f"envs[{number}].value")
    if container.config.tty:
        variables.setdefault("TERM", "xterm")
    return [f"{name}={value}" for name, value in variables.items()]


def _text(value: bytes, field: str) -> str:
    """Decodes a variable's value; config.json is JSON, so it must be UTF-8."""
    if b"\x00" in value:
        raise InvalidArgument(f"{field}: contains a zero byte")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{field}: is not valid UTF-8") from error


def _mounts(pod: Pod, container: Container, *, privileged: bool) -> list[dict[str, Any]]:
    requested = requested_mounts(container.config.mounts, pod.ids, container.images)
    taken = {mount["destination"] for mount in requested}
    defaults = kernel_mounts(privileged=privileged, shm=pod.shm)
    mounts = [mount for mount in defaults if mount["destination"] not in taken]
    mode = "ro" if container.config.linux.security_context.readonly_rootfs else "rw"
    mapped = {"uidMappings": pod.ids.oci(), "gidMappings": pod.ids.oci()} if pod.ids else {}
    for path, source in pod.files.items():
        if path not in taken:
            mounts.append({**bind(source, path, ["rprivate", mode]), **mapped})
    return mounts + requested


def _annotations(pod: Pod, container: Container) -> dict[str, str]:
    metadata = pod.config.metadata
    return {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": container.config.metadata.name,
        "io.kubernetes.cri.sandbox-id": pod.id,
        "io.kubernetes.cri.sandbox-name": metadata.name,
        "io.kubernetes.cri.sandbox-namespace": metadata.namespace,
        "io.kubernetes.cri.sandbox-uid": metadata.uid,
        "io.kubernetes.cri.image-name": container.config.image.user_specified_image or container.config.image.image,
    }


def _linux(pod: Pod, container: Container, security: pb.LinuxContainerSecurityContext) -> dict[str, Any]:
    linux: dict[str, Any] = {"namespaces": namespaces(pod, container, security.namespace_options)}
    unmasked = pod.ids is not None and not security.masked_paths and not security.readonly_paths
    if (propagation := root_propagation(container.config.mounts)) is not None:
        linux["rootfsPropagation"] = propagation
    if container.cgroup:
        linux["cgroupsPath"] = f"/{container.cgroup}"
    if container.device_rules:  # runc applies them; for crun the runtime does
        linux["resources"] = {"devices": [dict(rule) for rule in container.device_rules]}
    if container.devices:
        linux["devices"] = [dict(device) for device in container.devices]
    if not security.privileged:
        linux["maskedPaths"] = list(security.masked_paths) or ([] if unmasked else list(MASKED))
        linux["readonlyPaths"] = list(security.readonly_paths) or ([] if unmasked else list(READONLY))
    kept = capabilities(security, available=container.available)["effective"]
    if (seccomp := profile(security, kept, container.machine, container.seccomp_profile)) is not None:
        linux["seccomp"] = seccomp
    return linux


def namespaces(pod: Pod, container: Container, options: pb.NamespaceOption) -> list[dict[str, str]]:
    """Returns the namespaces: new ones of the container, those of the pod; the node's are left out."""
    if options.HasField("userns_options") and requested_range(options) != pod.ids:
        raise InvalidArgument("linux.security_context.namespace_options.userns_options: must be those of the pod")
    result = [{"type": "mount"}, {"type": "uts"}]
    if pod.user:
        result.append({"type": "user", "path": pod.user})
    if pod.network:
        result.append({"type": "network", "path": pod.network})
    if options.ipc == CONTAINER:
        result.append({"type": "ipc"})
    elif pod.ipc:
        result.append({"type": "ipc", "path": pod.ipc})
    if options.pid == CONTAINER:
        result.append({"type": "pid"})
    elif options.pid == TARGET:
        result.append({"type": "pid", "path": f"/proc/{container.target_pid}/ns/pid"})
    elif options.pid == POD:
        result.append({"type": "pid", "path": pod.pids})
    return result
