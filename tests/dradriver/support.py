"""A node with a network of its own, a real API server, a real NRI host, and the driver between them. The kubelet is
plain grpcio. All of it happens in one thread and those that it starts."""

import asyncio
import contextlib
import json
import subprocess
from contextlib import AsyncExitStack

import grpc

from podwire import nri
from podwire.cluster import apiserver
from podwire.cluster.loopback import LoopbackHttp
from podwire.cluster.network_driver import Options, assemble
from podwire.dradriver.config import Config
from podwire.dradriver.driver import Driver, DriverLimits
from podwire.dradriver.names import CLAIMS, DRIVER, EVENTS, SLICES
from podwire.dradriver.parameters.schema import API_VERSION, KIND
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread
from podwire.nri.adaptation import Adaptation, Settings
from podwire.protocols.dra import dra_v1_pb2 as dra
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.registration import registration_pb2 as registration
from tests.eventually import eventually_async

PATIENCE = 60.0
ADMIN = Certificate("admin", ("system:masters",))
NODE = "node-1"
MS_REC_PRIVATE = 16384 | 1 << 18


def alone(work):
    """Work in a thread with a network and mounts of its own."""

    def run():
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        with KernelNetwork() as network:
            network.links.change("lo", up=True)
        work()

    in_thread(run)


def fill(directory):
    """Leaves no byte free on the disk of a directory; returns the file that takes all of it."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


class MemoryNode:
    async def update_containers(self, updates):
        return []


class FakeKubelet:
    """Calls a driver as a kubelet does."""

    def __init__(self, directory):
        self.directory = directory

    async def call(self, socket, path, request, answer):
        await eventually_async(socket.exists)
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            call = channel.unary_unary(
                path,
                request_serializer=lambda each: each.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await call(request, timeout=PATIENCE, wait_for_ready=True)

    async def register(self, name=f"{DRIVER}-reg.sock"):
        socket = self.directory / "plugins_registry" / name
        found = await self.call(
            socket, "/pluginregistration.Registration/GetInfo", registration.InfoRequest(), registration.PluginInfo
        )
        result = registration.RegistrationStatus(plugin_registered=True)
        path = "/pluginregistration.Registration/NotifyRegistrationStatus"
        await self.call(socket, path, result, registration.RegistrationStatusResponse)
        return found

    async def prepare(self, *claims, version="v1", messages=dra, socket="dra.sock"):
        """By name: CDI ids and devices, or the error."""
        asked = [messages.Claim(namespace=ns(claim), name=name(claim), uid=uid(claim)) for claim in claims]
        answer = await self.call(
            self.directory / "plugins" / DRIVER / socket,
            f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources",
            messages.NodePrepareResourcesRequest(claims=asked),
            messages.NodePrepareResourcesResponse,
        )
        assert set(answer.claims) == {uid(claim) for claim in claims}
        return [answer.claims[uid(claim)] for claim in claims]

    async def unprepare(self, *claims, socket="dra.sock"):
        asked = [dra.Claim(namespace=ns(claim), name=name(claim), uid=uid(claim)) for claim in claims]
        answer = await self.call(
            self.directory / "plugins" / DRIVER / socket,
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            dra.NodeUnprepareResourcesRequest(claims=asked),
            dra.NodeUnprepareResourcesResponse,
        )
        assert set(answer.claims) == {uid(claim) for claim in claims}
        return [answer.claims[uid(claim)].error for claim in claims]


def name(object_):
    return object_["metadata"]["name"]


def ns(object_):
    return object_["metadata"]["namespace"]


def uid(object_):
    return object_["metadata"]["uid"]


def netns_of(sandbox):
    return sandbox.linux.namespaces[0].path


def reserved_for(pods):
    return [{"resource": "pods", "name": name(pod), "uid": uid(pod)} for pod in pods]


class Node:
    """`ip` and `inside` look at the links; `claim`, `pod` and `sandbox` make what a cluster would make."""

    netns_of = staticmethod(netns_of)

    def __init__(self, root):
        self.root = root
        self.namespaces = KernelNamespaces(root / "netns")
        self.kubelet = FakeKubelet(root / "k")
        self.config = Config()
        self.api = None
        self.host = None
        self.driver = None
        self._stack = AsyncExitStack()

    @contextlib.asynccontextmanager
    async def there(self):
        options = apiserver.Options(data_dir=self.root / "api", port=0, store_url="memory://")
        async with self._stack:
            server = await self._stack.enter_async_context(apiserver.running(options))
            self.api = Client(LoopbackHttp(server.assembled.server.handle, ADMIN))
            await self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            settings = Settings(socket=self.root / "nri.sock", request_timeout=PATIENCE, synchronize_timeout=PATIENCE)
            self.host = Adaptation(settings, MemoryNode(), runtime_name="podwire", runtime_version="v1", tap=None)
            await self._stack.enter_async_context(self.host.running())
            try:
                yield
            finally:
                for namespace in self.namespaces.list():
                    self.namespaces.remove(namespace.name)

    def options(self, **more):
        return Options(
            node=NODE,
            config=self.config,
            kubelet=self.kubelet.directory,
            state=self.root / "state",
            cdi=self.root / "cdi",
            nri_socket=self.root / "nri.sock",
            **{"limits": DriverLimits(linger=0.05), **more},  # no pod is about to start when a test ends
        )

    @contextlib.asynccontextmanager
    async def driving(self, **more):
        """A driver at work, registered with the runtime."""
        options = self.options(**more)
        parts = assemble(self.api, options)
        driver = Driver(parts)
        tasks = [
            asyncio.ensure_future(driver.run()),
            asyncio.ensure_future(nri.run(driver.plugin, socket=options.nri_socket)),
        ]
        try:
            ready = asyncio.ensure_future(driver.plugin.ready.wait())
            done, _ = await asyncio.wait([ready, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for item in done - {ready}:
                item.result()
            self.driver = driver
            yield driver
        finally:
            for task in tasks:
                task.cancel()
                await asyncio.wait([task])
            parts.answer_lock.release()
            parts.inventory.close()
            parts.attachments.close()
        for task in tasks:
            if not task.cancelled() and task.exception():
                raise task.exception()

    # Links.

    def ip(self, text):
        found = subprocess.run(["ip", "-j", "-d", *text.split()], capture_output=True, text=True, check=True).stdout
        return json.loads(found) if found.strip() else []

    def inside(self, sandbox, text):
        argv = ["nsenter", f"--net={netns_of(sandbox)}", "ip", "-j", *text.split()]
        found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return json.loads(found) if found.strip() else []

    def links_in(self, sandbox):
        """Names of all but the loopback."""
        return sorted(item["ifname"] for item in self.inside(sandbox, "link show") if item["ifname"] != "lo")

    def veth(self, link="lan1", *addresses):
        """A link whose other end stays on the host."""
        self.ip(f"link add {link} type veth peer name {link}p")
        self.ip(f"link set {link} up")
        self.ip(f"link set {link}p up")
        for address in addresses:
            self.ip(f"addr add {address} dev {link}")
        return link

    # Objects.

    async def offered(self, device):
        """Wait until a device is in the slices."""

        async def look():
            listed = (await self.api.list(SLICES)).items
            return [item for of in listed for item in of["spec"].get("devices") or () if item["name"] == device]

        return (await eventually_async(look, explain=lambda: f"{device} is offered"))[0]

    async def pod(self, name_="pod", **spec):
        object_ = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name_, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "busybox"}], "nodeName": NODE, **spec},
        }
        return await self.api.create(object_)

    async def claim(self, *devices, name_="claim", pods=(), interface=None, request="nic", driver=DRIVER, **result):
        """An allocated claim for pods; `interface` is what it says of its own."""
        parameters = {"apiVersion": API_VERSION, "kind": KIND, "interface": interface}
        config = {"opaque": {"driver": DRIVER, "parameters": parameters}} if interface else None
        spec = {
            "devices": {
                "requests": [{"name": request, "exactly": {"deviceClassName": "net", "count": max(len(devices), 1)}}],
                **({"config": [config]} if config else {}),
            }
        }
        object_ = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name_, "namespace": "default"},
            "spec": spec,
        }
        made = await self.api.create(object_)
        if not devices:
            return made
        results = [
            {"request": request, "driver": driver, "pool": NODE, "device": device, **result} for device in devices
        ]
        allocation = {"devices": {"results": results}}
        if config:
            allocation["devices"]["config"] = [{"source": "FromClaim", **config}]
        made["status"] = {"allocation": allocation, **({"reservedFor": reserved_for(pods)} if pods else {})}
        return await self.api.replace(made, subresource="status")

    async def reserve(self, claim, *pods):
        """For these and for nobody else, whatever is reported of the claim meanwhile."""
        change = {"status": {"reservedFor": reserved_for(pods)}}
        return await self.api.patch(CLAIMS, name(claim), change, ns(claim), subresource="status")

    async def status(self, claim):
        return (await self.api.get(CLAIMS, name(claim), ns(claim))).get("status", {}).get("devices", [])

    async def reported(self, claim, status, reason):
        """The claim's devices in its status, once Ready is so of the first of them."""

        async def look():
            devices = await self.status(claim)
            found = [
                condition for device in devices for condition in device["conditions"] if condition["type"] == "Ready"
            ]
            return devices if found and (found[0]["status"], found[0]["reason"]) == (status, reason) else None

        return await eventually_async(look, explain=lambda: f"{name(claim)} is {status}, {reason}")

    async def events(self, reason):
        """About what, and the message."""
        listed = (await self.api.list(EVENTS, Scope(namespace="default"))).items
        return sorted((item["involvedObject"]["kind"], item["message"]) for item in listed if item["reason"] == reason)

    async def both_events(self, reason):
        """Once there is one of the pod and one of the claim."""

        async def look():
            found = await self.events(reason)
            return found if {about for about, _ in found} == {"Pod", "ResourceClaim"} else None

        return await eventually_async(look, explain=lambda: f"{reason} is reported of pod and claim")

    def sandbox(self, pod, id_="sandbox-1", netns=None):
        """A pod as a runtime tells of it, with a network namespace."""
        path = netns or self.namespaces.create(id_).path
        linux = pb.LinuxPodSandbox(namespaces=[pb.LinuxNamespace(type="network", path=str(path))])
        return pb.PodSandbox(id=id_, name=name(pod), namespace=ns(pod), uid=uid(pod), linux=linux)

    async def claimed(self, *devices, pod="pod", **claim):
        """A pod and its claim for these devices, once they are offered."""
        for device in devices:
            await self.offered(device)
        owner = await self.pod(pod)
        return owner, await self.claim(*devices, pods=[owner], **claim)

    async def prepared(self, *devices, **claim):
        """The same, and the kubelet has had it prepared."""
        pod, made = await self.claimed(*devices, **claim)
        (answer,) = await self.kubelet.prepare(made)
        assert answer.error == ""
        return pod, made

    async def attached(self, *devices, **claim):
        """A claim that is prepared, and the sandbox of its pod, which has the devices."""
        pod, made = await self.prepared(*devices, **claim)
        sandbox = self.sandbox(pod)
        await self.host.run_pod_sandbox(sandbox)
        return made, sandbox
