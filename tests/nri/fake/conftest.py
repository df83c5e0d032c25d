"""The runtime's side by hand, for one plugin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podwire.nri.fake import FakePlugin, read_script
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import MuxConnection, Services

SOON = 30.0


class RuntimeSide:
    """A runtime that takes one plugin after another, and calls it on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection: MuxConnection
        self.accepted: asyncio.Queue[MuxConnection] = asyncio.Queue()
        self.registered: asyncio.Queue[pb.RegisterPluginRequest] = asyncio.Queue()
        self.updates: asyncio.Queue[pb.UpdateContainersRequest] = asyncio.Queue()
        self.reported: list[dict] = []

    def accept(self) -> MuxConnection:
        handlers = {"RegisterPlugin": self._register, "UpdateContainers": self._update}
        self.connection = MuxConnection(
            Services(methods.RUNTIME, handlers), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE
        )
        self.accepted.put_nowait(self.connection)
        return self.connection

    async def _register(self, request):
        self.registered.put_nowait(request)
        return pb.Empty()

    async def _update(self, request):
        self.updates.put_nowait(request)
        return pb.UpdateContainersResponse(failed=request.update)

    async def call(self, method, request=None, within=SOON):
        return await self.connection.call(method, request or method.request(), within=within)

    async def register(self) -> pb.RegisterPluginRequest:
        async with asyncio.timeout(SOON):
            return await self.registered.get()

    def tell(self, facts) -> None:
        self.reported.append(dict(facts))

    def calls(self) -> list[dict]:
        return [item for item in self.reported if "call" in item]

    @contextlib.asynccontextmanager
    async def plugin(self, script: str, *, registers: bool = True) -> AsyncIterator[asyncio.Task]:
        """A plugin with this script, until it is of no use any more."""
        fake = FakePlugin(read_script(script), self.tell)
        task = asyncio.create_task(fake.run(str(self.path)))
        try:
            if registers:
                await self.register()
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if hasattr(self, "connection"):
                self.connection.abort("the test is over")


@pytest.fixture
async def runtime_side(tmp_path) -> AsyncIterator[RuntimeSide]:
    made = RuntimeSide(tmp_path / "nri.sock")
    server = await asyncio.get_running_loop().create_unix_server(made.accept, str(made.path))
    try:
        yield made
    finally:
        server.close()
