"""ContainerConfig of CRI for a container. Pure."""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from podwire.kubelet.config.environment import ConfigError, expand
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.config.linux_resources import container_limits
from podwire.kubelet.config.security import SECCOMP_ROOT, id_mapping, image_user, security_context
from podwire.kubelet.pods.observed import CONTAINER, HASH, NAME, NAMESPACE, RESTARTS, UID
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP, PORTS = "io.kubernetes.container.preStopHandler", "io.kubernetes.container.ports"
GRACE, DELETION_GRACE = "io.kubernetes.pod.terminationGracePeriod", "io.kubernetes.pod.deletionGracePeriod"
"""Annotations by which a container can be terminated and described when its pod is gone from the API."""


def container_config(
    pod: Pod,
    container: Container,
    *,
    attempt: int,
    image: pb.Image,
    env: Mapping[str, str],
    mounts: Sequence[pb.Mount],
    node: NodeFacts,
    log_path: str,
    devices: Sequence[pb.Device] = (),
    cdi_devices: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    target: str = "",
    seccomp_root: str = SECCOMP_ROOT,
    first_id: int = 0,
) -> pb.ContainerConfig:
    """Raises ConfigError.

    `annotations` are those of device plugins; `target` is the id of the container whose processes an ephemeral
    container shares; `log_path` is relative to the pod's log directory; `first_id` is the first id
    of the host that a pod with its own user namespace has.
    """
    security = security_context(
        pod, container, image_user(image), target=target, seccomp_root=seccomp_root, first_id=first_id
    )
    if not pod.spec.host_users:  # files of volumes have the owners that they have on the host
        for mount in mounts:
            mount.uidMappings.append(id_mapping(first_id))
            mount.gidMappings.append(id_mapping(first_id))
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=container.name, attempt=attempt),
        image=pb.ImageSpec(image=image.id, user_specified_image=container.image),
        command=_expanded("command", container.command, env),
        args=_expanded("args", container.args, env),
        working_dir=container.working_dir,
        envs=[pb.KeyValue(key=name, value=value.encode(errors="surrogateescape")) for name, value in env.items()],
        mounts=mounts,
        devices=devices,
        labels={NAME: pod.name, NAMESPACE: pod.namespace, UID: pod.uid, CONTAINER: container.name},
        annotations={**(annotations or {}), **_annotations(pod, container, attempt)},
        log_path=log_path,
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        CDI_devices=[pb.CDIDevice(name=id_) for id_ in cdi_devices],
        stop_signal=_stop_signal(container),
        linux=pb.LinuxContainerConfig(resources=container_limits(pod, container, node), security_context=security),
    )


def container_hash(container: Container) -> str:
    """A container whose hash changed has to be replaced.

    Only name and image count: nothing else of a container can change, except resources, which change in place. So a
    field that a later API server adds does not restart containers.
    """
    return hashlib.blake2b(f"{container.name}\0{container.image}".encode(), digest_size=8).hexdigest()


def _expanded(field: str, words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    expanded = [expand(word, env) for word in words]
    for number, word in enumerate(expanded):
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise ConfigError(f"{field}[{number}]: a variable in it is not valid UTF-8")
    return expanded


def _annotations(pod: Pod, container: Container, attempt: int) -> dict[str, str]:
    annotations = {
        HASH: container_hash(container),
        RESTARTS: str(attempt),
        MESSAGE_PATH: container.termination_message_path,
        MESSAGE_POLICY: container.termination_message_policy,
        GRACE: str(pod.spec.termination_grace_period_seconds),
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations[DELETION_GRACE] = str(pod.metadata.deletion_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[PRE_STOP] = msgspec.json.encode(container.lifecycle.pre_stop).decode()
    if container.ports:
        annotations[PORTS] = msgspec.json.encode(container.ports).decode()
    return annotations


def _stop_signal(container: Container) -> str:
    """The name in CRI: SIGRTMINPLUS3 for SIGRTMIN+3."""
    given = container.lifecycle.stop_signal if container.lifecycle is not None else ""
    name = given.replace("+", "PLUS").replace("-", "MINUS") or "RUNTIME_DEFAULT"
    if name not in pb.Signal.keys():  # noqa: SIM118 - an enum's names, not a dict's
        raise ConfigError(f"unsupported stop signal: {given}")
    return name
