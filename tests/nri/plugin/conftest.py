"""The smallest runtime there can be: a connection per plugin, and nothing that it does by itself."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from podwire.nri import pb, run
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import methods
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import MuxConnection, Services

PATIENCE = 30.0


class ConnectedPlugin:
    """One plugin, as the runtime sees it."""

    def __init__(self, runtime: "FakeRuntime") -> None:
        self._runtime = runtime
        self.registered: asyncio.Future[pb.RegisterPluginRequest] = asyncio.get_running_loop().create_future()
        self.updates: list[pb.ContainerUpdate] = []
        handlers = {"RegisterPlugin": self._register, "UpdateContainers": self._update}
        self.connection = MuxConnection(
            Services(methods.RUNTIME, handlers), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE
        )

    async def _register(self, request):
        if self._runtime.is_silent:
            self._runtime.turned_away.put_nowait("silence")
            await asyncio.Event().wait()
        if self._runtime.refusal is not None:
            self._runtime.turned_away.put_nowait("refusal")
            raise self._runtime.refusal
        self.registered.set_result(request)
        self._runtime.peers.put_nowait(self)
        return pb.Empty()

    async def _update(self, request):
        self.updates.extend(request.update)
        return pb.UpdateContainersResponse(failed=[item for item in request.update if item.container_id == "gone"])

    async def ask(self, method, request=None, *, within=PATIENCE, metadata=()):
        return await self.connection.call(method, request or method.request(), within=within, metadata=metadata)

    async def configure(self, *, version="v0.12.2", milliseconds=20_000, config="", runtime="fake", release="1.0"):
        """The mask that the plugin asks for."""
        result = pb.ConfigureRequest(
            config=config,
            runtime_name=runtime,
            runtime_version=release,
            registration_timeout=5000,
            request_timeout=milliseconds,
            NRI_version=version,
        )
        return (await self.ask(methods.CONFIGURE, result)).events

    async def synchronize(self, pods=(), containers=(), *, more=False):
        return await self.ask(methods.SYNCHRONIZE, pb.SynchronizeRequest(pods=pods, containers=containers, more=more))

    async def welcome(self, pods=(), **configured):
        """Configure, then Synchronize."""
        mask = await self.configure(**configured)
        await self.synchronize(pods)
        return mask


class FakeRuntime:
    """Waits for plugins at a path; each that registers comes out of `peer()`."""

    def __init__(self, path) -> None:
        self.path = path
        self.peers: asyncio.Queue[ConnectedPlugin] = asyncio.Queue()
        self.connected = 0
        self.refusal: RpcError | None = None
        self.turned_away: asyncio.Queue[str] = asyncio.Queue()
        self.is_silent = False
        self._all: list[ConnectedPlugin] = []
        self._server: asyncio.Server | None = None

    def _accept(self) -> MuxConnection:
        self.connected += 1
        self._all.append(ConnectedPlugin(self))
        return self._all[-1].connection

    async def listen(self) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, self.path)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            os.unlink(self.path)  # noqa: PTH108 - a system call, at once
            self._server = None
        for item in self._all:
            await item.connection.close("the runtime stops")

    async def over(self, connected) -> ConnectedPlugin:
        """Speak over a connection that is there already."""
        from podwire.transports.mux_connection import over_socket

        await over_socket(connected, self._accept())
        return self._all[-1]

    async def peer(self) -> ConnectedPlugin:
        async with asyncio.timeout(PATIENCE):
            return await self.peers.get()


@pytest.fixture
async def runtime(tmp_path) -> AsyncIterator[FakeRuntime]:
    """Not listening yet."""
    fake = FakeRuntime(str(tmp_path / "nri.sock"))
    yield fake
    await fake.stop()


@pytest.fixture
def living(runtime):
    """Let a plugin live at the runtime's path, for as long as the block lasts."""

    @asynccontextmanager
    async def living(plugin, **more):
        task = asyncio.create_task(run(plugin, socket=runtime.path, environ={}, **more))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return living


@pytest.fixture
def synchronized(runtime, living):
    """A plugin that is configured and synchronized, and its peer."""

    @asynccontextmanager
    async def synchronized(plugin, **configured):
        if runtime._server is None:
            await runtime.listen()
        async with living(plugin):
            peer = await runtime.peer()
            await peer.welcome(**configured)
            yield peer

    return synchronized


@pytest.fixture
def pod_named():
    """A pod with a network of its own, or without any word on it."""

    def pod_named(name, netns=""):
        spaces = [pb.LinuxNamespace(type="pid"), pb.LinuxNamespace(type="network", path=netns)] if netns else []
        return pb.PodSandbox(
            id=f"id-{name}", name=name, namespace="default", linux=pb.LinuxPodSandbox(namespaces=spaces)
        )

    return pod_named
