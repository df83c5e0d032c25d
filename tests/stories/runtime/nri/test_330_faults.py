"""Plugins that die, stop and come back at every point of a pod's start."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwire.protocols.grpc_status import RpcError, Unavailable
from tests.eventually import eventually_async

PLUGIN = """
import json, os, signal, sys
from podwire.nri import Adjustment, Plugin, main

FILE, POINT, SIGNAL, ONCE = sys.argv[1:5]
del sys.argv[1:5]

class Recorder(Plugin):
    name, index = "recorder", "30"

    def write(self, *words):
        with open(FILE, "a") as file:
            file.write(json.dumps(words) + "\\n")

    def point(self, title, name):
        self.write(title, name)
        if title == POINT and not os.path.exists(ONCE):
            open(ONCE, "w").close()
            os.kill(os.getpid(), int(SIGNAL))

    async def synchronize(self, pods, containers):
        for each in (*pods, *containers):
            self.write("Synchronize", each.name)
        self.point("Synchronize", "")

    async def run_pod_sandbox(self, pod):
        self.point("RunPodSandbox", pod.name)

    async def create_container(self, pod, container):
        self.point("CreateContainer", container.name)
        return Adjustment().add_env("NRI", "yes")

    async def start_container(self, pod, container):
        self.point("StartContainer", container.name)

    async def post_start_container(self, pod, container):
        self.point("PostStartContainer", container.name)

    async def stop_pod_sandbox(self, pod):
        self.write("StopPodSandbox", pod.name)

main(Recorder())
"""

POINTS = ("Synchronize", "RunPodSandbox", "CreateContainer", "StartContainer", "PostStartContainer")
REQUEST_SECONDS = 1.0

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""


class Keeper:
    """Runs the plugin as a process, starts it again when it dies, and lets it go on when it was stopped for long."""

    def __init__(self, prefix: Path, point: str = "", number: int = 0) -> None:
        self._prefix = prefix
        self._file = prefix / "recorder.log"
        script = prefix / "recorder.py"
        script.write_text(PLUGIN)
        once = prefix / "once"
        self._words = [sys.executable, script, self._file, point, str(number), once]
        self._words += ["--socket", prefix / "run/nri/nri.sock"]
        self._child: subprocess.Popen[bytes] | None = None
        self.times = 0

    def start(self) -> None:
        log = (self._prefix / "plugin.log").open("ab")
        with log:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, self._words)], stdout=log, stderr=log
            )
        self.times += 1

    @property
    def state(self) -> str:
        """As the kernel has it: T is stopped, Z has died."""
        assert self._child is not None
        return Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)

    async def keep(self) -> None:
        """Until cancelled."""
        self.start()
        while True:
            await asyncio.sleep(0.05)
            if self.state == "T":
                await asyncio.sleep(REQUEST_SECONDS + 0.5)
                self.signal(signal.SIGCONT)
            elif self.state == "Z":
                self._child.wait()
                await asyncio.sleep(0.3)
                self.start()

    def events(self) -> list[tuple[str, str]]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()


@contextlib.asynccontextmanager
async def kept(keeper):
    task = asyncio.create_task(keeper.keep())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        keeper.close()


def left(runtime):
    """Leftovers of pods; the plugin is not part of it."""
    return [leak for leak in runtime.leaks() if "recorder.py" not in leak]


def configure(runtime, *, required, grace="30s"):
    file = runtime.prefix / "etc/podwire/nri.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    config = {"plugin_request_timeout": f"{REQUEST_SECONDS}s", "grace": grace}
    if required:
        config["default_validator"] = {"required_plugins": ["recorder"]}
    file.write_text(json.dumps(config))


FAULTS = {
    f"{'required' if required else 'wanted'}-{point}-{number.name}": (required, point, number)
    for required in (True, False)
    for point in POINTS
    for number in (signal.SIGKILL, signal.SIGSTOP)
}
SAMPLE = list(FAULTS) if SOAK else sorted(random.Random(SEED).sample(sorted(FAULTS), 6))


@pytest.mark.parametrize("fault", SAMPLE)
async def test_a_plugin_that_fails_anywhere(own, kubelet_of, fault):
    required, point, number = FAULTS[fault]
    configure(own, required=required)
    own.start()
    async with kubelet_of(own) as cri, kept(Keeper(own.prefix, point, number)) as plugin:
        if not required:
            await eventually_async(plugin.events, 30)
        pod = await cri.run(cri.pod_config("web"))
        id_ = await cri.start(pod, name="app")
        env = await cri.said(id_, "echo $NRI")
        if required:
            assert env == "yes\n"

        def knows():
            events = plugin.events()
            pods = ("RunPodSandbox", "web") in events or ("Synchronize", "web") in events
            return pods and (("CreateContainer", "app") in events or ("Synchronize", "app") in events)

        await eventually_async(knows, 40)
        await eventually_async(lambda: (own.prefix / "once").exists() or not required, 20)
        await cri.remove(pod)
        assert left(own) == [], "nothing is left"


async def test_a_pod_without_its_required_plugin_is_refused(own, kubelet_of):
    configure(own, required=True, grace="500ms")
    own.start()
    async with kubelet_of(own) as cri:
        config = cri.pod_config("web")
        error = await cri.refused("RunPodSandbox", config=config)
        assert isinstance(error, Unavailable)
        assert '"recorder" is required for pod default/web' in str(error)
        assert left(own) == []
        host = cri.pod_config("host")
        host.linux.security_context.namespace_options.network = 2
        await cri.run(host)
        async with kept(Keeper(own.prefix)):
            async with asyncio.timeout(40):
                while True:
                    with contextlib.suppress(RpcError):
                        await cri.run(config)
                        break
                    await asyncio.sleep(0.1)
        await cri.remove_all()
        assert left(own) == []


async def test_a_pod_may_name_the_plugins_that_it_needs(own, kubelet_of):
    configure(own, required=False, grace="500ms")
    own.start()
    async with kubelet_of(own) as cri:
        needs = {"required-plugins.noderesource.dev": "[recorder]"}
        error = await cri.refused("RunPodSandbox", config=cri.pod_config("web", annotations=needs))
        assert isinstance(error, Unavailable)
        await cri.run(cri.pod_config("other"))
        await cri.remove_all()


async def test_twenty_pods_start_while_the_plugin_is_stopped(own, kubelet_of):
    configure(own, required=True)
    own.start()
    async with kubelet_of(own) as cri, kept(Keeper(own.prefix)) as plugin:
        await cri.run(cri.pod_config("first"))
        plugin.signal(signal.SIGSTOP)
        pods = await asyncio.gather(*(cri.run(cri.pod_config(f"web-{number}")) for number in range(20)))
        assert len({pod.ip for pod in pods}) == 20

        def known():
            return {name for _, name in plugin.events()} >= {pod.config.metadata.name for pod in pods}

        await eventually_async(known, 40)
        await cri.remove_all()
        assert left(own) == []
        stops = [name for title, name in plugin.events() if title == "StopPodSandbox"]
        assert sorted(stops) == sorted({*stops}), "each stop was reported once"
        assert {pod.config.metadata.name for pod in pods} <= set(stops)
