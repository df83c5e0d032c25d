"""kubectl logs, exec, attach, cp and run: through the API server and the kubelet into real containers."""

import asyncio
import contextlib
import json
import os
import pty
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.stream import stream

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.transports import grpc_client

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
        texts = [each.read_text() for each in (self.prefix / "var/log/podwire").glob("*.log")]
        return "\n".join(each[-3000:] for each in texts if "Traceback" in each)

    def kubectl(
        self, *words: str, given: bytes = b"", program: str = "kubectl"
    ) -> "subprocess.CompletedProcess[bytes]":
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.prefix)}
        return subprocess.run([program, *words], input=given, capture_output=True, timeout=SOON, env=env, check=False)

    def told(self, *words: str, given: bytes = b"") -> str:
        done = self.kubectl(*words, given=given)
        assert done.returncode == 0, f"kubectl {words}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done.stdout.decode()

    def refused(self, *words: str, program: str = "kubectl") -> str:
        done = self.kubectl(*words, program=program)
        assert done.returncode != 0, f"kubectl {words} did not fail\n{done.stdout!r}"
        return done.stderr.decode().strip()

    def background(self, *words: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.prefix)}
        return subprocess.Popen(
            ["kubectl", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
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
        return self.cluster.told("logs", self.name, *words)

    def exec(self, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return self.cluster.kubectl("exec", "-i", self.name, "--", *words, given=given)

    def until(self, path: str, value: str) -> None:
        self.cluster.told("wait", f"pod/{self.name}", f"--for=jsonpath={{{path}}}={value}", f"--timeout={SOON:g}s")


@pytest.fixture
def start(cluster):
    """`start("sh script", …)` is a pod whose containers run; they are gone after the test."""
    names = []

    def run(*scripts, wait=True, restart="Never", **fields):
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
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        cluster.told("create", "-f", "-", given=json.dumps(pod).encode())
        names.append(name)
        if wait:
            cluster.told("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={SOON:g}s")
        return Pod(cluster, name)

    yield run
    if names:
        cluster.told("delete", "pod", *names, "--grace-period=0", "--force")


class Lines:
    """What a program prints, line by line."""

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


@contextlib.contextmanager
def lines(child: "subprocess.Popen[bytes]") -> Iterator[Lines]:
    with child:
        try:
            yield Lines(child)
        finally:
            child.kill()


SLEEP = "exec sleep 600"
WAIT = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def test_logs_show_what_was_said(start):
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


def test_why_there_are_no_logs(start, cluster):
    pod = start(SLEEP)
    assert cluster.refused("logs", pod.name, "--previous") == (
        f'Error from server (BadRequest): previous terminated container "c0" in pod "{pod.name}" not found'
    )
    bare = start("true", wait=False, image="example.invalid/none:1")
    bare.until(".status.containerStatuses[0].state.waiting.reason", "ErrImageNeverPull")
    assert cluster.refused("logs", bare.name) == (
        f'Error from server (BadRequest): container "c0" in pod "{bare.name}" is waiting to start: ErrImageNeverPull'
    )


def test_a_follower_hears_every_line_and_then_the_end(start, cluster):
    pod = start(WAIT)
    with lines(cluster.background("logs", "-f", pod.name)) as heard:
        for word in ("one", "two", "end"):
            assert pod.exec("sh", "-c", f"echo {word} > /proc/1/fd/1").returncode == 0
            assert heard.next() == word
        assert pod.exec("kill", "1").returncode == 0
        assert heard.next() is None


async def test_a_follower_goes_on_when_the_log_is_rotated(start, cluster):
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


def test_a_command_runs_in_the_container(start):
    pod = start(SLEEP)
    done = pod.exec("sh", "-c", "echo out; echo err >&2; hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, f"out\n{pod.name}\n".encode())
    assert done.stderr.startswith(b"err\n")
    assert pod.exec("cat", given=b"input to its end").stdout == b"input to its end"


def test_much_goes_in_and_out(start, tmp_path, cluster):
    pod = start(SLEEP)
    data = os.urandom(3_000_000)
    assert pod.exec("cat", given=data).stdout == data
    (tmp_path / "there").write_bytes(data)
    cluster.told("cp", str(tmp_path / "there"), f"{pod.name}:/dev/shm/copy")
    cluster.told("cp", f"{pod.name}:/dev/shm/copy", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


def test_a_terminal(start, cluster):
    pod = start(SLEEP)
    ours, theirs = pty.openpty()
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.prefix)}
    words = ["kubectl", "exec", "-it", pod.name, "--", "sh", "-c", "tty; read x; echo got $x; exit 3"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        seen = b""
        while b"/dev/pts/" not in seen:
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


def test_attaching_hears_and_speaks(start, cluster):
    pod = start('while read -r line; do echo "heard $line"; [ "$line" = end ] && exit 0; done', stdin=True)
    with lines(child := cluster.background("attach", "-i", "-q", pod.name)) as heard:
        for word in ("hello", "end"):
            child.stdin.write(f"{word}\n".encode())
            child.stdin.flush()
            assert heard.next() == f"heard {word}"
        assert heard.next() is None
        assert child.wait(SOON) == 0
    assert pod.logs() == "heard hello\nheard end\n"


def test_run_and_remove(cluster):
    name = f"run-{uuid.uuid4().hex[:8]}"
    flags = ["--image", IMAGE, "--image-pull-policy=Never", "--restart=Never", "-i", "--rm", "-q"]
    told = cluster.told("run", name, *flags, "--", "sh", "-c", "read x; echo got $x", given=b"something\n")
    assert "got something" in told
    assert cluster.kubectl("get", "pod", name).returncode == 1


def test_the_python_client_runs_commands(start, cluster):
    pod = start(SLEEP)
    streams = {"stdout": True, "stderr": True, "stdin": False, "tty": False, "_preload_content": False}
    with config.new_client_from_config(str(cluster.kubeconfig)) as connected:
        call = client.CoreV1Api(connected).connect_get_namespaced_pod_exec
        talk = stream(call, pod.name, "default", command=["sh", "-c", "echo a; echo b >&2; exit 5"], **streams)
        talk.run_forever(timeout=SOON)
        told = (talk.read_stdout(), talk.read_stderr(), talk.returncode)
        talk.sock.shutdown()  # its own close leaves the socket open when the server closed first
    assert told == ("a\n", "b\n", 5)


def test_an_old_kubectl_reads_logs_and_is_told_why_it_runs_no_commands(start, cluster):
    pod = start(f"echo hello; {SLEEP}")
    assert cluster.kubectl("logs", pod.name, program=str(OLD)).stdout == b"hello\n"
    why = cluster.refused("exec", pod.name, "--", "true", program=str(OLD))
    assert "exec is served over a WebSocket" in why
    assert "SPDY" in why


def test_ports_are_not_forwarded_yet_and_that_is_said(start, cluster):
    pod = start(SLEEP)
    assert "port-forward is not supported by podwire yet" in cluster.refused("port-forward", f"pod/{pod.name}", ":80")


def test_the_kubelets_own_figures(start, cluster):
    pod = start(SLEEP)
    [node] = cluster.told("get", "nodes", "-o", "name").split()
    proxy = f"/api/v1/{node.replace('node/', 'nodes/')}/proxy"
    assert cluster.told("get", "--raw", f"{proxy}/healthz") == "ok"
    assert "kubelet_running_pods" in cluster.told("get", "--raw", f"{proxy}/metrics")
    pods = json.loads(cluster.told("get", "--raw", f"{proxy}/pods"))["items"]
    [shown] = [each for each in pods if each["metadata"]["name"] == pod.name]
    assert shown["status"]["phase"] == "Running"
    summary = json.loads(cluster.told("get", "--raw", f"{proxy}/stats/summary"))
    [used] = [each for each in summary["pods"] if each["podRef"]["name"] == pod.name]
    assert used["containers"][0]["memory"]["workingSetBytes"] > 0
