"""A host of its own for every test that asks for one, a plugin's process on it, and a kubelet that is plain grpcio."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import yaml

from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.podresources import podresources_pb2 as resources
from tests.eventually import eventually

PATIENCE = 60.0
MS_REC_PRIVATE = 16384 | 1 << 18


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "host" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}

    def run() -> None:
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        with KernelNetwork() as network:
            network.links.change("lo", up=True)
        try:
            pyfuncitem.obj(**arguments)
        finally:
            pyfuncitem.funcargs["host"].end()

    in_thread(run)
    return True


class FakeKubelet:
    """Registration and PodResourcesLister as a kubelet serves them, and calls to plugins as it makes them."""

    def __init__(self, directory: Path) -> None:
        self.plugins, self.resources = directory / "device-plugins", directory / "pod-resources"
        self.registered: queue.Queue[pb.RegisterRequest] = queue.Queue()
        self.pods: dict[str, dict[str, list[str]]] = {}
        self.lists = 0
        self.young = False
        """Whether it seems to have started just now; one that has not reports all its pods."""
        self.refusal = ""
        self._servers: list[grpc.Server] = []
        self._channels: list[grpc.Channel] = []

    def start(self) -> None:
        for item in (self.plugins, self.resources):
            item.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.iterdir():
            if path.is_socket():
                path.unlink()  # as a kubelet does
        self._serve(self.resources, "v1.PodResourcesLister", {"List": (self._list, resources.ListPodResourcesRequest)})
        if not self.young:
            os.utime(self.resources / "kubelet.sock", (0, 0))
        self._serve(self.plugins, "v1beta1.Registration", {"Register": (self._register, pb.RegisterRequest)})

    def _serve(self, directory: Path, service: str, methods: dict) -> None:
        server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                answer, request_deserializer=kind.FromString, response_serializer=lambda each: each.SerializeToString()
            )
            for name, (answer, kind) in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        (directory / "kubelet.sock").unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{directory}/kubelet.sock")
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        for server in self._servers:
            server.stop(None).wait()
        self._servers, self._channels = [], []

    def _register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        if self.refusal:
            context.abort(grpc.StatusCode.UNKNOWN, self.refusal)
        self.registered.put(request)
        return pb.Empty()

    def _list(self, _request: object, _context: object) -> resources.ListPodResourcesResponse:
        self.lists += 1
        answer = resources.ListPodResourcesResponse()
        for name, held in list(self.pods.items()):
            container = answer.pod_resources.add(name=name, namespace="default").containers.add(name="main")
            for resource, ids in held.items():
                container.devices.add(resource_name=resource, device_ids=ids)
        return answer

    def wait_registered(self) -> pb.RegisterRequest:
        return self.registered.get(timeout=PATIENCE)

    def plugin(self, pool: str) -> "FakeClient":
        channel = grpc.insecure_channel(
            f"unix:{self.plugins}/podwire-{pool}.sock", options=[("grpc.default_authority", "localhost")]
        )
        self._channels.append(channel)
        return FakeClient(channel)

    def wait_until_asked(self) -> None:
        """Until a question that was asked after now has been answered, and another one after that was begun."""
        now = self.lists
        eventually(lambda: self.lists >= now + 2)


class FakeClient:
    """The calls of one plugin."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._stream = None

    def call(self, name: str, request: object, answer: type) -> object:
        call = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=PATIENCE, wait_for_ready=True)

    def allocate(self, *ids: str) -> pb.ContainerAllocateResponse:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        return self.call("Allocate", request, pb.AllocateResponse).container_responses[0]

    def next(self) -> dict[str, pb.Device]:
        """The next list that ListAndWatch tells."""
        if self._stream is None:
            call = self._channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=lambda each: each.SerializeToString(),
                response_deserializer=pb.ListAndWatchResponse.FromString,
            )
            self._stream = call(pb.Empty(), timeout=2 * PATIENCE, wait_for_ready=True)
        return {device.ID: device for device in next(self._stream).devices}

    def until(self, **health: str) -> dict[str, pb.Device]:
        """Lists, until one says this of these devices; names with '_' stand for those with '-'."""
        wanted = {name.replace("_", "-"): value for name, value in health.items()}
        seen = []
        while True:
            found = self.next()
            seen.append({name: each.health for name, each in found.items()})
            if all(name in found and found[name].health == value for name, value in wanted.items()):
                return found
            assert len(seen) < 100, seen[-5:]


class Host:
    """Links, namespaces and files of one test, and the plugin's process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.namespaces = KernelNamespaces(root / "netns")
        self.kubelet = FakeKubelet(root / "k")
        self.state, self.cdi, self.log = root / "state", root / "cdi", root / "log"
        self.process: subprocess.Popen | None = None

    def ip(self, text: str) -> list:
        found = subprocess.run(["ip", "-j", "-d", *text.split()], capture_output=True, text=True, check=True).stdout
        return json.loads(found) if found.strip() else []

    def inside(self, netns: str, *argv: str) -> str:
        return subprocess.run(["nsenter", f"--net={netns}", *argv], capture_output=True, text=True, check=True).stdout

    def move_in(self, link: str, netns: str, name: str = "eth0") -> None:
        with KernelNetwork() as network:
            network.links.move(link, netns, name)

    def move_out(self, netns: str, name: str, link: str) -> None:
        with KernelNetwork(netns) as pod:
            pod.links.move(name, "/proc/thread-self/ns/net", link)

    def dump(self, link: str) -> list:
        """A link and its addresses, all that `ip` tells."""
        return [self.ip(f"link show {link}"), self.ip(f"addr show {link}")]

    def start(self, pools: list[dict], *arguments: str, **env: str) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "pools.yaml").write_text(yaml.safe_dump({"pools": pools}))
        argv = [sys.executable, "-m", "podwire.cli.main", "device-plugin", "--config", self.root / "pools.yaml"]
        argv += ["--kubelet-dir", self.root / "k", "--state-dir", self.state, "--cdi-dir", self.cdi, *arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, env=os.environ | env, stderr=log, stdout=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def wait_dead(self) -> None:
        assert self.process.wait(PATIENCE) == -signal.SIGKILL, self.log.read_text()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def records(self, pool: str) -> dict:
        found = (self.state / "pools" / pool).glob("*.json")
        return {item.stem: json.loads(item.read_text())["record"] for item in found}

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.kubelet.stop()
        for namespace in self.namespaces.list():
            self.namespaces.remove(namespace.name)
        if self.process is not None:
            sys.stdout.write(self.log.read_text())  # seen beside a failure


@contextmanager
def short_directory() -> Iterator[Path]:
    """A socket's path must be short."""
    path = Path(tempfile.mkdtemp(prefix="pwdp", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def host() -> Iterator[Host]:
    with short_directory() as path:
        yield Host(path)


@pytest.fixture
def pci_tree(tmp_path: Path) -> Callable[[dict[str, tuple[str, int]]], Path]:
    """A tree of files that stands for sysfs: links on PCI devices, as virtual functions of one physical."""

    def make(links: dict[str, tuple[str, int]]) -> Path:
        root = tmp_path / "sys"
        bus, driver = root / "bus/pci", root / "bus/pci/drivers/mlx5_core"
        driver.mkdir(parents=True)
        physical = root / "devices/pci0000:00/0000:3b:00.0"
        physical.mkdir(parents=True)
        for name, (address, numa) in links.items():
            device = root / "devices/pci0000:00" / address
            (device / "net" / name).mkdir(parents=True)
            (device / "subsystem").symlink_to(bus)
            (device / "driver").symlink_to(driver)
            (device / "physfn").symlink_to(physical)
            (device / "numa_node").write_text(f"{numa}\n")
            (device / "net" / name / "device").symlink_to(device)
            (root / "class/net").mkdir(parents=True, exist_ok=True)
            (root / "class/net" / name).symlink_to(device / "net" / name)
        return root

    return make
