"""Bytes between two sockets: untouched, both ways, to the end."""

import asyncio
import contextlib

import pytest

from podwire.nri.proxy import Exchange, Noted, Proxy
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import ConnectionClosed, MuxConnection, Services, connect

SOON = 30.0


class Runtime:
    """Takes connections and keeps what comes."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self.ended = asyncio.Event()

    async def accepted(self, reader, writer):
        self.writers.put_nowait(writer)
        while data := await reader.read(1 << 16):
            self.got += data
        self.ended.set()


@contextlib.asynccontextmanager
async def proxied(tmp_path, accepted):
    seen = []
    server = await asyncio.start_unix_server(accepted, tmp_path / "runtime.sock")
    proxy = Proxy(tmp_path / "runtime.sock", seen.append)
    try:
        async with proxy.listening(tmp_path / "nri.sock"):
            yield tmp_path / "nri.sock", seen, proxy
    finally:
        server.close()


@pytest.mark.parametrize("data", [b"\xff" * 100_000, b"\x00" * 9, b"GET / HTTP/1.0\r\n\r\n"])
async def test_all_bytes_are_forwarded_even_invalid_ones(tmp_path, data):
    runtime = Runtime()
    async with proxied(tmp_path, runtime.accepted) as (path, seen, _), asyncio.timeout(SOON):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(data)
        writer.write_eof()
        await runtime.ended.wait()
        other = await runtime.writers.get()
        other.write(b"back " + data)
        other.close()
        assert await reader.read() == b"back " + data
        writer.close()
    assert bytes(runtime.got) == data
    assert any(isinstance(item, Noted) for item in seen)


async def test_a_missing_runtime_is_reported_and_the_plugin_closed(tmp_path):
    seen = []
    proxy = Proxy(tmp_path / "nobody.sock", seen.append)
    async with proxy.listening(tmp_path / "nri.sock"), asyncio.timeout(SOON):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "nri.sock")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    assert "does not listen" in seen[0].what


async def test_calls_are_seen_and_connections_can_be_cut(tmp_path):
    connections: asyncio.Queue[MuxConnection] = asyncio.Queue()

    async def register(_request):
        return pb.Empty()

    def connection(table, handlers, asks_on, answers_on):
        return MuxConnection(Services(table, handlers), asks_on=asks_on, answers_on=answers_on)

    def runtime():
        made = connection(methods.RUNTIME, {"RegisterPlugin": register}, mux.PLUGIN_SERVICE, mux.RUNTIME_SERVICE)
        connections.put_nowait(made)
        return made

    async def create(_request):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(args=["x"]))

    seen = []
    server = await asyncio.get_running_loop().create_unix_server(runtime, str(tmp_path / "runtime.sock"))
    proxy = Proxy(tmp_path / "runtime.sock", seen.append)
    async with proxy.listening(tmp_path / "nri.sock"), asyncio.timeout(SOON):
        plugin = connection(methods.PLUGIN, {"CreateContainer": create}, mux.RUNTIME_SERVICE, mux.PLUGIN_SERVICE)
        await connect(tmp_path / "nri.sock", plugin)
        named = pb.RegisterPluginRequest(plugin_name="p", plugin_idx="07")
        await plugin.call(methods.REGISTER_PLUGIN, named, within=SOON)
        host = await connections.get()
        big = pb.CreateContainerRequest(container=pb.Container(name="app", env=["x" * 100_000]))
        await host.call(methods.CREATE_CONTAINER, big, within=SOON)
        await proxy.cut()
        await asyncio.wait([plugin.closed, host.closed])
        with pytest.raises(ConnectionClosed):
            await host.call(methods.CREATE_CONTAINER, big, within=SOON)
        await asyncio.gather(plugin.close(), host.close())
    server.close()
    calls = [(item.plugin, item.method, item.changes) for item in seen if isinstance(item, Exchange)]
    assert calls == [("07-p", "RegisterPlugin", []), ("07-p", "CreateContainer", ["adjust.args[0]=x"])]
