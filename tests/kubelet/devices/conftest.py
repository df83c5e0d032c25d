"""A device plugin in plain grpcio: methods by their names on the wire, no stubs."""

import contextlib
import queue
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.registration import registration_pb2 as announcing

SECONDS = 30.0


def device(id_, health="Healthy", *nodes):
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes]) if nodes else None
    return pb.Device(ID=id_, health=health, topology=topology)


class DevicePlugin:
    """`devices` are what it lists; `answer`, `prefer` and `before_start` are functions that a test may replace."""

    def __init__(self, directory, resource="example.org/nic", devices=(), endpoint="nic.sock", **options):
        self.directory, self.resource, self.endpoint = directory, resource, endpoint
        self.devices = [item if isinstance(item, pb.Device) else device(item) for item in devices]
        self.options = pb.DevicePluginOptions(**options)
        self.allocated, self.asked, self.started, self.streams = [], [], [], []
        self.answer = lambda ids: pb.ContainerAllocateResponse(envs={"NICS": ",".join(sorted(ids))})
        self.prefer = lambda available, must, size: [*must, *available][:size]
        self.before_start = lambda ids: None
        self.announced = queue.Queue()
        self.type, self.versions = "DevicePlugin", ["v1beta1"]
        self._server = None

    @property
    def socket(self):
        return self.directory / self.endpoint

    def serve(self):
        """Once the kubelet listens: as it starts, it removes the sockets of those who came before."""
        until = time.monotonic() + SECONDS
        while self.directory.name == "device-plugins" and not (self.directory / "kubelet.sock").exists():
            assert time.monotonic() < until, "the kubelet never listened"
            time.sleep(0.01)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(16))
        calls = {
            "GetDevicePluginOptions": _unary(lambda _request: self.options, pb.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list, pb.Empty.FromString, pb.ListAndWatchResponse.SerializeToString
            ),
            "GetPreferredAllocation": _unary(self._prefer, pb.PreferredAllocationRequest),
            "Allocate": _unary(self._allocate, pb.AllocateRequest),
            "PreStartContainer": _unary(self._before_start, pb.PreStartContainerRequest),
        }
        registration = {
            "GetInfo": _unary(self._info, announcing.InfoRequest),
            "NotifyRegistrationStatus": _unary(self._notified, announcing.RegistrationStatus),
        }
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls),
                grpc.method_handlers_generic_handler("pluginregistration.Registration", registration),
            )
        )
        assert self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def register(self, version="v1beta1", endpoint=None, resource=None):
        """By the kubelet's socket; raises grpc.RpcError."""
        with grpc.insecure_channel(f"unix:{self.directory / 'kubelet.sock'}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register", pb.RegisterRequest.SerializeToString, pb.Empty.FromString
            )
            request = pb.RegisterRequest(
                version=version, endpoint=self.endpoint if endpoint is None else endpoint,
                resource_name=resource or self.resource, options=self.options,
            )  # fmt: skip
            call(request, timeout=SECONDS, wait_for_ready=True)
        return self

    def list(self, *devices):
        """Tell that these are all there are."""
        self.devices = [item if isinstance(item, pb.Device) else device(item) for item in devices]
        for stream in tuple(self.streams):
            stream.put(True)

    def kill(self):
        """As a process that dies: nobody is notified, the socket stays."""
        for stream in tuple(self.streams):
            stream.put(None)
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def _list(self, _request, context):
        result = queue.Queue()
        self.streams.append(result)
        context.add_callback(lambda: result.put(None))
        try:
            more = True
            while more:
                yield pb.ListAndWatchResponse(devices=self.devices)
                more = result.get()
        finally:
            self.streams.remove(result)

    def _allocate(self, request):
        ids = [list(item.devices_ids) for item in request.container_requests]
        self.allocated += ids
        answer = self.answer(ids[0])
        return answer if isinstance(answer, pb.AllocateResponse) else pb.AllocateResponse(container_responses=[answer])

    def _prefer(self, request):
        one = request.container_requests[0]
        asked = (sorted(one.available_deviceIDs), list(one.must_include_deviceIDs), one.allocation_size)
        self.asked.append(asked)
        chosen = pb.ContainerPreferredAllocationResponse(deviceIDs=self.prefer(*asked))
        return pb.PreferredAllocationResponse(container_responses=[chosen])

    def _before_start(self, request):
        self.started.append(list(request.devices_ids))
        self.before_start(list(request.devices_ids))
        return pb.PreStartContainerResponse()

    def _info(self, _request):
        return announcing.PluginInfo(type=self.type, name=self.resource, supported_versions=self.versions)

    def _notified(self, request):
        self.announced.put((request.plugin_registered, request.error))
        return announcing.RegistrationStatusResponse()


def _unary(answer, request):
    return grpc.unary_unary_rpc_method_handler(
        lambda asked, _context: answer(asked), request.FromString, lambda message: message.SerializeToString()
    )


@pytest.fixture(name="device", scope="session")
def _device():
    return device


@pytest.fixture
def device_plugin(root):
    """Makes plugins that end with the test."""
    made = []

    def make(*args, **options):
        made.append(DevicePlugin(root / "device-plugins", *args, **options))
        return made[-1]

    yield make
    for item in made:
        item.kill()


@contextlib.contextmanager
def calling(socket):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        yield channel


@pytest.fixture(scope="session")
def ask():
    """Calls a method on a socket by its path, as a client does that has nothing but the wire."""

    def ask(socket, path, request, answer):
        with calling(socket) as channel:
            call = channel.unary_unary(path, lambda message: message.SerializeToString(), answer.FromString)
            return call(request, timeout=SECONDS, wait_for_ready=True)

    return ask
