"""A host on a real socket, and plugins that record what they receive."""

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podwire.nri.adaptation import Adaptation, Settings
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import Gathered
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import MuxConnection, Services, connect

PATIENCE = 60.0
"""Seconds after which something that must happen has not."""


class MemoryNode:
    """Applies updates by noting them; those of `failing` fail."""

    def __init__(self):
        self.updates = []
        self.failing = set()

    async def update_containers(self, updates):
        self.updates.extend(updates)
        return [update for update in updates if update.container_id in self.failing]


class NotingPlugin:
    """Speaks NRI itself, so it can do what no plugin should. `hooks` answer instead of it, by method."""

    def __init__(self, path, index="10", name="noting", *, events=0, hooks=None, only=None):
        self._path, self.index, self.name, self._events = path, index, name, events
        self._hooks = hooks or {}
        self._only = only
        self.heard = []
        self.knows = []
        self.configured = None
        self.synchronized = asyncio.Event()
        self._gathered = Gathered()
        self.connection = self._made()

    def _made(self):
        handlers = {method.name: self._noting(method) for method in methods.PLUGIN}
        handlers |= {"Configure": self._configure, "Synchronize": self._synchronize}
        handlers |= self._hooks
        if self._only is not None:
            handlers = {name: each for name, each in handlers.items() if name in self._only}
        services = Services(methods.PLUGIN, handlers)
        return MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)

    def _noting(self, method):
        async def note(request):
            self.note(method.name, request)
            return method.response()

        return note

    def note(self, name, request):
        event = pb.Event.Name(request.event) + " " if name == "StateChange" else ""
        about = request.container.id if "container" in request.DESCRIPTOR.fields_by_name else ""
        self.heard.append(f"{name} {event}{about or request.pod.id}")

    async def _configure(self, request):
        self.configured = request
        return pb.ConfigureResponse(events=self._events)

    async def _synchronize(self, request):
        if self._gathered.add(request):
            self.knows = [pod.id for pod in (*self._gathered.pods, *self._gathered.containers)]
            self.synchronized.set()
        return pb.SynchronizeResponse(more=request.more)

    async def connect(self):
        await connect(self._path, self.connection)
        return self

    async def register(self):
        request = pb.RegisterPluginRequest(plugin_name=self.name, plugin_idx=self.index, NRI_version="v0.12.0")
        await self.connection.call(methods.REGISTER_PLUGIN, request, within=PATIENCE)
        return self

    async def closed(self):
        async with asyncio.timeout(PATIENCE):
            return await self.connection.wait_closed()

    async def leave(self):
        await self.connection.close()


class Stage:
    """One test's host with its plugins."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = folder / "nri" / "nri.sock"
        self.node = MemoryNode()
        self.host = None
        self._plugins = []

    @asynccontextmanager
    async def hosting(self, *, tap=None, know=((), ()), **settings):
        chosen = {"socket": self.socket, "request_timeout": PATIENCE, "synchronize_timeout": PATIENCE} | settings
        self.host = Adaptation(Settings(**chosen), self.node, runtime_name="podwire", runtime_version="v1", tap=tap)
        self.host.know(*know)
        async with asyncio.timeout(110), self.host.running():
            try:
                yield self.host
            finally:
                for plugin in self._plugins:
                    await plugin.leave()

    def plugin(self, index="10", name="noting", **reported):
        made = NotingPlugin(self.socket, index, name, **reported)
        self._plugins.append(made)
        return made

    async def join(self, index="10", name="noting", **reported):
        """A plugin that is active."""
        plugin = self.plugin(index, name, **reported)
        await plugin.connect()
        await plugin.register()
        async with asyncio.timeout(PATIENCE):
            await self.host.wait_for(f"{index}-{name}")
        return plugin


@pytest.fixture
def stage():
    folder = Path(tempfile.mkdtemp(prefix="podwire-nri-"))  # a socket's path must be short
    yield Stage(folder)
    shutil.rmtree(folder)


@pytest.fixture
def pod():
    """A pod by its id; on the node's network when it says so."""

    def made(name="p1", *, host_network=False, **annotations):
        kinds = ["uts"] if host_network else ["uts", "network"]
        linux = pb.LinuxPodSandbox(namespaces=[pb.LinuxNamespace(type=kind) for kind in kinds])
        given = {key.replace("__", "/"): value for key, value in annotations.items()}
        return pb.PodSandbox(id=name, name=name, namespace="default", uid=name, linux=linux, annotations=given)

    return made


@pytest.fixture
def container():
    def made(name="c1", pod="p1", **fields):
        return pb.Container(id=name, name=name, pod_sandbox_id=pod, **fields)

    return made
