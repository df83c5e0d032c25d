"""Answers to kubelet, runtime and operators while another instance of the driver has the lock."""

import asyncio
import re

import pytest

from podwire.cluster.network_driver import _SocketServer
from podwire.dradriver.driver import exclusive_start
from podwire.dradriver.instances import Busy, InstanceLimits, InstanceLock
from podwire.dradriver.names import DRIVER
from podwire.dradriver.publish.sockets import sockets
from podwire.protocols.grpc_status import RpcError
from tests.eventually import eventually_async

NET1 = {"name": "net1"}


async def test_no_call_hangs_while_another_instance_has_the_lock(driver_node):
    """A stopped instance keeps it; kubelet, runtime and operators get an error, and all works afterwards."""
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving(instance_limits=InstanceLimits(prepare=0.2, hook=0.2, report=0.0)) as driver:
        await node.kubelet.register()
        for item in ("lan1", "lan2"):
            await node.offered(item)
        pods = [await node.pod(name) for name in ("first", "second")]
        first = await node.claim("lan1", name_="first", pods=pods[:1], interface=NET1)
        second = await node.claim("lan2", name_="second", pods=pods[1:], interface=NET1)
        await node.kubelet.prepare(first)
        sandbox = node.sandbox(pods[0])
        holds = "another instance of the driver, process .* holds .*serialize.lock"
        async with InstanceLock(sockets(node.kubelet.directory, DRIVER).lock).held():
            (answer,) = await node.kubelet.prepare(second)
            assert re.search(holds, answer.error)
            with pytest.raises(RpcError, match=holds):
                await node.host.run_pod_sandbox(sandbox)
            assert re.search(holds, "\n".join(driver.not_ready()))
            (error,) = await node.kubelet.unprepare(first)
            assert re.search(holds, error)
        await eventually_async(lambda: driver.not_ready() == [])
        (answer,) = await node.kubelet.prepare(second)
        assert answer.error == ""
        await node.host.run_pod_sandbox(sandbox)
        assert node.links_in(sandbox) == ["net1"]
        assert driver.not_ready() == []
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(first, second) == ["", ""]


async def test_waiting_instance_answers_kubelets_with_the_lock_holder(driver_node):
    node = driver_node
    places = sockets(node.kubelet.directory, DRIVER, "22222222-bbbb")
    claim = await node.claim(name_="lan")
    mine = InstanceLock(places.lock, "22222222-bbbb", InstanceLimits(start=0.1))

    async def begin():
        async with exclusive_start(mine, _SocketServer(), places):
            assert not places.dra.exists()

    async with InstanceLock(places.lock, "11111111-aaaa").held():
        beginning = asyncio.ensure_future(begin())
        await node.kubelet.register(places.registration.name)
        (answer,) = await node.kubelet.prepare(claim, socket=places.dra.name)
        assert answer.error.startswith("another instance of the driver, process ")
        assert "of pod 11111111-aaaa" in answer.error
        (error,) = await node.kubelet.unprepare(claim, socket=places.dra.name)
        assert error == answer.error
    await beginning


async def test_an_instance_without_sockets_of_its_own_ends_instead(driver_node):
    node = driver_node
    places = sockets(node.kubelet.directory, DRIVER)
    async with node.driving():
        await node.kubelet.register()
        async with InstanceLock(places.lock).held():
            lock = InstanceLock(places.lock, limits=InstanceLimits(start=0.1))
            with pytest.raises(Busy, match="another instance of the driver"):
                async with exclusive_start(lock, _SocketServer(), places):
                    pytest.fail("it began")
