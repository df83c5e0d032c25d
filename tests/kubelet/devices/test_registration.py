"""Device plugins come and go: by the wire, against a whole kubelet."""

import asyncio
import shutil
import threading

import grpc
import pytest

from podwire.kubelet import plugin_manager
from podwire.kubelet.devices import registration
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.eventually import eventually_async

NODES = BUILTIN.of_kind("v1", "Node")
NIC = "example.org/nic"
SOON = 30.0


async def node_has(world, capacity, allocatable, name=NIC):
    """Waits until the Node says so."""

    def reported(node):
        status = (node or {}).get("status") or {}
        found = (status.get("capacity") or {}).get(name), (status.get("allocatable") or {}).get(name)
        return found == (capacity, allocatable)

    return await world.until(reported, kind=NODES)


async def registered(plugin):
    await asyncio.to_thread(plugin.serve)
    await asyncio.to_thread(plugin.register)


async def test_a_plugin_registers_and_the_node_has_its_devices(world, device_plugin, device):
    plugin = device_plugin(devices=["a", "b", device("c", "Unhealthy")])
    await registered(plugin)
    await node_has(world, "3", "2")
    await asyncio.to_thread(plugin.list, "a", "b", "c", "d")
    await node_has(world, "4", "4")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"version": "v1alpha1"}, 'requested API version "v1alpha1" is not supported'),
        ({"resource": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"resource": "kubernetes.io/nic"}, 'the ResourceName "kubernetes.io/nic" is invalid'),
        ({"resource": "example.org/nic of mine"}, 'the ResourceName "example.org/nic of mine" is invalid'),
        ({"endpoint": "../nic.sock"}, 'the endpoint "../nic.sock" is invalid'),
        ({"endpoint": ""}, 'the endpoint "" is invalid'),
        ({"endpoint": "kubelet.sock"}, 'the endpoint "kubelet.sock" is invalid'),
        ({"endpoint": "x" * 200}, "has 2"),
    ],
    ids=["version", "cpu", "Kubernetes' own", "no name", "elsewhere", "nowhere", "the kubelet's", "too long"],
)
async def test_an_invalid_registration_is_rejected_with_the_reason(world, device_plugin, asked, why):
    plugin = device_plugin()
    with pytest.raises(grpc.RpcError) as refused:
        await asyncio.to_thread(plugin.register, **asked)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert why in refused.value.details()


async def test_a_name_that_a_living_plugin_has_is_not_given_to_another(world, device_plugin):
    await registered(device_plugin(devices=["a"]))
    await node_has(world, "1", "1")
    other = device_plugin(devices=["x", "y"], endpoint="other.sock")
    with pytest.raises(grpc.RpcError) as refused:
        await registered(other)
    assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert "nic.sock" in refused.value.details()


async def test_devices_of_a_dead_plugin_are_not_allocatable(world, device_plugin):
    plugin = device_plugin(devices=["a", "b"])
    await registered(plugin)
    await node_has(world, "2", "2")
    await asyncio.to_thread(plugin.kill)
    await node_has(world, "2", "0")
    await registered(plugin)
    await node_has(world, "2", "2")


async def test_a_resource_without_a_plugin_disappears_after_the_grace_period(world, device_plugin):
    await world.stop()
    world.start(grace=0.3)
    plugin = device_plugin(devices=["a", "b"])
    await registered(plugin)
    await node_has(world, "2", "2")
    await asyncio.to_thread(plugin.kill)
    await node_has(world, None, None)


async def test_a_returning_plugin_has_a_whole_grace_period_again(world, device_plugin):
    def tasks():
        return {task.get_name() for task in asyncio.all_tasks()}

    plugin = device_plugin(devices=["a"])
    await registered(plugin)
    await node_has(world, "1", "1")
    await world.stop()
    world.start()
    await eventually_async(lambda: not plugin.socket.exists())
    assert f"grace period of {NIC}" in tasks()
    await asyncio.to_thread(plugin.kill)
    await registered(plugin)
    await node_has(world, "1", "1")
    assert f"grace period of {NIC}" not in tasks(), "what the start of the kubelet began is over"


async def test_flapping_and_duplicate_devices_are_counted_once(world, device_plugin, device):
    plugin = device_plugin(devices=["a"])
    await registered(plugin)
    for number in range(100):
        await asyncio.to_thread(plugin.list, "a", device("b", "Unhealthy" if number % 2 else "Healthy"))
    await asyncio.to_thread(plugin.list, "a", "a", "", device("b", "Unhealthy"), device("a"), device("c", "odd"))
    await node_has(world, "3", "1")


async def test_a_kubelet_that_starts_removes_sockets_so_that_plugins_notice(world, device_plugin, root):
    plugin = device_plugin(devices=["a"])
    await registered(plugin)
    await node_has(world, "1", "1")
    await world.stop()
    (root / "device-plugins" / "notes.txt").write_text("not a socket")
    world.start()
    await node_has(world, "0", "0")  # what it knows of before; what it finds is removed at the same time
    await eventually_async(lambda: not plugin.socket.exists())
    assert (root / "device-plugins" / "notes.txt").exists()
    await asyncio.to_thread(plugin.kill)
    await registered(plugin)
    await node_has(world, "1", "1")


async def test_ten_thousand_devices_are_accepted(world, device_plugin):
    plugin = device_plugin(devices=[f"d{number}" for number in range(10_000)])
    await registered(plugin)
    await node_has(world, "10k", "10k")


async def test_a_plugin_may_announce_itself_by_its_socket_in_the_registry(world, device_plugin, root):
    plugin = device_plugin(devices=["a", "b"], endpoint="nic-reg.sock")
    plugin.directory = root / "plugins_registry" / "deeper"
    await asyncio.to_thread(plugin.serve)
    assert await asyncio.to_thread(plugin.announced.get, timeout=30) == (True, "")
    await node_has(world, "2", "2")
    await asyncio.to_thread(plugin.kill)
    plugin.socket.unlink(missing_ok=True)
    await node_has(world, "2", "0")
    await asyncio.to_thread(plugin.serve)  # a socket of the same name is another announcement
    assert await asyncio.to_thread(plugin.announced.get, timeout=30) == (True, "")
    await node_has(world, "2", "2")


async def test_a_plugin_that_registers_during_start_up_is_accepted(world, device_plugin, root, monkeypatch):
    await world.stop()
    gate = threading.Event()
    monkeypatch.setattr(registration, "clear", lambda _: gate.wait(SOON))
    world.start()
    plugin = device_plugin(devices=["a"], endpoint="nic-reg.sock")
    plugin.directory = root / "plugins_registry"
    await asyncio.to_thread(plugin.serve)
    try:
        assert await asyncio.to_thread(plugin.announced.get, timeout=SOON) == (True, "")
    finally:
        gate.set()
    await node_has(world, "1", "1")


async def test_without_a_socket_plugins_register_by_the_plugin_directory(world, device_plugin, root, caplog):
    await eventually_async((root / "device-plugins" / "kubelet.sock").exists)
    await world.stop()
    shutil.rmtree(root / "device-plugins")
    (root / "device-plugins").write_text("not a directory")
    world.start()
    plugin = device_plugin(devices=["a"], endpoint="nic-reg.sock")
    plugin.directory = root / "plugins_registry"
    await asyncio.to_thread(plugin.serve)
    await node_has(world, "1", "1")
    assert "cannot listen for device plugins" in caplog.text
    await world.stop()
    (root / "device-plugins").unlink()


async def test_a_path_too_long_for_a_socket_is_reported_and_ignored(world, caplog):
    await world.stop()
    world.root /= "x" * 90
    world.start()
    await world.make()
    await world.running()
    assert "cannot listen for device plugins" in caplog.text


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"type": "X"}, "no handler registered for plugin type: X; there are CSIPlugin, DRAPlugin, DevicePlugin"),
        ({"versions": ["v7"]}, 'requested API version "v7" is not supported'),
        ({"resource": "cpu"}, 'the ResourceName "cpu" is invalid'),
    ],
    ids=["type", "version", "name"],
)
async def test_a_rejected_plugin_is_notified_of_the_reason(world, device_plugin, root, what, why):
    plugin = device_plugin(endpoint="x-reg.sock")
    plugin.directory = root / "plugins_registry"
    for name, value in what.items():
        setattr(plugin, name, value)
    await asyncio.to_thread(plugin.serve)
    taken, said = await asyncio.to_thread(plugin.announced.get, timeout=30)
    assert not taken
    assert why in said


async def test_regular_and_hidden_files_are_not_plugins(root):
    (root / "file").write_text("")
    (root / ".hidden").mkdir()
    assert plugin_manager._list_sockets(root) == set()


def test_only_sockets_are_cleared_away(root):
    (root / "kept").write_text("")
    registration.clear(root)
    assert [path.name for path in root.iterdir()] == ["kept"]
