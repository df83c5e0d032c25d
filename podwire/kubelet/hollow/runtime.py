"""A container runtime in memory, for one pod: its sandbox and containers as values, which change with time. Pure.

It has the states that a CRI runtime would report. Nothing happens by itself: `advance` ends the containers whose time
has come, and `next_change` says when that is.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from podwire.kubelet.config.container import container_hash
from podwire.kubelet.hollow.behaviour import KILLED, TERMINATED, Behaviour
from podwire.kubelet.pods.observed import NOTHING, ObservedContainer, ObservedPod, Sandbox, newest_first
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.times import parse
from podwire.protocols.cri import cri_pb2 as pb


@dataclass(frozen=True, slots=True)
class _Exit:
    at: float
    code: int
    reason: str = ""


class SimulatedPod:
    """Times are monotonic; `wall` is added to show them."""

    __slots__ = ("_containers", "_exits", "_ids", "_sandboxes", "_seen", "_stopping", "_uid", "_wall")

    def __init__(self, uid: str, wall: Callable[[], float]) -> None:
        self._uid = uid
        self._wall = wall
        self._ids = itertools.count()
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, ObservedContainer] = {}
        self._exits: dict[str, _Exit] = {}
        """By container id: its end, if it is known already."""
        self._stopping: set[str] = set()
        self._seen: ObservedPod | None = NOTHING

    @property
    def observed(self) -> ObservedPod:
        if self._seen is None:
            self._seen = newest_first(self._sandboxes.values(), self._containers.values())
        return self._seen

    @property
    def next_change(self) -> float | None:
        return min((end.at for end in self._exits.values()), default=None)

    def advance(self, now: float) -> None:
        """Ends the containers whose time has come."""
        for id_, end in [(id_, end) for id_, end in self._exits.items() if end.at <= now]:
            self._exit(id_, end.code, end.reason)

    def run_sandbox(self, attempt: int, ips: tuple[str, ...], *, host_network: bool) -> None:
        sandbox = Sandbox(
            id=self._id(), ready=True, attempt=attempt, created_at=self._now(), ips=ips, host_network=host_network
        )
        self._sandboxes[sandbox.id] = sandbox
        self._seen = None

    def start(self, container: Container, attempt: int, script: Behaviour, now: float) -> None:
        """Starts a container in the newest sandbox."""
        sandbox = self.observed.sandbox
        if sandbox is None:
            raise LookupError(f"pod {self._uid} has no sandbox")
        at = self._now()
        started = ObservedContainer(
            id=self._id(), name=container.name, sandbox=sandbox.id, state=pb.CONTAINER_RUNNING, attempt=attempt,
            hash=container_hash(container), image=container.image, image_ref=container.image, created_at=at,
            started_at=at,
        )  # fmt: skip
        self._containers[started.id] = started
        if script.run_seconds is not None:
            self._exits[started.id] = _Exit(now + script.run_seconds, script.exit_code)
        self._seen = None

    def stop(self, id_: str, script: Behaviour, grace: float, now: float) -> None:
        """SIGTERM now, SIGKILL when the grace period is over. A shorter grace period of a later call counts."""
        container = self._containers.get(id_)
        if container is None or not container.running:
            return
        code = TERMINATED if script.stop_seconds <= grace else KILLED
        at = now + min(script.stop_seconds, grace)
        known = self._exits.get(id_)
        if id_ not in self._stopping or known is None or at < known.at:
            self._exits[id_] = known if known is not None and known.at < at else _Exit(at, code)
        self._stopping.add(id_)

    def is_stopping(self, id_: str) -> bool:
        return id_ in self._stopping

    def stop_sandbox(self, id_: str) -> None:
        if id_ in self._sandboxes:
            for container in [seen for seen in self._containers.values() if seen.sandbox == id_ and seen.running]:
                self._exit(container.id, KILLED)
            self._sandboxes[id_] = replace(self._sandboxes[id_], ready=False)
            self._seen = None

    def remove(self, id_: str) -> None:
        """Removes a container or a sandbox."""
        self._containers.pop(id_, None)
        self._sandboxes.pop(id_, None)
        self._exits.pop(id_, None)
        self._seen = None

    def adopt(self, pod: Pod, ips: tuple[str, ...], scripts: Callable[[Container], Behaviour], now: float) -> None:
        """Takes over what an earlier process has reported of a pod: containers that ran go on."""
        status = pod.status
        if status.phase != "Running":
            return
        self.run_sandbox(0, ips, host_network=pod.spec.host_network)
        sandbox = next(iter(self._sandboxes))
        reports = (*status.init_container_statuses, *status.container_statuses)
        by_name = {report.get("name"): report for report in reports}
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            report = by_name.get(container.name) or {}
            state, id_ = report.get("state") or {}, str(report.get("containerID") or "").rpartition("://")[2]
            if id_ and (adopted := _adopted(container, sandbox, id_, report, state)) is not None:
                self._containers[id_] = adopted
                script = scripts(container)
                if adopted.running and script.run_seconds is not None:
                    left = adopted.started_at / 1e9 + script.run_seconds - self._wall()
                    self._exits[id_] = _Exit(now + max(0.0, left), script.exit_code)
        self._seen = None

    def _exit(self, id_: str, code: int, reason: str = "") -> None:
        self._exits.pop(id_, None)
        container = self._containers[id_]
        why = reason or ("Completed" if code == 0 else "Error")
        self._containers[id_] = replace(
            container, state=pb.CONTAINER_EXITED, exit_code=code, reason=why, finished_at=self._now()
        )
        self._seen = None

    def _id(self) -> str:
        return f"{self._uid}-{next(self._ids)}-{self._now() & 0xFFFFFFFFFF:x}"

    def _now(self) -> int:
        return int(self._wall() * 1e9)


def _adopted(
    container: Container, sandbox: str, id_: str, report: dict[str, object], state: dict[str, dict[str, object]]
) -> ObservedContainer | None:
    running, ended = state.get("running"), state.get("terminated")
    known = running if running is not None else ended
    if known is None:
        return None
    times = [int(parse(str(known[name])) * 1e9) if known.get(name) else 0 for name in ("startedAt", "finishedAt")]
    return ObservedContainer(
        id=id_, name=container.name, sandbox=sandbox, attempt=int(str(report.get("restartCount") or 0)),
        state=pb.CONTAINER_RUNNING if running is not None else pb.CONTAINER_EXITED, hash=container_hash(container),
        image=container.image, image_ref=container.image, created_at=times[0], started_at=times[0],
        finished_at=times[1], exit_code=int(str((ended or {}).get("exitCode") or 0)),
        reason=str((ended or {}).get("reason") or ""),
    )  # fmt: skip


def first_free(taken: Iterable[int], most: int) -> int | None:
    """Returns the smallest number that is not taken."""
    used = set(taken)
    return next((number for number in range(most) if number not in used), None)
