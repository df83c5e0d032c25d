"""What the runtime has of a pod, as values: sandboxes and containers, the newest first. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwire.protocols.cri import cri_pb2 as pb

NAME, NAMESPACE, UID = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"
CONTAINER = "io.kubernetes.container.name"
"""Labels that every sandbox and container bears; a kubelet finds its own by them."""

OWNER = "podwire.dev/kubelet"
"""An annotation of every sandbox: the directory of the kubelet that made it, in which that one is alone."""

HASH, RESTARTS = "io.kubernetes.container.hash", "io.kubernetes.container.restartCount"
"""Annotations of a container."""


Outline = tuple[str, int]
"""The id of a sandbox or container, and its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    id: str
    ready: bool
    attempt: int = 0
    created_at: int = 0
    ips: tuple[str, ...] = ()
    host_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedContainer:
    """A container that was made once, whatever became of it. Times in nanoseconds, 0 for none."""

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
        return next((each for each in self.containers if each.name == name), None)

    def history(self, name: str) -> tuple[ObservedContainer, ...]:
        return tuple(each for each in self.containers if each.name == name)

    @property
    def outline(self) -> set[Outline]:
        """What of it is seen in the runtime's lists."""
        sandboxes = {(each.id, pb.SANDBOX_READY if each.ready else pb.SANDBOX_NOTREADY) for each in self.sandboxes}
        return {*sandboxes, *((each.id, each.state) for each in self.containers)}

    @property
    def running(self) -> tuple[ObservedContainer, ...]:
        return tuple(each for each in self.containers if each.running)


NOTHING = ObservedPod()


def of_sandbox(status: pb.PodSandboxStatus) -> Sandbox:
    ips = (status.network.ip, *(each.ip for each in status.network.additional_ips))
    return Sandbox(
        id=status.id,
        ready=status.state == pb.SANDBOX_READY,
        attempt=status.metadata.attempt,
        created_at=status.created_at,
        ips=tuple(each for each in ips if each),
        host_network=status.linux.namespaces.options.network == pb.NODE,
    )


def of_container(status: pb.ContainerStatus, sandbox: str) -> ObservedContainer:
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


def together(sandboxes: Iterable[Sandbox], containers: Iterable[ObservedContainer]) -> ObservedPod:
    """Newest first: by attempt, then by time (clocks may jump, attempts do not)."""
    return ObservedPod(
        sandboxes=tuple(sorted(sandboxes, key=lambda each: (each.attempt, each.created_at), reverse=True)),
        containers=tuple(sorted(containers, key=lambda each: (each.attempt, each.created_at), reverse=True)),
    )


def _user(status: pb.ContainerStatus) -> dict[str, object] | None:
    if not status.user.HasField("linux"):
        return None
    user = status.user.linux
    return {"uid": user.uid, "gid": user.gid, "supplementalGroups": list(user.supplemental_groups)}
