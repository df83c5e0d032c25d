"""kubectl logs, exec, attach, cp, port-forward and run: through the API server and the kubelet into real containers."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import queue
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.transports import grpc_client
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
OLD = Path(sys.prefix) / "debian/usr/bin/kubectl"
IMAGE = "podwire.local/busybox:latest"
SOON = 60.0


class Cluster:
    """`podwire up` below a prefix of its own."""

    def __init__(self) -> None:
        self.prefix = Path(tempfile.mkdtemp(prefix="pwk-", dir="/tmp"))
        self.kubeconfig = self.prefix / "var/lib/podwire/kubeconfig"

    def podwire(self, *words: str) -> str:
        done = subprocess.run(
            [PODWIRE, *words, "--prefix", self.prefix], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"podwire {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def tracebacks(self) -> str:
        texts = [path.read_text() for path in (self.prefix / "var/log/podwire").glob("*.log")]
        return "\n".join(text[-3000:] for text in texts if "Traceback" in text)

    def kubectl(
        self, *words: str, given: bytes = b"", program: str = "kubectl"
    ) -> "subprocess.CompletedProcess[bytes]":
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.prefix)}
        return subprocess.run([program, *words], input=given, capture_output=True, timeout=SOON, env=env, check=False)

    def output(self, *words: str, given: bytes = b"", program: str = "kubectl") -> str:
        done = self.kubectl(*words, given=given, program=program)
        assert done.returncode == 0, f"kubectl {words}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done.stdout.decode()

    def refused(self, *words: str, program: str = "kubectl") -> str:
        done = self.kubectl(*words, program=program)
        assert done.returncode != 0, f"kubectl {words} did not fail\n{done.stdout!r}"
        return done.stderr.decode().strip()

    def background(self, *words: str, program: str = "kubectl") -> "subprocess.Popen[bytes]":
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.prefix)}
        return subprocess.Popen(
            [program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.podwire("up", "--detach", "--store", "memory://")
        yield made
        assert made.tracebacks() == ""
    finally:
        made.podwire("down")
        shutil.rmtree(made.prefix)


class Pod:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def logs(self, *words: str) -> str:
        return self.cluster.output("logs", self.name, *words)

    def exec(self, *words: str, given: bytes = b"", program: str = "kubectl") -> "subprocess.CompletedProcess[bytes]":
        return self.cluster.kubectl("exec", "-i", self.name, "--", *words, given=given, program=program)

    def until(self, path: str, value: str) -> None:
        self.cluster.output("wait", f"pod/{self.name}", f"--for=jsonpath={{{path}}}={value}", f"--timeout={SOON:g}s")


@pytest.fixture
def start(cluster):
    """`start("sh script", …)` is a pod whose containers run; they are gone after the test."""
    names = []

    def run(*scripts, wait=True, restart="Never", shared_processes=False, **fields):
        name = f"pod-{uuid.uuid4().hex[:8]}"
        containers = [
            {
                "name": f"c{number}",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                **fields,
            }
            for number, script in enumerate(scripts)
        ]
        spec = {"containers": containers, "restartPolicy": restart, "terminationGracePeriodSeconds": 1}
        spec |= {"shareProcessNamespace": True} if shared_processes else {}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        cluster.output("create", "-f", "-", given=json.dumps(pod).encode())
        names.append(name)
        if wait:
            cluster.output("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={SOON:g}s")
        return Pod(cluster, name)

    yield run
    if names:
        cluster.output("delete", "pod", *names, "--grace-period=0", "--force", "--ignore-not-found")


@pytest.fixture
def kubectl(kubectl_program: Path) -> str:
    """One of several, old and new: those up to 1.29 speak SPDY, the newer ones WebSockets."""
    assert kubectl_program.exists(), f"{kubectl_program} is not here; run scripts/setup"
    return str(kubectl_program)


class Lines:
    """Output of a program, line by line."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._child = child
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._child.stdout:
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    def next(self) -> str | None:
        """None at the end."""
        return self._lines.get(timeout=SOON)

    def beyond(self, hint: str) -> str | None:
        """The next line that does not begin so."""
        while (line := self.next()) is not None and line.startswith(hint):
            pass
        return line


@contextlib.contextmanager
def lines(child: "subprocess.Popen[bytes]") -> Iterator[Lines]:
    with child:
        try:
            yield Lines(child)
        finally:
            child.kill()


SLEEP = "exec sleep 600"
WAIT = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def test_logs_show_the_output_of_containers(start):
    pod = start(f"echo one; echo two >&2; {SLEEP}", f"echo other; {SLEEP}")
    assert sorted(pod.logs("-c", "c0").splitlines()) == ["one", "two"]
    assert pod.logs("-c", "c1", "--tail=1") == "other\n"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z other\n", pod.logs("-c", "c1", "--timestamps"))
    assert pod.logs("-c", "c1", "--limit-bytes=3") == "oth"
    assert pod.logs("-c", "c1", "--since=1h") == "other\n"
    assert pod.logs("-c", "c1", "--since-time=2099-01-01T00:00:00Z") == ""
    everybody = pod.logs("--all-containers", "--prefix")
    assert f"[pod/{pod.name}/c1] other" in everybody
    assert f"[pod/{pod.name}/c0] one" in everybody


def test_logs_of_a_run_before(start):
    pod = start(
        "[ -e /dev/shm/again ] && echo second && exec sleep 600; touch /dev/shm/again; echo first", restart="Always"
    )
    pod.until(".status.containerStatuses[0].restartCount", "1")
    pod.until(".status.containerStatuses[0].ready", "true")
    assert (pod.logs("--previous"), pod.logs()) == ("first\n", "second\n")


def test_missing_logs_are_explained(start, cluster):
    pod = start(SLEEP)
    assert cluster.refused("logs", pod.name, "--previous") == (
        f'Error from server (BadRequest): previous terminated container "c0" in pod "{pod.name}" not found'
    )
    bare = start("true", wait=False, image="example.invalid/none:1")
    bare.until(".status.containerStatuses[0].state.waiting.reason", "ErrImageNeverPull")
    assert cluster.refused("logs", bare.name) == (
        f'Error from server (BadRequest): container "c0" in pod "{bare.name}" is waiting to start: ErrImageNeverPull'
    )


def test_logs_follow_every_line_until_the_end(start, cluster):
    pod = start(WAIT)
    with lines(cluster.background("logs", "-f", pod.name)) as heard:
        for word in ("one", "two", "end"):
            assert pod.exec("sh", "-c", f"echo {word} > /proc/1/fd/1").returncode == 0
            assert heard.next() == word
        assert pod.exec("kill", "1").returncode == 0
        assert heard.next() is None


async def test_logs_follow_across_rotation(start, cluster):
    pod = start("i=0; while :; do echo $((i=i+1)); sleep 0.05; done")
    with lines(cluster.background("logs", "-f", pod.name)) as heard:
        assert await asyncio.to_thread(heard.next) == "1"
        await rotate(cluster, pod)
        await rotate(cluster, pod)
        for number in range(2, 60):
            assert await asyncio.to_thread(heard.next) == str(number)
    assert pod.logs().splitlines()[:3] == ["1", "2", "3"], "what was rotated away is still read"


async def rotate(cluster, pod):
    """As a kubelet does when a log has grown large."""
    async with grpc_client.connect(cluster.prefix / "run/podwire/cri.sock") as cri:
        request = pb.ListContainersRequest()
        request.filter.label_selector["io.kubernetes.pod.name"] = pod.name
        [container] = (await cri.call(methods.LIST_CONTAINERS, request, timeout=SOON)).containers
        status = await cri.call(
            methods.CONTAINER_STATUS, pb.ContainerStatusRequest(container_id=container.id), timeout=SOON
        )
        log = cluster.prefix / status.status.log_path.lstrip("/")  # as it is seen from outside the node
        await asyncio.to_thread(log.rename, f"{log}.{time.time_ns()}")
        reopen = pb.ReopenContainerLogRequest(container_id=container.id)
        await cri.call(methods.REOPEN_CONTAINER_LOG, reopen, timeout=SOON)


def test_a_command_runs_in_the_container(start, kubectl):
    pod = start(SLEEP)
    done = pod.exec("sh", "-c", "echo out; echo err >&2; hostname; exit 7", program=kubectl)
    assert (done.returncode, done.stdout) == (7, f"out\n{pod.name}\n".encode())
    assert done.stderr.startswith(b"err\n")
    assert pod.exec("cat", given=b"input to its end", program=kubectl).stdout == b"input to its end"


def test_much_goes_in_and_out(start, tmp_path, cluster, kubectl):
    pod = start(SLEEP)
    data = os.urandom(3_000_000)
    assert pod.exec("cat", given=data, program=kubectl).stdout == data
    (tmp_path / "there").write_bytes(data)
    cluster.output("cp", str(tmp_path / "there"), f"{pod.name}:/dev/shm/copy", program=kubectl)
    cluster.output("cp", f"{pod.name}:/dev/shm/copy", str(tmp_path / "back"), program=kubectl)
    assert (tmp_path / "back").read_bytes() == data


def sized(rows: int, columns: int) -> str:
    """Waits until the terminal has this size."""
    return f"until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.05; done; echo {rows} rows"


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_terminal(start, cluster, kubectl):
    pod = start(SLEEP)
    ours, theirs = pty.openpty()
    resize(theirs, 33, 77)
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.prefix)}
    script = f"tty; {sized(33, 77)}; {sized(44, 88)}; read x; echo got $x; exit 3"
    words = [kubectl, "exec", "-it", pod.name, "--", "sh", "-c", script]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        seen = b""
        while b"33 rows" not in seen:
            seen += os.read(ours, 1000)
        resize(ours, 44, 88)
        while b"44 rows" not in seen:
            child.send_signal(signal.SIGWINCH)  # again, should kubectl not have been listening yet
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 1000)
        os.write(ours, b"typed\r")
        with contextlib.suppress(OSError):  # how a terminal says that everybody has left
            while more := os.read(ours, 1000):
                seen += more
        assert child.wait(SOON) == 3
    os.close(ours)
    assert b"got typed" in seen


def test_why_a_command_does_not_run(start, cluster):
    pod = start(SLEEP)
    assert "container nope is not valid for pod" in cluster.refused("exec", pod.name, "-c", "nope", "--", "true")
    assert "no-such-program" in cluster.refused("exec", pod.name, "--", "/no-such-program")
    done = start("exit 0", wait=False)
    done.until(".status.phase", "Succeeded")
    assert "completed pod" in cluster.refused("exec", done.name, "--", "true")


def test_attach_reads_and_writes(start, cluster, kubectl):
    pod = start('while read -r line; do echo "heard $line"; [ "$line" = end ] && exit 0; done', stdin=True)
    with lines(child := cluster.background("attach", "-i", "-c", "c0", pod.name, program=kubectl)) as heard:
        for word in ("hello", "end"):
            child.stdin.write(f"{word}\n".encode())
            child.stdin.flush()
            assert heard.beyond("If you don't see a command prompt") == f"heard {word}"
        assert heard.next() is None
        assert child.wait(SOON) == 0
    assert pod.logs() == "heard hello\nheard end\n"


def test_containers_share_processes_if_the_pod_says_so(start, cluster):
    pod = start("exec sleep 4567", WAIT, shared_processes=True)
    in_second = ("exec", pod.name, "-c", "c1", "--")
    processes = cluster.output(*in_second, "ps", "-o", "pid,args")
    assert re.search(r"^ *1 pause", processes, re.MULTILINE), processes
    number = re.search(r"^ *(\d+) sleep 4567$", processes, re.MULTILINE).group(1)
    assert cluster.output(*in_second, "ls", f"/proc/{number}/root/etc/hostname")
    cluster.output(*in_second, "kill", "-9", number)
    pod.until(".status.containerStatuses[0].state.terminated.exitCode", "137")
    assert cluster.output("get", "pod", pod.name, "-o", "jsonpath={.status.containerStatuses[1].state.running}")


def test_containers_have_processes_of_their_own_otherwise(start, cluster):
    pod = start("exec sleep 4567", WAIT)
    assert "sleep 4567" not in cluster.output("exec", pod.name, "-c", "c1", "--", "ps")


@pytest.mark.parametrize("shared_processes", [False, True], ids=["own processes", "shared processes"])
def test_debug_sees_the_processes_of_its_target(start, cluster, shared_processes):
    pod = start("exec sleep 4567", WAIT, shared_processes=shared_processes)
    flags = ("--image", IMAGE, "--image-pull-policy", "Never", "--profile", "general")
    for name, target in (("at", ("--target", "c0")), ("beside", ())):
        cluster.output("debug", pod.name, *flags, "-c", name, *target, "--", "sleep", "600")
    running = "jsonpath={.status.ephemeralContainerStatuses[*].state.running.startedAt}"
    eventually(lambda: len(cluster.output("get", "pod", pod.name, "-o", running).split()) == 2, SOON)
    assert "sleep 4567" in cluster.output("exec", pod.name, "-c", "at", "--", "ps")
    assert ("sleep 4567" in cluster.output("exec", pod.name, "-c", "beside", "--", "ps")) is shared_processes


def test_run_and_remove(cluster):
    name = f"run-{uuid.uuid4().hex[:8]}"
    flags = ["--image", IMAGE, "--image-pull-policy=Never", "--restart=Never", "-i", "--rm", "-q"]
    output = cluster.output("run", name, *flags, "--", "sh", "-c", "read x; echo got $x", given=b"something\n")
    assert "got something" in output
    assert cluster.kubectl("get", "pod", name).returncode == 1


def test_the_python_client_runs_commands(start, cluster):
    pod = start(SLEEP)
    streams = {"stdout": True, "stderr": True, "stdin": False, "tty": False, "_preload_content": False}
    with config.new_client_from_config(str(cluster.kubeconfig)) as connected:
        call = client.CoreV1Api(connected).connect_get_namespaced_pod_exec
        talk = stream(call, pod.name, "default", command=["sh", "-c", "echo a; echo b >&2; exit 5"], **streams)
        talk.run_forever(timeout=SOON)
        output = (talk.read_stdout(), talk.read_stderr(), talk.returncode)
        talk.sock.shutdown()  # its own close leaves the socket open when the server closed first
    assert output == ("a\n", "b\n", 5)


def test_an_old_kubectl_reads_logs(start, cluster):
    pod = start(f"echo hello; {SLEEP}")
    assert cluster.kubectl("logs", pod.name, program=str(OLD)).stdout == b"hello\n"


SERVE = """
mkdir /dev/shm/www; echo hello > /dev/shm/www/index.html; httpd -p 127.0.0.1:80 -h /dev/shm/www
exec nc -ll -p 90 -e cat
"""
LISTENING = "until wget -q -O - 127.0.0.1:80 && echo | nc -w 9 127.0.0.1 90; do sleep 0.05; done"
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")


class Forwarded:
    """The local ports of a kubectl port-forward, by those of the pod, and what it says besides."""

    def __init__(self, heard: Lines, ports: tuple[int, ...]) -> None:
        self._heard = heard
        self.local: dict[int, int] = {}
        while not self.local.keys() >= set(ports):
            line = heard.next()
            assert line is not None, "kubectl has left"
            if found := FORWARDING.match(line):
                self.local[int(found[2])] = int(found[1])

    def said(self, words: str) -> str:
        while (line := self._heard.next()) is not None:
            if words in line:
                return line
        raise AssertionError(f"kubectl has left without saying {words!r}")

    def talk(self, port: int, data: bytes) -> bytes:
        """The response to these bytes, to the end of both directions."""
        with socket.create_connection(("127.0.0.1", self.local[port]), timeout=SOON) as peer:
            sending = threading.Thread(target=self._send, args=(peer, data))
            sending.start()
            back = bytearray()
            with contextlib.suppress(ConnectionResetError):  # how kubectl may tell that the pod refused
                while piece := peer.recv(65536):
                    back += piece
            sending.join(SOON)
            return bytes(back)

    def _send(self, peer: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def forward(pod: Pod, program: str, *ports: int) -> Iterator[Forwarded]:
    asked = [f":{port}" for port in ports]
    with lines(pod.cluster.background("port-forward", f"pod/{pod.name}", *asked, program=program)) as heard:
        yield Forwarded(heard, ports)


def test_ports_of_a_pod_are_forwarded(start, kubectl):
    pod = start(SERVE)
    assert pod.exec("sh", "-c", LISTENING).returncode == 0
    with forward(pod, kubectl, 80, 90) as forwarded:
        assert forwarded.talk(80, b"GET / HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nhello\n")
        data = [os.urandom(10_000_000), os.urandom(10_000_000)]
        with ThreadPoolExecutor(2) as both:
            assert list(both.map(lambda each: forwarded.talk(90, each) == each, data)) == [True, True]
        assert forwarded.talk(80, b"GET / HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nhello\n")


def test_port_forward_reports_a_closed_port(start, kubectl):
    pod = start(SLEEP)
    with forward(pod, kubectl, 81) as forwarded:
        assert forwarded.talk(81, b"hello?") == b""
        why = forwarded.said("an error occurred forwarding")
        assert f"{forwarded.local[81]} -> 81: error forwarding port 81 to pod" in why
        assert "127.0.0.1:81: connect: connection refused" in why


def test_ports_of_a_pod_that_does_not_run(start, cluster, kubectl):
    done = start("exit 0", wait=False)
    done.until(".status.phase", "Succeeded")
    assert "pod is not running" in cluster.refused("port-forward", f"pod/{done.name}", ":80", program=kubectl)
    assert cluster.refused("get", "--raw", f"/api/v1/namespaces/default/pods/{done.name}/portforward") == (
        f'Error from server (BadRequest): unable to forward port because pod "{done.name}" is not running'
    )


def test_a_pod_that_ends_ends_its_port_forward(start, cluster, kubectl):
    pod = start(SERVE)
    assert pod.exec("sh", "-c", LISTENING).returncode == 0
    with forward(pod, kubectl, 80) as forwarded:
        assert b"hello" in forwarded.talk(80, b"GET / HTTP/1.0\r\n\r\n")
        cluster.output("delete", "pod", pod.name, "--grace-period=1")
        assert forwarded.said("lost connection to pod")


def test_the_python_client_forwards_ports(start, cluster):
    pod = start(SERVE)
    assert pod.exec("sh", "-c", LISTENING).returncode == 0
    with config.new_client_from_config(str(cluster.kubeconfig)) as connected:
        call = client.CoreV1Api(connected).connect_get_namespaced_pod_portforward
        forwarded = portforward(call, pod.name, "default", ports="90,81")
        [proxy] = [item for item in threading.enumerate() if item.name.startswith("Kubernetes port forward proxy")]
        with contextlib.closing(forwarded):
            echo, closed = forwarded.socket(90), forwarded.socket(81)
            echo.settimeout(SOON)
            closed.settimeout(SOON)
            echo.sendall(b"hello")
            output = b"".join(echo.recv(1) for _ in range(5))
            assert closed.recv(1) == b""
        proxy.join(SOON)
    assert output == b"hello"
    assert forwarded.error(90) is None
    assert "connection refused" in forwarded.error(81)


def test_the_kubelets_own_figures(start, cluster):
    pod = start(SLEEP)
    [node] = cluster.output("get", "nodes", "-o", "name").split()
    proxy = f"/api/v1/{node.replace('node/', 'nodes/')}/proxy"
    assert cluster.output("get", "--raw", f"{proxy}/healthz") == "ok"
    assert "kubelet_running_pods" in cluster.output("get", "--raw", f"{proxy}/metrics")
    metrics = cluster.output("get", "--raw", f"{proxy}/metrics/cadvisor")
    assert re.search(
        rf'^container_memory_working_set_bytes{{pod="{pod.name}",.*container="c0".*}} \d', metrics, re.MULTILINE
    )
    assert re.search(
        rf'^container_network_receive_bytes_total{{pod="{pod.name}",.*interface="eth0"}} \d', metrics, re.MULTILINE
    )
    pods = json.loads(cluster.output("get", "--raw", f"{proxy}/pods"))["items"]
    [shown] = [item for item in pods if item["metadata"]["name"] == pod.name]
    assert shown["status"]["phase"] == "Running"
    summary = json.loads(cluster.output("get", "--raw", f"{proxy}/stats/summary"))
    [used] = [item for item in summary["pods"] if item["podRef"]["name"] == pod.name]
    assert used["containers"][0]["memory"]["workingSetBytes"] > 0
