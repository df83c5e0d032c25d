"""A DRA driver in plain grpcio: methods by their names on the wire, no stubs; and claims that are allocated by hand."""

import contextlib
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.registration import registration_pb2 as announcing

SECONDS = 30.0
CLAIMS = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceClaim")
MESSAGES = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH = {"v1": health_v1_pb2, "v1alpha1": health_v1alpha1_pb2}


class DraDriver:
    """`prepare` and `unprepare` are functions of a claim that a test may replace: they give devices, or raise.

    `version` is the one that it speaks; with `health`, it also tells how its devices are. `instance` tells two
    processes of one driver apart.
    """

    def __init__(self, root, name="nic.example.org", *, version="v1", health="", instance=""):
        self.name, self.version, self.health = name, version, health
        self.messages = MESSAGES[version]
        self.socket = root / "plugins" / name / f"dra{instance}.sock"
        self.registration = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        self.type, self.endpoint = "DRAPlugin", str(self.socket)
        self.versions = [f"{version}.DRAPlugin", *([f"{health}.DRAResourceHealth"] if health else [])]
        self.prepared, self.unprepared, self.calls = [], [], []
        self.prepare = lambda claim: [self.device(claim)]
        self.unprepare = lambda claim: None
        self.answer = lambda answer: answer
        self.before_info = self.before_notify = lambda: None
        self.reported, self.streams, self.news = queue.Queue(), [], []
        self._servers = {}

    def device(self, claim, requests=("nic",), **more):
        return self.messages.Device(
            request_names=requests, pool_name="n", device_name="eth2",
            cdi_device_ids=[f"{self.name}/nic={claim.uid}"], **more,
        )  # fmt: skip

    def serve(self):
        """Its own socket only."""
        calls = {
            "NodePrepareResources": _unary(self._prepare, self.messages.NodePrepareResourcesRequest),
            "NodeUnprepareResources": _unary(self._unprepare, self.messages.NodeUnprepareResourcesRequest),
        }
        handlers = [
            grpc.method_handlers_generic_handler(f"k8s.io.kubelet.pkg.apis.dra.{self.version}.DRAPlugin", calls)
        ]
        if self.health in HEALTH:
            kinds = HEALTH[self.health]
            watch = grpc.unary_stream_rpc_method_handler(
                self._watch,
                kinds.NodeWatchResourcesRequest.FromString,
                kinds.NodeWatchResourcesResponse.SerializeToString,
            )
            service = f"{self.health}.DRAResourceHealth"
            handlers.append(grpc.method_handlers_generic_handler(service, {"NodeWatchResources": watch}))
        self._listen(self.socket, handlers)
        return self

    def register(self):
        """Put its socket where the kubelet finds it."""
        calls = {
            "GetInfo": _unary(self._info, announcing.InfoRequest),
            "NotifyRegistrationStatus": _unary(self._notified, announcing.RegistrationStatus),
        }
        self._listen(
            self.registration, [grpc.method_handlers_generic_handler("pluginregistration.Registration", calls)]
        )
        return self

    def start(self):
        """And wait until it is taken."""
        self.serve().register()
        assert self.reported.get(timeout=SECONDS) == (True, "")
        return self

    def leave(self):
        """As a driver that ends: its sockets go."""
        self._stop(self.registration)
        self._stop(self.socket)

    def silence(self):
        """It has registered, and nobody listens any more."""
        self._stop(self.socket)

    def _stop(self, socket):
        for stream in tuple(self.streams) if socket == self.socket else ():
            stream.put(None)
        if (server := self._servers.pop(socket, None)) is not None:
            server.stop(0).wait()
        socket.unlink(missing_ok=True)

    def tell(self, *devices):
        """Health of devices: (device, status) or (device, status, seconds, message)."""
        kinds = HEALTH[self.health]
        self.news = []
        for device, status, *more in devices:
            seconds, message = (*more, *(30, "")[len(more) :])
            self.news.append(
                kinds.DeviceHealth(
                    device=kinds.DeviceIdentifier(pool_name="n", device_name=device), health=status,
                    last_updated_time=int(time.time()), health_check_timeout_seconds=seconds, message=message,
                )
            )  # fmt: skip
        for stream in tuple(self.streams):
            stream.put(True)

    def _listen(self, socket, handlers):
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers(tuple(handlers))
        assert server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._servers[socket] = server

    def _prepare(self, request):
        self.calls.append([claim.name for claim in request.claims])
        answer = self.messages.NodePrepareResourcesResponse()
        for claim in request.claims:
            self.prepared.append(claim.name)
            try:
                answer.claims[claim.uid].devices.extend(self.prepare(claim))
            except ValueError as error:
                answer.claims[claim.uid].error = str(error)
        return self.answer(answer)

    def _unprepare(self, request):
        answer = self.messages.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.unprepared.append(claim.name)
            try:
                self.unprepare(claim)
                answer.claims[claim.uid].error = ""
            except ValueError as error:
                answer.claims[claim.uid].error = str(error)
        return self.answer(answer)

    def _watch(self, _request, context):
        result = queue.Queue()
        self.streams.append(result)
        context.add_callback(lambda: result.put(None))
        try:
            more = True
            while more:
                yield HEALTH[self.health].NodeWatchResourcesResponse(devices=self.news)
                more = result.get()
        finally:
            self.streams.remove(result)

    def _info(self, _request):
        self.before_info()
        return announcing.PluginInfo(
            type=self.type, name=self.name, endpoint=self.endpoint, supported_versions=self.versions
        )

    def _notified(self, request):
        self.before_notify()
        self.reported.put((request.plugin_registered, request.error))
        return announcing.RegistrationStatusResponse()


def _unary(answer, request):
    return grpc.unary_unary_rpc_method_handler(
        lambda asked, _context: answer(asked), request.FromString, lambda message: message.SerializeToString()
    )


@pytest.fixture
def dra_driver(root):
    """Makes drivers that end with the test."""
    made, gates = [], []

    def make(*args, **options):
        made.append(DraDriver(root, *args, **options))
        return made[-1]

    make.gate = lambda: gates.append(threading.Event()) or gates[-1]
    yield make
    for item in gates:
        item.set()
    for item in made:
        with contextlib.suppress(Exception):
            item.leave()


def claim_of(name="mine", driver="nic.example.org", device="eth2", request="nic"):
    exactly = {"deviceClassName": "nics"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": request, "exactly": exactly}]}},
    }, {"devices": {"results": [{"request": request, "driver": driver, "pool": "n", "device": device}]}}


class Claims:
    """Writes as a user, a scheduler and a controller do them."""

    def __init__(self, world):
        self._world, self._api = world, world.api

    async def make(self, name="mine", **how):
        claim, allocation = claim_of(name, **how)
        made = await self._api.create(claim)
        return (
            await self._api.patch(CLAIMS, name, {"status": {"allocation": allocation}}, "default", subresource="status")
            or made
        )

    async def reserve(self, name, *pods):
        users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in pods]
        await self._api.patch(CLAIMS, name, {"status": {"reservedFor": users}}, "default", subresource="status")

    async def reported(self, message, name="mine", driver="nic.example.org"):
        """The driver has written this into the claim's status."""
        condition = {"type": "Ready", "status": "False", "reason": "No", "message": message,
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        devices = [{"driver": driver, "pool": "n", "device": "eth2", "conditions": [condition]}]
        await self._api.patch(CLAIMS, name, {"status": {"devices": devices}}, "default", subresource="status")

    async def own(self, name, pod):
        """The claim was made for this pod."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "controller": True,
            **{k: pod["metadata"][k] for k in ("name", "uid")},
        }
        await self._api.patch(CLAIMS, name, {"metadata": {"ownerReferences": [owner]}}, "default")

    async def pod(self, name="p", *names, reserve=True, **spec):
        """A pod that uses these claims, each by its own name."""
        names = names or ("mine",)
        container = {
            "name": "c", "image": "i", "imagePullPolicy": "Never",
            "resources": {"claims": [{"name": name} for name in names]},
        }  # fmt: skip
        entries = [{"name": name, "resourceClaimName": name} for name in names]
        made = await self._world.make(name, **{"containers": [container], "resourceClaims": entries, **spec})
        if reserve:
            for item in names:
                await self.reserve(item, made)
        return made


@pytest.fixture
def claims(world):
    return Claims(world)
