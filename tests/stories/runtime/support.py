"""A container runtime as a process, in network and mount namespaces of its own that outlive it, and a kubelet's hands.

Nothing that a story makes outlives the story: processes, groups, mounts and files are found by the prefix.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from podwire.cluster.runtime import Options
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.runtime.images import build
from podwire.transports import grpc_client
from tests.eventually import eventually, eventually_async

PODWIRE = Path(sys.executable).with_name("podwire")
PLUGINS = Path("/usr/lib/cni")
PREFIX, OWNER = "pw-", "owner"
"""How our directories begin, and the file in them that names the test process; a socket's path must be short."""
IMAGE = build.ROOT_REFERENCE
START_SECONDS = 20.0
CALL_SECONDS = 30.0
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "story",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "story0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}


class Space:
    """Network and mount namespaces that live as long as the story; `lo` is up there."""

    def __init__(self) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c"]
        words += ["ip link set lo up && echo ready && exec sleep infinity"]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        self.pid = self._child.pid

    def command(self, *words: object) -> list[str]:
        """A command line that runs in here and dies with this process."""
        entered = ["nsenter", "-t", self.pid, "-n", "-m", "--", *words]
        return list(map(str, ["setpriv", "--pdeathsig", "KILL", *entered]))

    def output(self, *words: object) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def mounts(self) -> list[str]:
        return [line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]

    def links(self) -> set[str]:
        return {item["ifname"] for item in json.loads(self.output("ip", "-j", "link"))}

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


def _is_address(name: str) -> bool:
    """Other entries of a lease directory are of owners, and may begin with a digit, too."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Runtime:
    """`podwire runtime` below a prefix of its own. Can be killed and started again; its pods go on meanwhile."""

    def __init__(self, template: Path) -> None:
        self.prefix = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        (self.prefix / OWNER).write_text(str(os.getpid()))
        self.socket = self.prefix / "cri.sock"
        self.log = self.prefix / "runtime.log"
        self.state = self.prefix / "var/lib/podwire"
        self.options = Options(socket=self.socket, prefix=self.prefix)
        self.plugins = [PLUGINS]
        self.flags: list[str] = []
        self.space = Space()
        self._child: subprocess.Popen[bytes] | None = None
        self.state.mkdir(parents=True)
        shutil.copytree(template, self.state / "images", symlinks=True)
        self.configure(NETWORK)

    def configure(self, network: dict[str, Any]) -> None:
        """The network that pods are attached to; leases lie below the prefix."""
        text = json.loads(json.dumps(network))
        for plugin in text["plugins"]:
            if plugin.get("ipam", {}).get("type") == "host-local":
                plugin["ipam"]["dataDir"] = str(self.prefix / "leases")
        directory = self.prefix / "etc/cni/net.d"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "10-story.conflist").write_text(json.dumps(text))

    def start(self, *, within: float = START_SECONDS, **env: str) -> None:
        words = [PODWIRE, "runtime", "--prefix", self.prefix, "--socket", self.socket]
        for plugin in self.plugins:
            words += ["--cni-bin-dir", plugin]
        words += self.flags
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.space.command(*words), stdout=log, stderr=log, env={**os.environ, **env}
            )
        eventually(self._listens, within, interval=0.01, explain=lambda: self.log.read_text()[-4000:])

    def _listens(self) -> bool:
        if not self.alive:
            pytest.fail(f"the runtime ended:\n{self.log.read_text()[-4000:]}")
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def wait(self, within: float = 10.0) -> int:
        assert self._child is not None
        return self._child.wait(within)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> int:
        assert self._child is not None
        self._child.terminate()
        return self._child.wait(15)

    def restart(self, **env: str) -> None:
        self.kill()
        self.start(**env)

    def processes(self) -> dict[int, str]:
        """All processes that have the prefix in their command line, but for the runtime itself."""
        return {pid: line for pid, line in named_by(self.prefix).items() if pid != getattr(self._child, "pid", 0)}

    def groups(self) -> list[str]:
        return KernelCgroups().below(self.options.cgroup_parent)

    def leases(self) -> list[str]:
        directory = self.prefix / "leases/story"
        names = [path.name for path in directory.iterdir()] if directory.exists() else []
        return [name for name in names if _is_address(name)]

    def leaks(self) -> list[str]:
        """Leftovers of pods, in readable words: none, once all are removed."""
        pinned = [
            str(path)
            for name in ("run/netns", "run/podwire/ipcns", "run/podwire/pidns")
            for path in (self.prefix / name).glob("*")
        ]
        mounts = [mount for mount in self.space.mounts() if mount.startswith(str(self.prefix)) and mount not in pinned]
        veths = [link for link in self.space.links() if link.startswith("veth")]
        folders = ("runtime/sandboxes", "runtime/containers", "cni/cache", "images/containers")
        files = [str(path) for name in folders for path in (self.state / name).glob("*")]
        files += [str(path) for path in (self.prefix / "run/podwire/shm").glob("*")]
        files += [str(path) for path in (self.prefix / "run/podwire/crun").glob("*")]
        processes = [f"process {pid}: {line}" for pid, line in self.processes().items()]
        mounts = [mount for mount in mounts if mount != str(self.state)]
        return [*pinned, *mounts, *veths, *files, *self.leases(), *self.groups(), *processes]

    def leakcheck(self) -> tuple[int, list[dict[str, str]]]:
        """Exit code and list of `podwire leakcheck`."""
        words = self.space.command(PODWIRE, "leakcheck", "--prefix", self.prefix, "-o", "json")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def close(self) -> None:
        """Sweep, whatever happened."""
        self.kill()
        sweep(self.prefix)
        self.space.close()


def named_by(prefix: Path) -> dict[int, str]:
    """All processes that have a prefix in their command line."""
    found = {}
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if str(prefix) in line:
                found[int(path.name)] = line
    return found


def sweep(prefix: Path) -> None:
    """End and remove all that was made below a prefix."""
    cgroups, parent = KernelCgroups(), Options(socket=prefix, prefix=prefix).cgroup_parent
    cgroups.kill(parent)
    for pid in named_by(prefix):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cgroups.remove(parent)
    shutil.rmtree(prefix)


def sweep_orphans() -> None:
    """After runs that were killed themselves: whose process is gone, nobody else will sweep."""
    for owner in Path("/tmp").glob(f"{PREFIX}*/{OWNER}"):
        if not Path("/proc", owner.read_text()).exists():
            with contextlib.suppress(FileNotFoundError):  # another worker does the same
                sweep(owner.parent)


@dataclass
class Pod:
    """A sandbox that was run."""

    id: str
    config: pb.PodSandboxConfig
    ip: str
    containers: list[str] = field(default_factory=list)


class Kubelet:
    """The calls of CRI as a kubelet makes them, with less to write."""

    def __init__(self, client: grpc_client.GrpcClient, runtime: Runtime) -> None:
        self._client = client
        self.runtime = runtime
        self._count = 0

    async def __call__(self, method: str, request: Any = None, *, seconds: float = CALL_SECONDS, **fields: Any) -> Any:
        """One call by its bare name: `cri("StopPodSandbox", pod_sandbox_id=…)`."""
        found = next(known for known in methods.ALL if known.name.endswith(f"/{method}") or known.name == method)
        return await self._client.call(found, request or found.request(**fields), timeout=seconds)

    async def refused(self, method: str, request: Any = None, **fields: Any) -> RpcError:
        """The error of a call that must fail."""
        with pytest.raises(RpcError) as raised:
            await self(method, request, **fields)
        return raised.value

    def pod_config(self, name: str = "", **fields: Any) -> pb.PodSandboxConfig:
        self._count += 1
        name = name or f"pod-{self._count}"
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
            hostname=name,
            log_directory=str(self.runtime.prefix / "logs" / name),
            labels={"io.kubernetes.pod.name": name},
        )
        config.MergeFrom(pb.PodSandboxConfig(**fields))
        return config

    async def run(self, config: pb.PodSandboxConfig | None = None, **fields: Any) -> Pod:
        config = config or self.pod_config(**fields)
        made = await self("RunPodSandbox", config=config)
        status = await self("PodSandboxStatus", pod_sandbox_id=made.pod_sandbox_id)
        return Pod(made.pod_sandbox_id, config, status.status.network.ip)

    def container_config(self, *command: str, name: str = "main", **fields: Any) -> pb.ContainerConfig:
        """A container of the busybox image; `sh -c` for one word."""
        words = list(command) if len(command) > 1 else ["sh", "-c", *(command or (FOREVER,))]
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name),
            image=pb.ImageSpec(image=IMAGE),
            command=words,
            log_path=f"{name}/0.log",
        )
        config.linux.security_context.namespace_options.pid = pb.CONTAINER
        config.MergeFrom(pb.ContainerConfig(**fields))
        return config

    async def create(self, pod: Pod, config: pb.ContainerConfig) -> str:
        made = await self("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        pod.containers.append(made.container_id)
        return str(made.container_id)

    async def start(self, pod: Pod, *command: str, config: pb.ContainerConfig | None = None, **fields: Any) -> str:
        """Create and start; the container's id."""
        id_ = await self.create(pod, config or self.container_config(*command, **fields))
        await self("StartContainer", container_id=id_)
        return id_

    async def status(self, id_: str) -> pb.ContainerStatus:
        return (await self("ContainerStatus", container_id=id_)).status

    async def pid(self, id_: str) -> int:
        return int((await self("ContainerStatus", container_id=id_, verbose=True)).info["pid"])

    async def ended(self, id_: str, within: float = 20.0) -> pb.ContainerStatus:
        """The status of a container once it has exited."""

        async def exited() -> pb.ContainerStatus | None:
            status = await self.status(id_)
            return status if status.state == pb.CONTAINER_EXITED else None

        return await eventually_async(exited, within)

    async def exec(self, id_: str, *command: str, seconds: int = 10) -> pb.ExecSyncResponse:
        words = list(command) if len(command) > 1 else ["sh", "-c", *command]
        return await self("ExecSync", container_id=id_, cmd=words, timeout=seconds)

    async def said(self, id_: str, *command: str) -> str:
        """Output of a command in a container; it must succeed."""
        done = await self.exec(id_, *command)
        assert done.exit_code == 0, done
        return str(done.stdout.decode())

    async def remove(self, pod: Pod) -> None:
        await self("StopPodSandbox", pod_sandbox_id=pod.id)
        await self("RemovePodSandbox", pod_sandbox_id=pod.id)

    async def remove_all(self) -> None:
        for item in (await self("ListPodSandbox")).items:
            await self("StopPodSandbox", pod_sandbox_id=item.id)
            await self("RemovePodSandbox", pod_sandbox_id=item.id)

    def events(self) -> AsyncIterator[pb.ContainerEventResponse]:
        return self._client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())


@contextlib.asynccontextmanager
async def kubelet_of(runtime: Runtime) -> AsyncIterator[Kubelet]:
    async with grpc_client.connect(runtime.socket) as client:
        yield Kubelet(client, runtime)
