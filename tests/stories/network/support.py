"""A cluster with the network plugin on its node, and pods whose sockets a story opens itself.

A socket belongs to the namespace in which it was made: both ends of every connection are here, in the story's process.
"""

import json
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from podwire.linux.proc.namespaces import visit
from podwire.nriplugins.network.manifests import Settings, manifests
from podwire.protocols.k8sapi.watch import Object
from podwire.runtime.images.build import ROOT_REFERENCE
from tests.stories.cluster import support as clusters
from tests.stories.pids import host_pid

KUBECONFIG = "/var/lib/podwire/identities/nri-network.kubeconfig"
PAGES = 9745
A_MOMENT = 1.0
"""Seconds after which a connection that is not answered counts as forbidden."""
PATIENCE = 30.0


class Plugin:
    """`podwire nri-network` as a process on the cluster's node."""

    def __init__(self, cluster: Any, log: Path) -> None:
        self._cluster, self.log = cluster, log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: bool = True) -> None:
        words = [clusters.PODWIRE, "node", "exec", "--prefix", self._cluster.prefix, "node-1", "--"]
        words += [clusters.PODWIRE, "nri-network", "--kubeconfig", KUBECONFIG, "--node-name", "node-1"]
        words += ["--listen", f"127.0.0.1:{PAGES}"]
        trace = {"PODWIRE_TRACE": "/run/podwire/trace/trace.sock"}
        with self.log.open("ab") as log:
            command = [
                "env",
                *(f"{name}={value}" for name, value in trace.items()),
                *self._cluster.space.command(*words),
            ]
            self._child = subprocess.Popen(command, stdout=log, stderr=log)
        if ready:
            self._cluster.eventually(lambda: self.page("readyz") == (200, "ok"), "the plugin is ready", self.log_tail)

    def page(self, name: str) -> tuple[int, str]:
        """Status and text of one of its pages; 0 while nobody answers."""
        done: list[tuple[int, str]] = []

        def ask() -> None:
            with visit(self.node):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{PAGES}/{name}", timeout=PATIENCE) as answer:
                        done.append((answer.status, answer.read().decode()))
                except urllib.error.HTTPError as error:
                    done.append((error.code, error.read().decode()))
                except OSError as error:
                    done.append((0, str(error)))

        in_thread(ask)
        return done[0]

    def metric(self, sample: str) -> float:
        """The value of one sample; 0 when there is none."""
        lines = [line.rpartition(" ") for line in self.page("metrics")[1].splitlines()]
        return next((float(value) for name, _, value in lines if name == f"podwire_nri_network_{sample}"), 0.0)

    @property
    def node(self) -> str:
        return f"/proc/{self._cluster.pid('kubelet')}/ns/net"

    def log_tail(self) -> str:
        return self.log.read_text()[-6000:]

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        assert self._child is not None
        self._child.terminate()
        code, self._child = self._child.wait(PATIENCE), None
        return code

    def close(self) -> None:
        self.kill()
        log = self.log.read_text() if self.log.exists() else ""
        assert "Traceback" not in log, log[-6000:]


def in_thread(work: Callable[[], None]) -> None:
    """A thread of its own that may go into namespaces; what it raises is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


class Peer:
    """A pod that runs, as one end of connections."""

    def __init__(self, name: str, pid: int, ips: list[str]) -> None:
        self.name, self.ips, self.ip = name, ips, ips[0]
        self._netns = f"/proc/{pid}/ns/net"
        self._listening: list[socket.socket] = []

    def open(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
        with visit(self._netns):
            return socket.socket(family, kind, protocol)

    def listen(self, *ports: int) -> "Peer":
        """Take connections on all addresses, and say hello."""
        for port in ports:
            listening = self.open(socket.AF_INET6)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind(("::", port))
            listening.listen(64)
            self._listening.append(listening)
            threading.Thread(target=self._serve, args=(listening,), daemon=True).start()
        return self

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=_echo, args=(connection, self.name), daemon=True).start()

    def connect(self, address: str, port: int, within: float = PATIENCE) -> socket.socket:
        opened = self.open(socket.AF_INET6 if ":" in address else socket.AF_INET)
        opened.settimeout(within)
        try:
            opened.connect((address, port))
            opened.recv(64)
        except BaseException:  # an interrupted test leaves no socket either
            opened.close()
            raise
        return opened

    def may(self, other: "Peer | str", port: int, within: float = A_MOMENT) -> bool:
        """Whether a connection is made and answered. What is refused was let through: nobody listens there."""
        address = other.ip if isinstance(other, Peer) else other
        try:
            self.connect(address, port, within).close()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Its sockets would keep its namespace."""
        while self._listening:
            with self._listening.pop() as each:
                each.shutdown(socket.SHUT_RDWR)


def _echo(connection: socket.socket, name: str) -> None:
    with connection:
        try:
            connection.sendall(name.encode())
            while data := connection.recv(4096):
                connection.sendall(data)
        except OSError:
            pass


class Network:
    """The cluster, its plugin, and the pods by name."""

    def __init__(self, cluster: Any, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.plugin = Plugin(cluster, directory / "nri-network.log")
        self._peers: list[Peer] = []

    def up(self, *, plugin: bool = True) -> None:
        self.cluster.up("--network-policy=off")  # the plugin is a process of the story
        self.cluster.apply(*[manifest for manifest in manifests(Settings()) if manifest["kind"] != "DaemonSet"])
        for name in ("podroutes", "podmeshes"):
            self.cluster.output("wait", "--for=condition=Established", f"crd/{name}.net.podwire.dev", "--timeout=60s")
        if plugin:
            self.plugin.start()

    def run(self, *pods: Object) -> dict[str, Peer]:
        """Pods, once they run."""
        self.cluster.apply(*pods)
        return {pod["metadata"]["name"]: self.peer(pod["metadata"]["name"]) for pod in pods}

    def peer(self, name: str) -> Peer:
        """A pod of namespace default or, as NAMESPACE/NAME, of another."""
        namespace, _, bare = name.rpartition("/")

        def running() -> Object | None:
            pod = self.cluster.get("pod", bare, "-n", namespace or "default")
            return pod if pod and clusters.is_ready(pod) else None

        pod = self.cluster.eventually(running, f"{name} runs", lambda: self.events(bare) + self.plugin.log_tail())
        id_ = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("podwire://")
        answer = self.cluster.cri("ContainerStatus", container_id=id_, verbose=True)
        pid = host_pid(self.cluster.pid("runtime"), int(answer.info["pid"]))
        peer = Peer(name, pid, [address["ip"] for address in pod["status"]["podIPs"]])
        self._peers.append(peer)
        return peer

    def events(self, name: str, namespace: str = "default") -> str:
        found = self.cluster.get("events", "-n", namespace, "--field-selector", f"involvedObject.name={name}")
        rows = found["items"] if found else ()
        return "".join(f"{row['reason']}: {row['message']}\n" for row in rows)

    def explained(self, source: str, destination: str, port: object) -> bool:
        """Answer of `podwire policy explain` about a connection; its exit code says the same."""
        done = self.cluster.podwire("policy", "explain", source, destination, port)
        assert done.returncode in (0, 3), done.stderr
        assert done.stdout.startswith("allowed" if done.returncode == 0 else "denied"), done.stdout
        return done.returncode == 0

    def tables(self) -> str:
        """The nft tables of the node."""
        done = subprocess.run(
            ["nsenter", f"--net={self.plugin.node}", "nft", "list", "tables"],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def content(self) -> dict[str, int]:
        """How many elements the sets and maps of policies have."""
        words = ["nsenter", f"--net={self.plugin.node}", "nft", "-j", "list", "table", "inet", "podwire-policy"]
        document = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        sets = [entry.get("set") or entry.get("map") for entry in document["nftables"]]
        return {set_["name"]: len(set_.get("elem", ())) for set_ in sets if set_}

    def left(self) -> dict[str, int]:
        """Like `content`, without what is empty and without the addresses of DNS servers, which stay."""
        words = ("endpointslices", "-n", "kube-system", "-l", "kubernetes.io/service-name=kube-dns")
        servers = self.cluster.output("get", *words, "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}").split()
        counts = self.content()
        for server in set(servers):  # each of its processes has a slice of its own
            counts["identity6" if ":" in server else "identity4"] -= 1
        return {name: count for name, count in counts.items() if count}

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.plugin.close()


def a_pod(name: str, *, labels: dict[str, str] | None = None, namespace: str = "default", **more: Any) -> Object:
    container = {"name": "main", "image": ROOT_REFERENCE, "command": ["sh", "-c", clusters.FOREVER]}
    container |= more.pop("container", {})
    meta = {"name": name, "namespace": namespace, "labels": labels or {}, "annotations": more.pop("annotations", {})}
    common = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**common, **more}}


def a_policy(name: str, spec: str, namespace: str = "default") -> Object:
    """Of a spec in YAML."""
    meta = {"name": name, "namespace": namespace}
    policy = yaml.safe_load(spec)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": policy}


def a_resource(kind: str, name: str, spec: str, namespace: str = "default") -> Object:
    """A PodRoute or PodMesh of a spec in YAML."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "net.podwire.dev/v1", "kind": kind, "metadata": meta, "spec": yaml.safe_load(spec)}
