"""Measures the CRI calls that create and remove a pod: one pod at a time, and many at once; ours and containerd."""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK, CannotMeasure
from benchmarks.runtimes import IMAGE, Runtime, containerd, has_containerd, podwire, reference_plugins
from benchmarks.server import DEADLINE
from podwire.cniplugins.install import install
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.transports.grpc_client import GrpcClient, connect

RUN, START, STOP = "RunPodSandbox", "CreateContainer + StartContainer", "StopPodSandbox + RemovePodSandbox"
STEPS = (RUN, START, STOP)
BUDGETS = {RUN: 0.5, START: 0.5}
RECORDED_MS = {RUN: 125.0, START: 69.0, STOP: 159.0}
"""containerd 2.3.4, the middle of what it needed."""
COMMAND = ["sleep", "1000000"]
PODS_AT_ONCE = 4.0
PODS_IN_TURN = 2.0
"""For each second that a measurement may take."""

Times = dict[str, list[float]]


def measure(seconds: float) -> Iterator[Figure]:
    """The runtimes take turns, pod by pod, so that all meet the same machine."""
    plugins = reference_plugins()
    in_turn, at_once = max(2, round(PODS_IN_TURN * seconds)), max(2, round(PODS_AT_ONCE * seconds))
    with contextlib.ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-")))
        install(str(own))
        runtimes = {
            "reference plugins": stack.enter_context(podwire(plugins)),
            "our plugins": stack.enter_context(podwire(own)),
        }
        if has_containerd(plugins):
            runtimes["containerd"] = stack.enter_context(containerd(plugins))
        try:
            singly, together = asyncio.run(_drive(runtimes, in_turn, at_once))
        except RpcError as error:
            raise CannotMeasure(f"a runtime refused a pod: {error}") from error
    yield from one_at_a_time(singly)
    yield from many_at_once(together, at_once)


def one_at_a_time(times: dict[str, Times]) -> Iterator[Figure]:
    """Medians. Budgets are for the same plugins on both sides."""
    theirs = times.get("containerd")
    for name in [time_ for time_ in times if time_ != "containerd"]:
        for step in STEPS:
            budget = BUDGETS.get(step) if name == "reference plugins" else None
            peer = Peer("containerd 2.3.4", RECORDED_MS[step], budget)
            if theirs:
                peer = Peer("containerd", statistics.median(theirs[step]) * 1e3, budget, MEASURED)
            value = statistics.median(times[name][step]) * 1e3
            yield Figure(group=f"Runtime, one pod at a time, {name}", what=step, value=value, unit=" ms", peer=peer)


def many_at_once(times: dict[str, Times], pods: int) -> Iterator[Figure]:
    """From the first call to the last answer."""
    theirs = times.get("containerd")
    for name in [time_ for time_ in times if time_ != "containerd"]:
        for step in STEPS:
            peer = Peer("containerd", theirs[step][0], None, MEASURED) if theirs else None
            group = f"Runtime, {pods} pods at once, {name}"
            yield Figure(group=group, what=step, value=times[name][step][0], unit=" s", peer=peer)


async def _drive(runtimes: dict[str, Runtime], in_turn: int, at_once: int) -> tuple[dict[str, Times], dict[str, Times]]:
    async with contextlib.AsyncExitStack() as stack:
        kubelets = {
            name: Kubelet(await stack.enter_async_context(connect(runtime.socket)), runtime)
            for name, runtime in runtimes.items()
        }
        for kubelet in kubelets.values():
            await kubelet.ready()
            await kubelet.pods(1)  # the first finds the bridge missing, and caches cold
        singly: dict[str, Times] = {name: {step: [] for step in STEPS} for name in kubelets}
        for _ in range(in_turn):
            for name, kubelet in kubelets.items():
                for step, took in (await kubelet.pods(1)).items():
                    singly[name][step].append(took)
        together: dict[str, Times] = {}
        for name, kubelet in kubelets.items():
            together[name] = {step: [took] for step, took in (await kubelet.pods(at_once)).items()}
        return singly, together


class Kubelet:
    """Makes and ends pods of one container, as a kubelet does, and looks at its watch."""

    def __init__(self, client: GrpcClient, runtime: Runtime) -> None:
        self._client = client
        self._runtime = runtime
        self._numbers = count(1)

    async def ready(self) -> None:
        """Network and image are looked for by and by."""
        until = time.perf_counter() + DEADLINE
        while time.perf_counter() < until:
            status = await self._client.call(methods.STATUS, pb.StatusRequest(), timeout=DEADLINE)
            wanted = pb.ImageStatusRequest(image=pb.ImageSpec(image=IMAGE))
            image = await self._client.call(methods.IMAGE_STATUS, wanted, timeout=DEADLINE)
            if image.HasField("image") and all(condition.status for condition in status.status.conditions):
                return
            await asyncio.sleep(0.05)
        raise CannotMeasure(f"the runtime at {self._runtime.socket} did not get ready")

    async def pods(self, number: int) -> dict[str, float]:
        """Seconds for each step, of so many pods that do it at the same time."""
        configs = [self._config() for _ in range(number)]
        marks = [time.perf_counter()]
        ids = await asyncio.gather(*map(self._run, configs))
        marks.append(time.perf_counter())
        await asyncio.gather(*map(self._start, ids, configs))
        marks.append(time.perf_counter())
        await asyncio.gather(*map(self._stop, ids))
        marks.append(time.perf_counter())
        return {step: marks[at + 1] - marks[at] for at, step in enumerate(STEPS)}

    def _config(self) -> pb.PodSandboxConfig:
        name = f"pod-{next(self._numbers)}"
        return pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
            hostname=name,
            log_directory=str(self._runtime.socket.parent / "logs" / name),
            dns_config=pb.DNSConfig(servers=["10.96.0.10"]),
            linux=pb.LinuxPodSandboxConfig(cgroup_parent=f"/{self._runtime.cgroup_parent}"),
        )

    async def _run(self, config: pb.PodSandboxConfig) -> str:
        made = await self._client.call(
            methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(config=config), timeout=DEADLINE
        )
        return made.pod_sandbox_id

    async def _start(self, id_: str, config: pb.PodSandboxConfig) -> None:
        container = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="main"),
            image=pb.ImageSpec(image=IMAGE),
            command=COMMAND,
            log_path="main.log",
        )
        container.linux.security_context.namespace_options.pid = pb.CONTAINER
        asked = pb.CreateContainerRequest(pod_sandbox_id=id_, config=container, sandbox_config=config)
        made = await self._client.call(methods.CREATE_CONTAINER, asked, timeout=DEADLINE)
        start = pb.StartContainerRequest(container_id=made.container_id)
        await self._client.call(methods.START_CONTAINER, start, timeout=DEADLINE)

    async def _stop(self, id_: str) -> None:
        stop, remove = pb.StopPodSandboxRequest(pod_sandbox_id=id_), pb.RemovePodSandboxRequest(pod_sandbox_id=id_)
        await self._client.call(methods.STOP_POD_SANDBOX, stop, timeout=DEADLINE)
        await self._client.call(methods.REMOVE_POD_SANDBOX, remove, timeout=DEADLINE)
