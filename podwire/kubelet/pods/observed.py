"""A pod as the runtime has it: sandboxes and containers as values, the newest first. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwire.protocols.cri import cri_pb2 as pb

NAME, NAMESPACE, UID = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"
CONTAINER = "io.kubernetes.container.name"
"""Labels of every sandbox and container, by which the kubelet finds those of a pod."""

OWNER = "podwire.dev/kubelet"
"""Owner tag, an annotation of every sandbox and container: the root directory of the kubelet that created it."""

HASH, RESTARTS = "io.kubernetes.container.hash", "io.kubernetes.container.restartCount"
"""Annotations of a container."""


IdAndState = tuple[str, int]
"""The id of a sandbox or container, and its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    id: str
    ready: bool
    attempt: int = 0
    created_at: int = 0
    ips: tuple[str, ...] = ()
    host_network: bool = False
    first_id: int = 0
    """The first id of its user namespace; 0 if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedContainer:
    """A container in any state. Times in nanoseconds, 0 for none."""

    id: str
    name: str
    sandbox: str
    state: int
    attempt: int = 0
    hash: str = ""
    image: str = ""
    image_ref: str = ""
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    log_path: str = ""
    user: Mapping[str, object] | None = None

    @property
    def running(self) -> bool:
        return self.state == pb.CONTAINER_RUNNING

    @property
    def exited(self) -> bool:
        return self.state in (pb.CONTAINER_EXITED, pb.CONTAINER_UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """One pod in the runtime."""

    sandboxes: tuple[Sandbox, ...] = ()
    containers: tuple[ObservedContainer, ...] = ()

    @property
    def sandbox(self) -> Sandbox | None:
        """The newest."""
        return self.sandboxes[0] if self.sandboxes else None

    def latest(self, name: str) -> ObservedContainer | None:
        return next((container for container in self.containers if container.name == name), None)

    def history(self, name: str) -> tuple[ObservedContainer, ...]:
        return tuple(container for container in self.containers if container.name == name)

    @property
    def states(self) -> set[IdAndState]:
        """The part of it that is in the runtime's lists."""
        ready, not_ready = pb.SANDBOX_READY, pb.SANDBOX_NOTREADY
        sandboxes = {(sandbox.id, ready if sandbox.ready else not_ready) for sandbox in self.sandboxes}
        return {*sandboxes, *((container.id, container.state) for container in self.containers)}

    @property
    def running(self) -> tuple[ObservedContainer, ...]:
        return tuple(container for container in self.containers if container.running)


NOTHING = ObservedPod()


def observe_sandbox(status: pb.PodSandboxStatus) -> Sandbox:
    ips = (status.network.ip, *(address.ip for address in status.network.additional_ips))
    return Sandbox(
        id=status.id,
        ready=status.state == pb.SANDBOX_READY,
        attempt=status.metadata.attempt,
        created_at=status.created_at,
        ips=tuple(ip for ip in ips if ip),
        host_network=status.linux.namespaces.options.network == pb.NODE,
        first_id=next((mapping.host_id for mapping in status.linux.namespaces.options.userns_options.uids), 0),
    )


def observe_container(status: pb.ContainerStatus, sandbox: str) -> ObservedContainer:
    return ObservedContainer(
        id=status.id,
        name=status.metadata.name,
        sandbox=sandbox,
        state=status.state,
        attempt=status.metadata.attempt,
        hash=status.annotations.get(HASH, ""),
        image=status.image.image,
        image_ref=status.image_ref,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        log_path=status.log_path,
        user=_user(status),
    )


def newest_first(sandboxes: Iterable[Sandbox], containers: Iterable[ObservedContainer]) -> ObservedPod:
    """By attempt, then by time: clocks may jump, attempts do not."""
    return ObservedPod(
        sandboxes=tuple(sorted(sandboxes, key=_age, reverse=True)),
        containers=tuple(sorted(containers, key=_age, reverse=True)),
    )


def _age(member: Sandbox | ObservedContainer) -> tuple[int, int]:
    return member.attempt, member.created_at


def _user(status: pb.ContainerStatus) -> dict[str, object] | None:
    if not status.user.HasField("linux"):
        return None
    user = status.user.linux
    return {"uid": user.uid, "gid": user.gid, "supplementalGroups": list(user.supplemental_groups)}
