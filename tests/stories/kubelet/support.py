"""A whole node of real processes in its own namespaces: API server, scheduler, runtime, kubelet; and a kubectl.

Nothing that a story makes outlives the story; after each file nothing is left below the node's prefix.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwire.cniplugins.install import install
from tests.eventually import eventually
from tests.stories.runtime import support as runtimes

PODWIRE = Path(sys.executable).with_name("podwire")
IMAGE = "podwire.local/busybox:latest"
ADDRESS, PORT = "192.0.2.10", 6443
"""The node's, of which its pods reach everything."""
SECONDS = 60.0
"""How long anything may take here; the machine may be busy."""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


class Daemon:
    """A `podwire` command in the node's namespaces; it dies with this process, whatever happens here."""

    def __init__(self, node: "Node", name: str, *words: object) -> None:
        self.log = node.prefix / f"{name}.log"
        self.command = node.space.command(PODWIRE, name, *words)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, **env: str) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(self.command, stdout=log, stderr=log, env={**os.environ, **env})

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        """At once, as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> int:
        assert self._child is not None
        self._child.terminate()
        return self._child.wait(SECONDS)

    def pause(self) -> None:
        """It answers nobody until it is resumed."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)


class Node:
    """One machine that is a whole cluster."""

    podwire = PODWIRE

    def __init__(self, images: Path) -> None:
        self.runtime = runtimes.Runtime(images)
        self.prefix: Path = self.runtime.prefix
        self.space = self.runtime.space
        self.root, self.logs = self.prefix / "var/lib/kubelet", self.prefix / "var/log/pods"
        self.plugins = self.prefix / "opt/cni/bin"
        self.networks = self.prefix / "etc/cni/net.d"
        self.space.output("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        shutil.copytree(runtimes.PLUGINS, self.plugins)
        self.runtime.plugins = [self.plugins]
        data = self.prefix / "api"
        self.kubeconfig = data / "kubeconfig"
        self.flags: list[object] = []
        self.api = Daemon(
            self, "apiserver", "--data-dir", data, "--listen", f"{ADDRESS}:{PORT}", "--store", "memory://"
        )
        self.scheduler = Daemon(self, "scheduler", "--kubeconfig", self.kubeconfig)
        self.kubelet = self._kubelet()

    def use_our_plugins(self) -> None:
        """Instead of the reference ones: these lead ports of the host into pods without iptables."""
        shutil.rmtree(self.plugins)
        install(str(self.plugins), socket=str(self.prefix / "cni.sock"))
        records = str(self.prefix / "attachments")
        network = json.loads(json.dumps(runtimes.NETWORK))
        network["plugins"][0] |= {"dataDir": records, "ipMasq": True}
        network["plugins"].append({"type": "portmap", "capabilities": {"portMappings": True}, "dataDir": records})
        self.runtime.configure(network)

    def _kubelet(self, *flags: object) -> Daemon:
        words = ["--kubeconfig", self.kubeconfig, "--runtime", f"unix://{self.runtime.socket}", "--node-name", "node"]
        words += ["--root-dir", self.root, "--pod-logs-dir", self.logs, "--node-ip", ADDRESS]
        words += ["--cluster-dns", "10.96.0.10", "--cni-dir", self.networks, "--cni-dir", self.plugins]
        return Daemon(self, "kubelet", *words, *flags)

    def start(self, *flags: object) -> None:
        """All of it, until the node is ready; `flags` are the kubelet's."""
        self.kubelet = self._kubelet(*flags)
        self.api.start()
        self.runtime.start()
        self.eventually(lambda: self.kubeconfig.exists() and self.run("get --raw /readyz").returncode == 0)
        self.kubelet.start()
        self.scheduler.start()
        self.eventually(lambda: self.run("get node node").returncode == 0)
        self("wait node/node --for=condition=Ready --timeout=60s")

    def eventually(self, condition: Callable[[], Any], what: object = "") -> Any:
        """Returns the first true result of a condition; fails at once when the API server or the scheduler ended."""

        def checked() -> Any:
            result = condition()
            if not result:
                self._assert_daemons_live()
            return result

        return eventually(checked, SECONDS, interval=0.05, explain=lambda: what() if callable(what) else what)

    def _assert_daemons_live(self) -> None:
        for daemon in (self.api, self.scheduler):
            if daemon.log.exists() and not daemon.alive:
                pytest.fail(f"a daemon ended: {daemon.log.read_text()[-3000:]}")

    def run(self, words: str, *more: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        """One kubectl command; what is `given` to it is an object, or a list of them."""
        text = "" if given is None else json.dumps(given)
        command = [*self.kubectl(words), *more]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, env=self.home, timeout=120, check=False
        )

    def kubectl(self, words: str) -> list[str]:
        program = shutil.which("kubectl") or str(Path(sys.prefix) / "debian/usr/bin/kubectl")
        return self.space.command(program, *shlex.split(words))

    @property
    def home(self) -> dict[str, str]:
        return {"HOME": str(self.prefix), "KUBECONFIG": str(self.kubeconfig), "PATH": os.environ["PATH"], "TZ": "UTC"}

    def __call__(self, words: str, *more: str, given: Any = None) -> str:
        done = self.run(words, *more, given=given)
        assert done.returncode == 0, f"kubectl {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def make(self, *objects: Any) -> None:
        self("create -f -", given={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def get(self, what: str) -> Any:
        return json.loads(self(f"get {what} -o json"))

    def wait(self, what: str, condition: str) -> None:
        self(f"wait {what} --for={condition} --timeout={SECONDS:g}s")

    @contextlib.contextmanager
    def watching(self, words: str) -> Iterator[Iterator[Any]]:
        """A kubectl that goes on until the end of the block; the objects that it prints."""
        child = subprocess.Popen(self.kubectl(words), stdout=subprocess.PIPE, text=True, env=self.home)
        assert child.stdout is not None
        with child:
            try:
                yield _objects(child.stdout)
            finally:
                child.kill()

    def alive(self, pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()

    def exec(self, pod: str, *script: str) -> str:
        """Output of a command in a container, through API server and kubelet."""
        return self(f"exec {pod} --", "sh", "-c", *script)

    def events(self, name: str) -> list[tuple[str, str]]:
        """Of an object, the oldest first."""
        items = self.get(f"events --field-selector involvedObject.name={name}")["items"]
        return [(item["reason"], item["message"]) for item in sorted(items, key=_when)]

    def event_message(self, name: str, reason: str) -> str:
        """The message of an event, once there is one."""
        return str(
            self.eventually(
                lambda: next((said for why, said in self.events(name) if why == reason), None), f"event {reason}"
            )
        )

    def pid(self, name: str) -> int:
        """Of the container of a pod that has one, as the host sees it."""
        id_ = self.get(f"pod {name}")["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return int((self.runtime.state / "runtime/containers" / id_ / "shim/pid").read_text())

    def cri(self, method: str, **fields: Any) -> Any:
        """One call to the runtime by somebody who is not the kubelet."""

        async def call() -> Any:
            async with runtimes.kubelet_of(self.runtime) as cri:
                return await cri(method, **fields)

        return asyncio.run(call())

    def sandboxes(self, name: str) -> list[str]:
        """The ids of what the runtime has for pods of that name."""
        found = self.cri("ListPodSandbox", filter={"label_selector": {"io.kubernetes.pod.name": name}}).items
        return [str(item.id) for item in found]

    def clean(self) -> None:
        """Every pod goes, in the usual way, and then nothing of any is left."""
        self("delete pods --all --grace-period=1 --wait=true")
        self.eventually(lambda: not self.left(), self.left)

    def left(self) -> list[str]:
        """Leftovers of pods: in the runtime's files, and in the kubelet's."""
        daemons = ("podwire", "kubectl")
        of_runtime = [leak for leak in self.runtime.leaks() if not any(f"/{name} " in leak for name in daemons)]
        files = [str(path) for place in (self.root / "pods", self.logs) for path in place.glob("*")]
        return [*(item for item in of_runtime if item != str(self.root / "secrets")), *files]

    def close(self) -> None:
        for daemon in (self.kubelet, self.scheduler, self.api):
            daemon.kill()
        self.runtime.close()

    def logs_of_all(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.prefix.glob("*.log")):
            yield path.name, path.read_text(errors="replace")


def _objects(lines: Iterable[str]) -> Iterator[Any]:
    """JSON objects, each on one line or over several."""
    text = ""
    for line in lines:
        text += line
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(text)
            text = ""


def _when(event: Any) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


running_nodes: list[Node] = []


@contextlib.contextmanager
def running(
    images: Path, *flags: object, our_plugins: bool = False, prepare: Callable[[Node], None] = lambda _: None
) -> Iterator[Node]:
    """A node; at its end nothing of it is left, and no program has failed inside."""
    node = Node(images)
    running_nodes.append(node)
    try:
        if our_plugins:
            node.use_our_plugins()
        prepare(node)
        node.start(*flags)
        yield node
        node.clean()
        assert node.kubelet.stop() == 0
        assert node.scheduler.stop() == 0
        assert node.api.stop() == 0
        assert node.runtime.stop() == 0
        assert node.runtime.leaks() == []
        assert node.runtime.leakcheck() == (0, [])
        for name, text in node.logs_of_all():
            assert "Traceback" not in text, f"{name}:\n{text[-6000:]}"
    finally:
        running_nodes.remove(node)
        node.close()


def pod(name: str, *scripts: str, **spec: Any) -> dict[str, Any]:
    """A pod whose containers run shell scripts; containers may be given in full instead."""
    containers = spec.pop("containers", None) or [
        container(f"c{number}", script) for number, script in enumerate(scripts or (FOREVER,))
    ]
    metadata = {"name": name, **spec.pop("metadata", {})}
    spec = {"terminationGracePeriodSeconds": 5, "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(name: str, script: str = FOREVER, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script], **more}
