"""Whole clusters, each on an island of its own: `podwire up` as it comes, and the same on Debian's containerd."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.island import CGROUPS, Island, island
from benchmarks.machine import CannotMeasure
from benchmarks.runtimes import start_containerd
from benchmarks.server import DEADLINE, PODWIRE, ROOT
from podwire.cluster.runtime import Options

BELOW = "c"
"""The prefix of our cluster on its island."""
KUBECONFIG = "var/lib/podwire/kubeconfig"
LEASES = "var/lib/podwire/cni/networks/podwire/*.*.*.*"
CONTAINERD_CGROUPS = "k8s.io"
"""The cgroup of pods under containerd."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a run: seconds of each pod, of all together, and until nothing was left of any pod."""

    each: list[float]
    all: float
    left: float


class Cluster:
    """A cluster that is ready, and its client."""

    def __init__(self, at: Island, ready_seconds: float, command: Sequence[str], trace: Path) -> None:
        self.ready_seconds = ready_seconds
        self.trace = trace
        self._at = at
        self._numbers = iter(range(1_000_000))
        words = at.inside([PODWIRE[0], "-m", "benchmarks.pod_client", *command])
        self._client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._told = at.log

    def names(self, count: int) -> list[str]:
        return [f"pod-{next(self._numbers)}" for _ in range(count)]

    def make(self, *objects: dict[str, Any]) -> None:
        self._ask(do="make", objects=objects)

    def start(self, names: Sequence[str], *, token: bool = True, claim: str = "") -> Done:
        """With the name of a template, each has a claim from it."""
        return Done(**self._ask(do="start", names=names, token=token, claim=claim))

    def hand_over(self, owner: str, follower: str, *, claim: str) -> Done:
        """A pod with the template's only device is deleted; the other pod waits for it."""
        return Done(**self._ask(do="hand over", owner=owner, follower=follower, claim=claim))

    def on_node(self, *command: str) -> None:
        """A program where the node's links are."""
        _run(
            self._at.inside(
                [*PODWIRE, "node", "exec", "--prefix", str(self._at.place / BELOW), "node-1", "--", *command]
            )
        )

    def delete(self, names: Sequence[str], *, grace: int | None = None, wait: bool = True) -> Done:
        return Done(**self._ask(do="delete", names=names, grace=grace, wait=wait))

    def replace(self, waiting: str, ends: str, *, after: float) -> float:
        """From the DELETE of a pod until one that waited for its address is Running."""
        return Done(**self._ask(do="replace", waiting=waiting, ends=ends, after=after)).each[0]

    def workload(self, step: str, name: str = "", count: int = 0) -> dict[str, Any]:
        """The seconds and requests of a step: deploy, roll, jobs or remove; see benchmarks.workload_client."""
        return self._ask(do="workload", step=step, name=name, count=count)

    def usage(self) -> dict[str, dict[str, float]]:
        """Returns the usage of each kind of process; see benchmarks.pod_client."""
        usage: dict[str, dict[str, float]] = self._ask(do="usage")
        return usage

    def _ask(self, **order: Any) -> dict[str, Any]:
        if self._client.stdin is None or self._client.stdout is None:
            raise CannotMeasure("the client has no pipes")
        try:
            self._client.stdin.write(json.dumps(order) + "\n")
            self._client.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._client.stdout.readline()
        if not line:
            raise CannotMeasure(f"the client of {self.trace.parent} gave up on {order['do']}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._client.kill()
        self._client.wait()
        for pipe in (self._client.stdin, self._client.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def podwire(*words: str) -> Iterator[Cluster]:
    """With these words for `podwire up`."""
    with island() as at:
        prefix = at.place / BELOW
        at.cgroups.append(Options(socket=prefix, prefix=prefix).cgroup_parent)
        stands = at.place / "stands"
        at.start(["sh", "-c", 'touch "$0"; exec sleep infinity', str(stands)], stands.exists)
        begin = time.perf_counter()
        _run(at.inside([*PODWIRE, "up", "--detach", "--prefix", str(prefix), *words]))
        taken = time.perf_counter() - begin
        yield from _closing(at, taken, prefix, prefix / "run/netns/*")


@contextlib.contextmanager
def containerd() -> Iterator[Cluster]:
    """A foreign runtime is on the host itself, which is the island here: paths are those of the whole machine."""
    with _shared_group_removed(), island() as at:
        host = at.place / "host-lib"
        runtime = start_containerd(at, Path("/var/lib/podwire/cni/bin"), Path("/etc/cni/net.d"))
        begin = time.perf_counter()
        _run(at.inside([*PODWIRE, "up", "--detach", "--runtime", f"unix://{runtime.socket}"]))
        taken = time.perf_counter() - begin
        try:
            yield from _closing(at, taken, Path("/"), at.place / "state/io.containerd.grpc.v1.cri/netns/*", host)
        finally:
            tasks = at.place / "state/io.containerd.runtime.v2.task/k8s.io"
            at.cgroups += [f"{CONTAINERD_CGROUPS}/{path.name}" for path in tasks.glob("*")]


def _closing(at: Island, taken: float, prefix: Path, netns: Path, state: Path | None = None) -> Iterator[Cluster]:
    trace = (state or prefix / "var/lib") / "podwire/trace"
    cluster = Cluster(at, taken, [str(prefix / KUBECONFIG), str(netns), str(prefix / LEASES)], trace)
    try:
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def _shared_group_removed() -> Iterator[None]:
    """The group around all containers that containerd started, unless another one has some there."""
    try:
        yield
    finally:
        for path in CGROUPS.glob(f"*/{CONTAINERD_CGROUPS}"):
            with contextlib.suppress(OSError):
                path.rmdir()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE, cwd=ROOT)
    if done.returncode:
        raise CannotMeasure(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-1000:]}")
