"""Security context of a container: user, namespaces, capabilities, profiles. Pure.

The container's securityContext overrides the pod's; without either, the image or the runtime decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.fields import quoted
from podwire.objects.containers import Container, Profile
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
READONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Paths that reveal or change too much of the node; `procMount: Unmasked` lifts both lists."""

LAST_UID = 2**31 - 1
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_ROOT = "/var/lib/kubelet/seccomp"
POD_IDS = 65536
"""Users, and groups, of a pod with its own user namespace."""

_PROFILES: Mapping[str, pb.SecurityProfile.ProfileType] = {
    "RuntimeDefault": pb.SecurityProfile.RuntimeDefault,
    "Unconfined": pb.SecurityProfile.Unconfined,
    "Localhost": pb.SecurityProfile.Localhost,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUser:
    """The user of an image; root if it names none."""

    uid: int | None = 0
    name: str = ""


def image_user(image: pb.Image) -> ImageUser:
    if image.HasField("uid"):
        return ImageUser(uid=image.uid.value)
    return ImageUser(uid=None, name=image.username) if image.username else ImageUser()


def security_context(
    pod: Pod,
    container: Container,
    user: ImageUser,
    *,
    target: str = "",
    seccomp_root: str = SECCOMP_ROOT,
    first_id: int = 0,
) -> pb.LinuxContainerSecurityContext:
    """`target` is the container whose processes an ephemeral one wants to see. Raises ConfigError."""
    _check_non_root(pod, container, user)
    own, shared = container.security_context, pod.spec.security_context
    unmasked = own.proc_mount == "Unmasked"
    context = pb.LinuxContainerSecurityContext(
        privileged=bool(own.privileged),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        namespace_options=namespaces(pod, first_id),
        supplemental_groups=supplemental_groups(pod),
        supplemental_groups_policy=groups_policy(pod),
        masked_paths=() if unmasked else MASKED,
        readonly_paths=() if unmasked else READONLY,
        seccomp=_seccomp(own.seccomp_profile or shared.seccomp_profile, seccomp_root),
    )
    _set_user(context, pod, container, user)
    if own.capabilities is not None:
        context.capabilities.add_capabilities.extend(own.capabilities.add)
        context.capabilities.drop_capabilities.extend(own.capabilities.drop)
    apparmor = apparmor_profile(pod, container)
    if apparmor is not None:
        context.apparmor.CopyFrom(_profile(apparmor, apparmor.localhost_profile))
    if target and context.namespace_options.pid == pb.CONTAINER:
        context.namespace_options.pid = pb.TARGET
        context.namespace_options.target_id = target
    return context


def apparmor_profile(pod: Pod, container: Container) -> Profile | None:
    """The profile of a container: of its own field, its annotation, or the field of its pod."""
    own = container.security_context.app_armor_profile
    text = pod.metadata.annotations.get(f"{APPARMOR_ANNOTATION}{container.name}", "")
    if own is not None or not text:
        return own or pod.spec.security_context.app_armor_profile
    if text.startswith("localhost/"):
        return Profile(type="Localhost", localhost_profile=text.removeprefix("localhost/"))
    return Profile(type="Unconfined" if text == "unconfined" else "RuntimeDefault")


def namespaces(pod: Pod, first_id: int = 0) -> pb.NamespaceOption:
    """Namespaces of the node and of the pod. `first_id` is the first id of the host that a pod with its own user
    namespace has; 0 means that the runtime does not support it. Raises ConfigError."""
    spec = pod.spec
    if spec.host_users:
        users = pb.UserNamespace(mode=pb.NODE)
    elif first_id:
        users = pb.UserNamespace(mode=pb.POD, uids=[id_mapping(first_id)], gids=[id_mapping(first_id)])
    else:
        raise ConfigError("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
    return pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pb.NODE if spec.host_pid else pb.POD if spec.share_process_namespace else pb.CONTAINER,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
        userns_options=users,
    )


def id_mapping(first_id: int) -> pb.IDMapping:
    return pb.IDMapping(host_id=first_id, container_id=0, length=POD_IDS)


def supplemental_groups(pod: Pod) -> tuple[int, ...]:
    shared = pod.spec.security_context
    return (*(() if shared.fs_group is None else (shared.fs_group,)), *shared.supplemental_groups)


def groups_policy(pod: Pod) -> pb.SupplementalGroupsPolicy:
    policy = pod.spec.security_context.supplemental_groups_policy
    if policy not in ("", "Merge", "Strict"):
        raise ConfigError(f"unsupported supplementalGroupsPolicy: {policy}")
    return pb.Strict if policy == "Strict" else pb.Merge


def _set_user(context: pb.LinuxContainerSecurityContext, pod: Pod, container: Container, image: ImageUser) -> None:
    own, shared = container.security_context, pod.spec.security_context
    uid = shared.run_as_user if own.run_as_user is None else own.run_as_user
    gid = shared.run_as_group if own.run_as_group is None else own.run_as_group
    if uid is None:
        uid, context.run_as_username = image.uid, image.name
    if uid is not None:
        context.run_as_user.value = uid
    if gid is not None:
        context.run_as_group.value = gid


def _check_non_root(pod: Pod, container: Container, image: ImageUser) -> None:
    """Enforces runAsNonRoot; a user name is rejected, because it may have uid 0."""
    own, shared = container.security_context, pod.spec.security_context
    if not (shared.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root):
        return
    uid = shared.run_as_user if own.run_as_user is None else own.run_as_user
    if uid == 0:
        problem = "container's runAsUser breaks non-root policy"
    elif uid is not None:
        return
    elif image.uid is None:
        problem = (
            f"container has runAsNonRoot and image has non-numeric user ({image.name}), cannot verify user is non-root"
        )
    elif image.uid == 0:
        problem = "container has runAsNonRoot and image will run as root"
    elif image.uid > LAST_UID:
        problem = (
            f"container has runAsNonRoot and image has an invalid user id ({image.uid}). (Must be 1-({LAST_UID})): "
            f"must be between 0 and {LAST_UID}, inclusive"
        )
    else:
        return
    pod_name = quoted(f"{pod.name}_{pod.namespace}({pod.uid})")
    raise ConfigError(f"{problem} (pod: {pod_name}, container: {container.name})")


def _seccomp(profile: Profile | None, root: str) -> pb.SecurityProfile:
    """Without a profile a container is unconfined, the default of Kubernetes."""
    if profile is None:
        return pb.SecurityProfile(profile_type=pb.SecurityProfile.Unconfined)
    if profile.type == "Localhost" and not profile.localhost_profile:
        raise ConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
    return _profile(profile, f"{root}/{profile.localhost_profile}")


def _profile(profile: Profile, path: str) -> pb.SecurityProfile:
    kind = _PROFILES.get(profile.type, pb.SecurityProfile.Unconfined)
    return pb.SecurityProfile(profile_type=kind, localhost_ref=path if kind == pb.SecurityProfile.Localhost else "")
