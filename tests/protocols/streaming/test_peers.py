"""Real clients at the other end: kubectl and the official Python client run commands on a server made of our parts.

The server is the smallest that they take for a cluster; a command is run as a process of this machine.
"""

import asyncio
import contextlib
import os
import shutil
import threading
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import kubernetes
import msgspec
import pytest
from kubernetes.stream import portforward, stream

from podwire.protocols.k8sapi.server_side import Request, Response, Socket, Upgrade
from podwire.protocols.streaming import portforward as forwarding
from podwire.protocols.streaming.channels import PROTOCOLS, Streams
from podwire.protocols.streaming.outcome import Exited
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size
from podwire.transports.http_server import serve

CLOUD_SDK = Path("/usr/lib/google-cloud-sdk/bin")
KUBECTLS = [
    pytest.param(str(path), id=path.name)
    for path in sorted(CLOUD_SDK.glob("kubectl.1.3*"))
    if os.access(path, os.X_OK) and path.name >= "kubectl.1.31"
] or [pytest.param(shutil.which("kubectl") or "", id="kubectl")]
"""From 1.31 on, kubectl speaks WebSocket by itself."""

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
    "status": {"phase": "Running"},
}
PODS = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
PLAIN = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [PODS]},
    "/api/v1/namespaces/default/pods/web": POD,
}


class Cluster:
    """One pod whose commands are this machine's."""

    def __init__(self) -> None:
        self.protocols: list[str] = []
        self.sizes: list[Size] = []

    async def handle(self, request: Request) -> Response | Upgrade:
        if request.path.endswith(("/exec", "/attach")):
            asked = {
                name: request.option(name) in ("true", "1", "True") for name in ("stdin", "stdout", "stderr", "tty")
            }
            argv = request.query.get("command", ["cat"])
            return Upgrade(protocols=PROTOCOLS, run=lambda peer: self.execute(peer, argv, Streams(**asked)))
        if request.path.endswith("/portforward"):
            ports = forwarding.ports_of(request.query["ports"])
            return Upgrade(protocols=PROTOCOLS, run=lambda peer: self.forward(peer, ports))
        found = PLAIN.get(request.path)
        return Response(status=200 if found else 404, body=msgspec.json.encode(found or {}))

    async def execute(self, peer: Socket, argv: list[str], streams: Streams) -> None:
        self.protocols.append(peer.protocol)
        server = ServerSide(peer.protocol, streams)
        await peer.send(server.opening())
        stdin = PIPE if streams.stdin else DEVNULL
        process = await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=PIPE, stderr=PIPE)
        listening = asyncio.create_task(self.listen(peer, server, process))

        async def pass_on(source, form):
            while data := await source.read(65536):
                for item in form(data):
                    await peer.send(item)

        try:
            await asyncio.gather(pass_on(process.stdout, server.stdout), pass_on(process.stderr, server.stderr))
            await peer.send(server.ended(Exited(await process.wait())))
        finally:
            listening.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def listen(self, peer: Socket, server: ServerSide, process) -> None:
        while (message := await peer.receive()) is not None:
            for event in server.receive(message):
                match event:
                    case Stdin(data):
                        process.stdin.write(data)
                        await process.stdin.drain()
                    case StdinEnded():
                        process.stdin.close()
                    case Size():
                        self.sizes.append(event)

    async def forward(self, peer: Socket, ports: tuple[int, ...]) -> None:
        """Answers on every port with what it is sent, in capitals; port 81 is shut."""
        self.protocols.append(peer.protocol)
        server = forwarding.ServerSide(peer.protocol, ports)
        for item in server.opening():
            await peer.send(item)
        while (message := await peer.receive()) is not None:
            match server.receive(message):
                case forwarding.Bytes(index, _) if ports[index] == 81:
                    answer = server.problem(index, "connection refused")
                case forwarding.Bytes(index, data):
                    answer = server.data(index, data.upper())
                case _:
                    continue
            for item in answer:
                await peer.send(item)


@pytest.fixture
async def cluster():
    cluster = Cluster()
    server = await serve(cluster.handle)
    cluster.url = f"http://127.0.0.1:{server.port}"
    yield cluster
    await server.close(0.5)


async def kubectl(program: str, cluster: Cluster, home: Path, *arguments: str, stdin: bytes = b""):
    """The exit code, stdout and stderr."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": "/dev/null"}
    command = [program, "--server", cluster.url, *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env)
    async with asyncio.timeout(30):
        out, err = await process.communicate(stdin)
    return process.returncode, out, err


@pytest.mark.parametrize("program", KUBECTLS)
async def test_kubectl_runs_a_command_and_learns_its_exit_code(cluster, tmp_path, program):
    script = "echo out; echo err >&2; exit 3"
    code, out, err = await kubectl(program, cluster, tmp_path, "exec", "web", "--", "sh", "-c", script)
    assert (code, out) == (3, b"out\n")
    assert b"err\n" in err
    assert b"command terminated with exit code 3" in err
    assert cluster.protocols == ["v5.channel.k8s.io"]


@pytest.mark.parametrize("program", KUBECTLS)
async def test_kubectl_pipes_through_a_command_and_signals_the_end_of_its_input(cluster, tmp_path, program):
    data = os.urandom(3_000_000)
    code, out, err = await kubectl(program, cluster, tmp_path, "exec", "-i", "web", "--", "cat", stdin=data)
    assert (code, err) == (0, b"")
    assert out == data


@pytest.mark.parametrize("program", KUBECTLS)
async def test_kubectl_attaches(cluster, tmp_path, program):
    code, out, _ = await kubectl(program, cluster, tmp_path, "attach", "-i", "web", stdin=b"hello\n")
    assert (code, out) == (0, b"hello\n")


def python_client(cluster: Cluster) -> kubernetes.client.CoreV1Api:
    configuration = kubernetes.client.Configuration(host=cluster.url)
    return kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))


async def test_the_official_python_client_runs_a_command(cluster):
    def run():
        api = python_client(cluster)
        peer = stream(
            api.connect_get_namespaced_pod_exec,
            "web",
            "default",
            command=["sh", "-c", "read line; echo got $line; exit 7"],
            stdin=True,
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        with peer.sock.sock:  # the client forgets to close it when the server closed first
            peer.write_stdin("this\n")
            peer.run_forever(timeout=10)
            return peer.read_stdout(), peer.returncode

    assert await asyncio.to_thread(run) == ("got this\n", 7)


async def test_the_official_python_client_forwards_ports(cluster):
    def run():
        forward = portforward(
            python_client(cluster).connect_get_namespaced_pod_portforward, "web", "default", ports="80,81"
        )
        good, shut = forward.socket(80), forward.socket(81)
        good.settimeout(10)
        good.sendall(b"hello")
        answer = good.recv(5)
        shut.sendall(b"x")
        for _ in range(200):
            if forward.error(81):
                break
            good.sendall(b"again")
            good.recv(5)
        forward.close()
        for item in threading.enumerate():
            if item.name.startswith("Kubernetes port forward proxy"):
                item.join(10)
        return answer, forward.error(80), forward.error(81)

    assert await asyncio.to_thread(run) == (b"HELLO", None, "connection refused")
