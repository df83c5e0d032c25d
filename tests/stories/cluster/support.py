"""A whole cluster of processes, in network and mount namespaces of its own that outlive it, below a prefix of its own.

Whatever a story did to it, nothing outlives the story: processes, groups, namespaces, mounts, files, the slot.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.cluster.runtime import Options
from podwire.cluster.up import component_processes
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.proc.mount_namespaces import of_process
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, Unavailable
from podwire.protocols.k8sapi.watch import Object
from podwire.runtime.images.build import ROOT_REFERENCE
from podwire.transports import grpc_client
from tests.eventually import eventually
from tests.stories.pids import host_pid

PODWIRE = Path(sys.executable).with_name("podwire")
PREFIX, OWNER = "pwc-", "owner"
"""How our directories begin, and the file in them that names the test process; a socket's path must be short."""
OURS = {OWNER, ".kube", "boot-id", "copy", "died", "failpoints", "fill"}
"""Files below a prefix that podwire did not make."""
SOON = 90.0
"""Seconds until something that must come true has failed: the machine may be busy with all other tests."""
FOREVER = "trap 'exit 0' TERM; sleep 100000 & wait"
SMALL = 64
"""Megabytes of a disk that is soon full."""


class Space:
    """Network and mount namespaces that live as long as the story; `lo` is up there."""

    def __init__(self, *, boot_id: Path | None = None) -> None:
        steps = ["ip link set lo up"]
        steps += [f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id"] if boot_id else []
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-nm", "sh", "-c"]
        words += [" && ".join([*steps, "echo ready", "exec sleep infinity"])]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"ready\n"
        self.pid = self._child.pid

    def command(self, *words: object) -> list[str]:
        """A command line that runs in here and dies with this process; what it forks does not."""
        entered = ["nsenter", "-t", self.pid, "-n", "-m", "--", *words]
        return list(map(str, ["setpriv", "--pdeathsig", "KILL", *entered]))

    def run(self, *words: object, given: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words),
            input=given,
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
            env={**os.environ, **env},
        )

    def links(self) -> set[str]:
        done = self.run("ip", "-j", "link")
        assert done.returncode == 0, done.stderr
        return {item["ifname"] for item in json.loads(done.stdout)}

    def mounts(self) -> list[str]:
        return mounts_of(self.pid)

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


def mounts_of(pid: int) -> list[str]:
    return [line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]


@dataclass(frozen=True)
class Life:
    """A container of a pod as the runtime has it."""

    pod: str
    name: str
    attempt: int
    id: str
    state: int
    pid: int


class Cluster:
    """`podwire up` below a prefix; its processes can be killed one by one, or all."""

    def __init__(self, *, megabytes: int = 0) -> None:
        """With `megabytes`, on a disk of its own of that size."""
        self.prefix = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        if megabytes:
            KernelMounts().mount("story", self.prefix, "tmpfs", [f"size={megabytes}m", "mode=0755"])
        (self.prefix / OWNER).write_text(str(os.getpid()))
        self.layout = Layout(self.prefix)
        self.program = PODWIRE
        self.space = Space()
        self.initial_mounts: list[str] = []

    # Up and down

    def podwire(self, *words: object, **env: str) -> "subprocess.CompletedProcess[str]":
        return self.space.run(PODWIRE, *words, "--prefix", self.prefix, **env)

    def up(self, *words: str, **env: str) -> str:
        """Bring it up, or up again; what it says."""
        done = self.podwire("up", "--detach", *words, **env)
        assert done.returncode == 0, f"up: {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}"
        self.initial_mounts = self.initial_mounts or self.node_mounts()
        return done.stdout

    def down(self) -> None:
        """Remove it; nothing is left, but for what marks the prefix as ours."""
        done = self.podwire("down")
        assert done.returncode == 0, f"down: {done.returncode}\n{done.stdout}{done.stderr}"
        assert self.left() == []

    def left(self) -> list[str]:
        """Resources after `down` that did not exist before `up`."""
        files = [str(path) for path in self.prefix.iterdir() if path.name not in OURS]
        links = [link for link in self.space.links() if link != "lo"]
        mounts = [mount for mount in self.space.mounts() if mount.startswith(f"{self.prefix}/")]
        processes = [f"{name} {pid}" for pid, name in component_processes.components(self.layout).items()]
        slots = [f"slot {item}" for item in SlotClaims().of(self.prefix)]
        tables = self.space.run("nft", "list", "tables").stdout.split("\n")
        tables = [table for table in tables if table.startswith("table inet podwire-up")]
        return [*files, *links, *mounts, *processes, *slots, *tables, *self.groups()]

    def logs(self, size: int = 3000) -> str:
        found = sorted(self.layout.logs.glob("*.log")) if self.layout.logs.is_dir() else []
        return "\n".join(f"=== {item.name}\n{item.read_text(errors='replace')[-size:]}" for item in found)

    def tracebacks(self) -> str:
        found = [path.read_text(errors="replace") for path in self.layout.logs.glob("*.log")]
        return "\n".join(item[item.index("Traceback") :][:4000] for item in found if "Traceback" in item)

    # Processes

    def status(self) -> dict[str, Any]:
        done = self.podwire("status", "-o", "json")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def components(self) -> dict[str, dict[str, Any]]:
        return {component["name"]: component for component in self.notes()["components"]}

    def notes(self) -> dict[str, Any]:
        """The supervisor's record, read without a program."""
        found: dict[str, Any] = json.loads(self.layout.status.read_bytes())
        return found

    def pid(self, component: str) -> int:
        """Of a component that runs."""
        if component == "supervisor":
            return int(self.notes()["pid"])
        return int(self.eventually(lambda: self.components()[component]["pid"], f"{component} runs"))

    def restarts(self, component: str) -> int:
        return int(self.components()[component]["restarts"])

    def signal(self, component: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(component), number)

    def kill(self, pid: int) -> None:
        kill([pid])

    def is_up(self) -> bool:
        return all(component["ready"] for component in self.components().values())

    def processes(self) -> dict[int, str]:
        """Supervisor and components that live, no matter who started them."""
        return component_processes.components(self.layout)

    def kill_everything(self) -> None:
        """Supervisor and components at once; containers and their shims go on."""
        pids = [
            self.pid("supervisor"),
            *(component["pid"] for component in self.components().values() if component["pid"]),
        ]
        kill(pids)
        self.eventually(lambda: not self.processes(), "all components are gone")

    def reboot(self) -> None:
        """Simulates a reboot: no process goes on, namespaces and their mounts and links are gone, and so is /run."""
        shims, groups = self.residents(), group_of(self.prefix)
        self.kill_everything()
        kill(shims)
        cgroups = KernelCgroups()
        cgroups.kill(groups)
        cgroups.remove(groups)
        self.space.close()
        shutil.rmtree(self.prefix / "run")
        (self.prefix / "boot-id").write_text(f"{uuid.uuid4()}\n")
        self.space = Space(boot_id=self.prefix / "boot-id")
        self.initial_mounts = []

    def residents(self) -> list[int]:
        """Processes in the node's namespaces beside kubelet and runtime: shims, hooks and plugins."""
        own = {component["pid"] for component in self.components().values()}
        kubelet = self.pid("kubelet")
        inodes = {(kind, of_process(kubelet, kind)) for kind in ("net", "mnt")}
        return [resident for resident in component_processes.residents(inodes) if resident not in own]

    def node_mounts(self) -> list[str]:
        return mounts_of(self.pid("kubelet"))

    def groups(self) -> list[str]:
        return KernelCgroups().below(group_of(self.prefix))

    # The API server

    def kubectl(self, *words: object, given: str = "") -> "subprocess.CompletedProcess[str]":
        env = {"KUBECONFIG": str(self.layout.kubeconfig), "HOME": str(self.prefix)}
        return self.space.run("kubectl", *words, given=given, **env)

    def copy_kubeconfig(self) -> Path:
        """As a person does who keeps it elsewhere."""
        return Path(shutil.copy(self.layout.kubeconfig, self.prefix / "copy"))

    def output(self, *words: object, given: str = "") -> str:
        done = self.kubectl(*words, given=given)
        assert done.returncode == 0, f"kubectl {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """All at once; again as long as the server is away, which is what a client does whose answer was lost."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.eventually(lambda: self.kubectl("apply", "-f", "-", given=text).returncode == 0, "applied")

    @contextlib.contextmanager
    def applying(self, *objects: Object) -> Iterator[None]:
        """As `apply`, while the context's work is done."""
        with ThreadPoolExecutor(1) as thread:
            applied = thread.submit(self.apply, *objects)
            yield
            applied.result()

    def get(self, *words: object) -> Any:
        """The object or list; None while the server is away or has none."""
        done = self.kubectl("get", *words, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def pods(self) -> dict[str, Object] | None:
        """By name; None while the server is away."""
        found = self.get("pods")
        return None if found is None else {item["metadata"]["name"]: item for item in found["items"]}

    def running(self, count: int) -> dict[str, Object]:
        """The pods once so many are, and all are ready."""

        def ready() -> dict[str, Object] | None:
            found = self.pods()
            return found if found is not None and len(found) == count and all(map(is_ready, found.values())) else None

        found: dict[str, Object] = self.eventually(ready, f"{count} pods are ready", self.describe_pods)
        return found

    def delete(self, *names: str) -> None:
        """Without waiting until they are gone; again as long as the server is away."""
        words = ("delete", "pods", *names, "--wait=false", "--ignore-not-found")
        self.eventually(lambda: self.kubectl(*words).returncode == 0, f"{names} are deleted")

    def delete_all(self) -> None:
        """All pods; again as long as the server is away."""
        self.eventually(lambda: self.kubectl("delete", "pods", "--all", "--wait=false").returncode == 0, "deleted")
        self.eventually(lambda: self.pods() == {}, "all pods are gone", self.describe_pods)

    def describe_pods(self) -> str:
        seen = [
            f"{container.pod} {container.name} attempt {container.attempt} state {container.state}"
            for container in self.containers()
        ]
        return self.kubectl("get", "pods", "-o", "wide").stdout + "\n".join(seen)

    def node(self) -> dict[str, Any]:
        """The node's Ready condition."""
        found = self.get("nodes", "node-1")
        conditions = found["status"]["conditions"] if found else []
        return next((condition for condition in conditions if condition["type"] == "Ready"), {})

    # The runtime

    def cri(self, method: str, **fields: Any) -> Any:
        """One call by its bare name; again as long as the runtime is away."""
        found = next(known for known in methods.ALL if known.name.endswith(f"/{method}") or known.name == method)

        async def call() -> Any:
            async with grpc_client.connect(self.layout.runtime_socket) as client:
                return await client.call(found, found.request(**fields), timeout=SOON)

        answers = []

        def answered() -> bool:
            with contextlib.suppress(Unavailable):
                answers.append(asyncio.run(call()))
            return bool(answers)

        self.eventually(answered, f"the runtime answers {method}")
        return answers[0]

    def sandboxes(self, *, ready: bool = False) -> dict[str, list[str]]:
        """The ids of all sandboxes, or of those that are ready, by the name of their pod."""
        found: dict[str, list[str]] = {}
        for item in self.cri("ListPodSandbox").items:
            if ready and item.state != pb.SANDBOX_READY:
                continue
            found.setdefault(item.metadata.name, []).append(item.id)
        return found

    def containers(self) -> list[Life]:
        """All, also those that ended."""
        found = []
        for container in self.cri("ListContainers").containers:
            try:
                answer = self.cri("ContainerStatus", container_id=container.id, verbose=True)
            except NotFound:
                continue  # removed meanwhile
            on_node = int(answer.info.get("pid", "0")) if answer.status.state == pb.CONTAINER_RUNNING else 0
            pid = self._host_pid(on_node) if on_node else 0
            pod = answer.status.labels["io.kubernetes.pod.name"]
            meta = answer.status.metadata
            found.append(Life(pod, meta.name, meta.attempt, container.id, answer.status.state, pid))
        return found

    def _host_pid(self, on_node: int) -> int:
        """The number of a process on this machine; without a supervisor, the runtime is on no node."""
        return host_pid(self.pid("runtime"), on_node) if self.layout.status.exists() else on_node

    def pids(self) -> dict[str, int]:
        """Of running containers, by their id."""
        return {container.id: container.pid for container in self.containers() if container.pid}

    def leases(self) -> set[str]:
        directory = self.layout.state / "cni/networks/podwire"
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        return {name for name in names if is_address(name)}

    # What must hold

    def once(self, pods: dict[str, Object]) -> dict[str, int]:
        """Each pod runs exactly once: one sandbox, one container never restarted, one address, all different.

        The processes of the containers, by id.
        """

        def settled() -> list[Life] | None:
            sandboxes, containers = self.sandboxes(), self.containers()
            one_each = all(len(sandbox) == 1 for sandbox in sandboxes.values()) and sandboxes.keys() == pods.keys()
            return containers if one_each and len(containers) == len(pods) else None

        containers: list[Life] = self.eventually(
            settled, "one sandbox and one container for each pod", self.describe_pods
        )
        assert {container.pod for container in containers} == pods.keys()
        assert all(container.state == pb.CONTAINER_RUNNING and container.pid for container in containers)
        statuses = {name: pod["status"]["containerStatuses"][0] for name, pod in pods.items()}
        assert {name: status["restartCount"] for name, status in statuses.items()} == dict.fromkeys(pods, 0)
        assert {container.pod: f"podwire://{container.id}" for container in containers} == {
            name: status["containerID"] for name, status in statuses.items()
        }
        self.addressed(pods)
        return {container.id: container.pid for container in containers}

    def addressed(self, pods: dict[str, Object]) -> None:
        """The addresses that are leased are those of the pods, and all are different."""
        addresses = [ip["ip"] for pod in pods.values() for ip in pod["status"]["podIPs"]]
        assert len(addresses) == len(set(addresses)) >= len(pods), "two pods have the same address"
        assert self.leases() == set(addresses)

    def leaks(self) -> list[str]:
        """Leftovers of pods on a cluster that has none."""
        places = [self.prefix / "run/netns", self.layout.run / "ipcns", self.layout.run / "shm"]
        places += [self.layout.run / "crun", self.prefix / "var/lib/kubelet/pods", self.prefix / "var/log/pods"]
        places += [self.layout.state / name for name in ("runtime/sandboxes", "runtime/containers")]
        places += [self.layout.state / name for name in ("cni/cache", "cni/checks")]
        places += [self.layout.state / "images/containers"]
        files = [str(path) for place in places for path in place.glob("*")]
        mounts = [mount for mount in self.node_mounts() if mount not in self.initial_mounts]
        mounts = [mount for mount in mounts if not mount.endswith("/runtime/containers")]
        others = [resident for resident in self.residents() if resident != host_pid(self.pid("kubelet"), 1)]
        residents = [f"process {resident}: {command_of(resident)}" for resident in others]
        return [*files, *mounts, *residents, *self.leases(), *self.groups()]

    def leakcheck(self) -> list[dict[str, str]]:
        done = self.podwire("leakcheck", "-o", "json")
        assert done.stdout, done.stderr
        found: list[dict[str, str]] = json.loads(done.stdout)
        return found

    def empty(self) -> None:
        """No pod, and nothing that any pod had; what the kernel frees a moment later is waited for."""
        self.eventually(lambda: not self.leaks(), "nothing is left of the pods", lambda: "\n".join(self.leaks()))
        assert self.leakcheck() == []

    def eventually(self, condition: Callable[[], Any], what: str, more: Callable[[], str] = str) -> Any:
        """Returns the first true result of a condition; a failure names the condition, and what `more` reports."""
        return eventually(condition, SOON, interval=0.05, explain=lambda: f"never: {what}\n{more()}")

    def close(self) -> None:
        """Sweep, whatever happened."""
        sweep(self.prefix)
        self.space.close()


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "gone"


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and pod["status"]["phase"] == "Running" and bool(pod["status"].get("podIP"))


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def group_of(prefix: Path) -> str:
    """The cgroup above all containers of a cluster."""
    return Options(socket=prefix, prefix=prefix).cgroup_parent


def sweep(prefix: Path) -> None:
    """End and remove all that was made below a prefix; again and again, as the dying may still make something."""
    layout, cgroups, parent = Layout(prefix), KernelCgroups(), group_of(prefix)
    with contextlib.suppress(OSError, ValueError, KeyError):
        kill([json.loads(layout.status.read_bytes())["pid"]])
    components = component_processes.components(layout)
    inodes = {
        ("mnt", of_process(component, "mnt"))
        for component, name in components.items()
        if name in ("runtime", "kubelet")
    }
    kill(list(components))
    kill(component_processes.residents(inodes))
    kill(component_processes.residents(_shims_of(prefix)))
    cgroups.kill(parent)
    cgroups.remove(parent)
    SlotClaims().release(prefix)
    if KernelMounts().is_mounted(prefix):
        KernelMounts().unmount(prefix, lazily=True)
    _remove(prefix)


def _shims_of(prefix: Path) -> set[tuple[str, int]]:
    """The mount namespaces, of shims or of a node's init, in which the prefix's state is at its standard place."""
    found = set()
    state = prefix / "var/lib/podwire/runtime"
    wanted = state.stat() if state.exists() else None
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes()
            if (b"podwire-shim" in words or words.startswith(b"sleep")) and wanted is not None:
                seen = (path / "root/var/lib/podwire/runtime").stat()
                if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.add(("mnt", of_process(int(path.name), "mnt")))
    return found


def _remove(prefix: Path) -> None:
    """Retries, because the kernel releases mounts below the prefix a moment later."""

    def removed() -> bool:
        shutil.rmtree(prefix, ignore_errors=True)
        return not prefix.exists()

    eventually(removed, 20, interval=0.05, explain=lambda: f"left below {prefix}: {list(prefix.rglob('*'))[:20]}")


def sweep_orphans() -> None:
    """After runs that were killed themselves: whose process is gone, nobody else will sweep."""
    for owner in Path("/tmp").glob(f"{PREFIX}*/{OWNER}"):
        with contextlib.suppress(FileNotFoundError):  # another worker does the same
            if not Path("/proc", owner.read_text()).exists():
                sweep(owner.parent)


def a_pod(name: str, command: str = FOREVER, **spec: Any) -> Object:
    """Of the image that every cluster has; it ends as soon as it is asked to."""
    container = {"name": "main", "image": ROOT_REFERENCE, "command": ["sh", "-c", command]}
    container |= spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "automountServiceAccountToken": False, **spec},
    }
