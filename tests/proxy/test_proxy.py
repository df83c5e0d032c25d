"""The whole proxy in a network namespace, with an API server that is a table of objects."""

import asyncio
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.values import Element
from podwire.proxy.kernel import Kernel
from podwire.proxy.plan import frontend
from podwire.proxy.program import TABLE
from podwire.proxy.proxy import Limits, Proxy, ProxySettings
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async
from tests.proxy.world import SETTINGS, World

VIP = "10.96.0.10"


class NoChanges:
    """A watch in which nothing happens."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


class Api:
    """Lists objects; nothing is ever changed."""

    def __init__(self, *objects: dict) -> None:
        self._objects = objects

    async def page(self, kind, scope, *, limit, token) -> bytes:
        items = [row for row in self._objects if row["kind"] == kind.kind]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})

    async def watch(self, *_arguments, **_options) -> NoChanges:
        return NoChanges()

    @asynccontextmanager
    async def informer(self, *_arguments):
        yield NoChanges()


def objects(world: World, *endpoints: str) -> tuple[dict, dict]:
    meta = {"name": "dns", "namespace": "default"}
    ports = [{"name": "dns", "port": 80, "protocol": "UDP"}]
    slice_ = {
        "kind": "EndpointSlice",
        "metadata": {**meta, "labels": {"kubernetes.io/service-name": "dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [world.ip(name)], "nodeName": "here"} for name in endpoints],
        "ports": [{"name": "dns", "port": 8080, "protocol": "UDP"}],
    }
    return {"kind": "Service", "metadata": meta, "spec": {"clusterIPs": [VIP], "ports": ports}}, slice_


@asynccontextmanager
async def running(world: World, *endpoints: str):
    kernel, conntrack = Kernel(world.node), KernelConntrack(world.node)
    settings = ProxySettings(node="here", pods=SETTINGS.pods, limits=Limits(audit=0.05))

    async def listen(_port, _handler):
        raise OSError("no health ports here")

    proxy = Proxy(Api(*objects(world, *endpoints)), SystemClock(), kernel, conntrack, settings, listen=listen)
    task = asyncio.create_task(proxy.run())
    try:
        await asyncio.wait_for(proxy.synced.wait(), 10)
        yield proxy
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        kernel.close()
        conntrack.close()


async def test_datagrams_find_another_endpoint_when_theirs_went_while_the_proxy_was_down(world):
    async with running(world, "a"):
        datagrams = world.datagram("c", VIP)
    with datagrams:

        def server() -> str:
            datagrams.send(b"x")
            return datagrams.recv(100).split()[0].decode()

        assert server() == "a"
        async with running(world, "b"):
            await eventually_async(lambda: server() == "b")
        async with running(world, "b"):
            assert server() == "b"


async def test_the_proxy_puts_an_element_again_that_others_deleted(world):
    elements = KernelElements(world.node, TABLE)
    key = frontend(4, VIP, 17, 80)
    try:
        async with running(world, "a"):
            elements.delete("frontends4", Element(key))
            await eventually_async(lambda: elements.get("frontends4", key) is not None)
    finally:
        elements.close()


@pytest.fixture
def world(shared_world):
    shared_world.clear()
    yield shared_world
    shared_world.kernel.remove()
    shared_world.clear()
