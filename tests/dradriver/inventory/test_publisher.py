"""Slices on a real API server: written, kept, put back, whatever others do to them."""

import asyncio
import contextlib
import logging

import pytest

from podwire.cluster.loopback import LoopbackHttp
from podwire.dradriver.inventory.subscribers import Subscribers
from podwire.dradriver.names import NODES, SLICES
from podwire.dradriver.publish.publisher import Publisher, PublishLimits
from podwire.linux.values import Bridge, Veth
from podwire.protocols.k8sapi.client_side import Client, Scope, Unreachable
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

PATIENCE = 60.0
FIRST = "00000-net.podwire.dev-n1"


class Devices:
    """An inventory without a host."""

    def __init__(self, *names: str) -> None:
        self.subscribers = Subscribers()
        self.looked = True
        self.set(*names)

    def set(self, *names: str) -> None:
        self.put([{"name": name, "attributes": {"interface": {"string": name}}} for name in names])

    def put(self, devices: list[dict]) -> None:
        self._devices = tuple(devices)
        self.subscribers.notify()

    def devices(self) -> tuple[dict, ...]:
        return self._devices


class Line:
    """The way to the server: counts what is written, can be cut, and can lose fields on the way."""

    def __init__(self, http: LoopbackHttp) -> None:
        self._http = http
        self.writes: list[tuple[str, str]] = []
        self.cut = False
        self.loses = ""
        self.tried = asyncio.Event()

    async def request(self, method, path, *, query=(), headers=None, body=b""):
        if method != "GET":
            self.writes.append((method, path.rpartition("/")[2]))
            if self.loses:
                body = body.replace(f'"{self.loses}"'.encode(), b'"unknownField"')
        if self.cut:
            self.tried.set()
            raise Unreachable("no connection")
        return await self._http.request(method, path, query=query, headers=headers, body=body)

    async def stream(self, method, path, *, query=(), headers=None):
        if self.cut:
            raise Unreachable("no connection")
        return await self._http.stream(method, path, query=query, headers=headers)


@pytest.fixture
def line(admin_http):
    return Line(admin_http)


@pytest.fixture
def api(admin_http):
    return Client(admin_http)


@pytest.fixture
async def node(api):
    return await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


@pytest.fixture
def publishing(line):
    """`async with publishing(devices) as publisher`: it works meanwhile."""

    @contextlib.asynccontextmanager
    async def run(devices: Devices, **limits):
        publisher = Publisher(Client(line), devices, node="n1", limits=PublishLimits(**limits))
        task = asyncio.create_task(publisher.run())
        try:
            async with asyncio.timeout(PATIENCE):
                yield publisher
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return run


async def slices(api) -> list[dict]:
    return list((await api.list(SLICES, Scope(field_selector="spec.driver=net.podwire.dev"))).items)


async def reported(api) -> list[str]:
    """name@generation/count[devices] of each."""
    found = []
    for device_slice in await slices(api):
        pool = device_slice["spec"]["pool"]
        names = " ".join(device["name"] for device in device_slice["spec"].get("devices") or ())
        found.append(f"{device_slice['metadata']['name']}@{pool['generation']}/{pool['resourceSliceCount']}[{names}]")
    return sorted(found)


@pytest.fixture
def until_slices(api):
    """`await until_slices(...)`: until the slices are these."""

    async def wait(*expected: str) -> None:
        async def look() -> bool:
            return await reported(api) == list(expected)

        await eventually_async(look, explain=lambda: f"slices are {expected}")

    return wait


async def test_devices_are_published_and_belong_to_their_node(api, node, publishing, line):
    async with publishing(Devices("eth1", "eth2")) as publisher:
        await publisher.idle()
    [found] = await slices(api)
    assert await reported(api) == [f"{FIRST}@1/1[eth1 eth2]"]
    assert (found["spec"]["nodeName"], found["spec"]["pool"]["name"]) == ("n1", "n1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}
    assert found["metadata"]["ownerReferences"] == [owner]
    assert line.writes == [("POST", "resourceslices")]


async def test_node_without_devices_publishes_an_empty_slice(api, node, publishing):
    async with publishing(Devices()) as publisher:
        await publisher.idle()
    assert await reported(api) == [f"{FIRST}@1/1[]"]


async def test_nothing_is_written_before_the_host_was_looked_at(api, node, publishing, line):
    devices = Devices()
    devices.looked = False
    await api.create(slice_of(FIRST))
    async with publishing(devices) as publisher:
        await eventually_async(lambda: publisher._synced)
        publisher.publish_now()
        await eventually_async(lambda: not publisher._wake.is_set())  # who writes has had a turn
        devices.looked = True
        devices.set("eth1", "eth2")
        await publisher.idle()
    assert await reported(api) == [f"{FIRST}@1/1[eth1 eth2]"]
    assert line.writes == [("PUT", FIRST)]


async def test_changes_are_written_once_and_unchanged_slices_are_not(api, node, publishing, line, until_slices):
    devices = Devices("eth1")
    async with publishing(devices) as publisher:
        await publisher.idle()
        devices.set("eth1", "eth2")
        await until_slices(f"{FIRST}@1/1[eth1 eth2]")
        devices.set("eth1", "eth2")
        publisher.publish_now()
        devices.set("eth2")
        await until_slices(f"{FIRST}@1/1[eth2]")
    async with publishing(devices) as publisher:
        await publisher.idle()
    assert line.writes == [("POST", "resourceslices"), ("PUT", FIRST), ("PUT", FIRST)]


async def test_many_devices_are_split_and_come_together_again(api, node, publishing, until_slices):
    devices = Devices(*(f"d{number:03}" for number in range(200)))
    async with publishing(devices) as publisher:
        await publisher.idle()
        parts = [len(device_slice["spec"]["devices"]) for device_slice in await slices(api)]
        assert sorted(parts) == [72, 128]
        assert {device_slice["spec"]["pool"]["generation"] for device_slice in await slices(api)} == {1}
        tainted = [*devices.devices()]
        tainted[0] = {**tainted[0], "taints": [{"key": "net.podwire.dev/gone", "effect": "NoSchedule"}]}
        devices.put(tainted)
        await publisher.idle()
        assert sorted(len(device_slice["spec"]["devices"]) for device_slice in await slices(api)) == [8, 64, 64, 64]
        assert {device_slice["spec"]["pool"]["generation"] for device_slice in await slices(api)} == {2}
        devices.set("d000")
        await until_slices(f"{FIRST}@3/1[d000]")


async def test_slice_that_a_kubelet_deletes_is_created_again_at_once(api, node, publishing, until_slices):
    devices = Devices(*(f"d{number:03}" for number in range(130)))
    async with publishing(devices) as publisher:
        await publisher.idle()
        before = await reported(api)
        await api.delete(SLICES, FIRST)
        await until_slices(*before)
        await api.delete_collection(SLICES, Scope(field_selector="spec.nodeName=n1"))
        await until_slices(*(item.replace("@1/", "@2/") for item in before))


async def test_repeated_deletions_are_answered_with_back_off(api, node, publishing):
    async with publishing(Devices("eth1"), deletion_window=600.0) as publisher:
        await publisher.idle()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in range(1, 6):
            await api.delete(SLICES, FIRST)
            await eventually_async(lambda number=number: len(publisher._deleted.get(FIRST, ())) == number)
            await publisher.idle()
        assert loop.time() - begun >= 1.9, "the last two were answered a second later each"
        assert await api.get(SLICES, FIRST)


async def test_slice_that_another_client_changes_is_restored(api, node, publishing, until_slices):
    async with publishing(Devices("eth1")) as publisher:
        await publisher.idle()
        [found] = await slices(api)
        found["spec"]["devices"] = [{"name": "mine"}]
        await api.replace(found)
        await until_slices(f"{FIRST}@1/1[eth1]")


def slice_of(name: str, *, driver: str = "net.podwire.dev", node: str = "n1", pool: str = "n1", generation: int = 1):
    spec = {
        "driver": driver, "nodeName": node, "devices": [{"name": "eth1"}],
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
    }  # fmt: skip
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


async def test_slices_of_an_older_layout_are_removed_and_others_stay(api, node, publishing):
    await api.create(slice_of("n1-net.podwire.dev-abcde", generation=4))
    await api.create(slice_of("old-pool", pool="nics"))
    await api.create(slice_of("neighbour", node="n2", pool="n2"))
    await api.create(slice_of("foreign", driver="gpu.example"))
    async with publishing(Devices("eth1")) as publisher:
        await publisher.idle()
    assert await reported(api) == [f"{FIRST}@5/1[eth1]", "neighbour@1/1[eth1]"]
    assert await api.get(SLICES, "foreign")


async def test_a_node_that_is_not_there_yet_is_waited_for(api, publishing, caplog):
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        async with publishing(Devices("eth1")) as publisher:
            await eventually_async(lambda: caplog.records)
            await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
            await publisher.idle()
    assert await reported(api) == [f"{FIRST}@1/1[eth1]"]
    assert [record.error for record in caplog.records] == ['node "n1" not found']


async def test_recreated_slice_is_owned_by_the_newly_registered_node(api, node, publishing, until_slices):
    async with publishing(Devices("eth1")) as publisher:
        await publisher.idle()
        await api.delete(NODES, "n1")
        again = await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await api.delete(SLICES, FIRST)
        await until_slices(f"{FIRST}@2/1[eth1]")
    [found] = await slices(api)
    assert found["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]


async def test_slices_are_written_when_the_server_is_back(api, node, publishing, line, caplog, until_slices):
    devices = Devices("eth1")
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        async with publishing(devices) as publisher:
            await publisher.idle()
            line.cut = True
            devices.set("eth2")
            await line.tried.wait()
            devices.set("eth3")
            line.tried.clear()
            await line.tried.wait()
            line.cut = False
            await until_slices(f"{FIRST}@1/1[eth3]")
    assert [record.error for record in caplog.records] == ["no connection"]


async def test_a_server_that_is_away_at_the_start_is_waited_for(api, node, publishing, line, until_slices):
    line.cut = True
    async with publishing(Devices("eth1")):
        await line.tried.wait()
        line.cut = False
        await until_slices(f"{FIRST}@1/1[eth1]")


async def test_field_that_the_server_drops_is_not_written_for_ever(api, node, publishing, line, caplog, until_slices):
    line.loses = "allowMultipleAllocations"
    devices = Devices()
    devices.put([{"name": "br0", "allowMultipleAllocations": True}])
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        async with publishing(devices) as publisher:
            await publisher.idle()
            writes = len(line.writes)
            publisher.publish_now()
            devices.put([{"name": "br0", "allowMultipleAllocations": True}, {"name": "eth1"}])
            await until_slices(f"{FIRST}@1/1[br0 eth1]")
            await publisher.idle()
    assert len(line.writes) == writes + 1
    assert len(caplog.records) == 1, "it is reported once"


async def test_device_that_the_server_refuses_is_left_out(api, node, publishing, caplog, until_slices):
    devices = Devices("eth1", "eth2", "BAD", "eth3")
    long = {"name": "eth4", "attributes": {"alias": {"string": "x" * 65}, "mtu": {"int": 1500}}}
    devices.put([*devices.devices(), long])
    with caplog.at_level(logging.ERROR, "podwire.dradriver"):
        async with publishing(devices) as publisher:
            await publisher.idle()
            assert await reported(api) == [f"{FIRST}@1/1[eth1 eth2 eth3 eth4]"]
            [found] = await slices(api)
            assert found["spec"]["devices"][-1]["attributes"] == {"mtu": {"int": 1500}}
            left_out = [(record.device, getattr(record, "attribute", "")) for record in caplog.records]
            assert left_out == [("BAD", ""), ("eth4", "alias")]
            devices.put([{**long, "attributes": {"alias": {"string": "short"}}}])
            await until_slices(f"{FIRST}@1/1[eth4]")
    [found] = await slices(api)
    assert found["spec"]["devices"][0]["attributes"] == {"alias": {"string": "short"}}


async def test_two_instances_write_the_same_slices(api, node, publishing, line):
    devices = Devices(*(f"d{number:03}" for number in range(130)))
    async with publishing(devices) as first, publishing(devices) as second:
        await first.idle()
        await second.idle()
        devices.set("eth1")
        await first.idle()
        await second.idle()
    assert [item.partition("@")[0] for item in await reported(api)] == [FIRST]
    assert (await reported(api))[0].endswith("/1[eth1]")


async def test_slice_of_another_driver_with_our_name_is_not_touched(api, node, publishing, caplog, until_slices):
    await api.create(slice_of(FIRST, driver="gpu.example"))
    with caplog.at_level(logging.WARNING, "podwire.dradriver"):
        async with publishing(Devices("eth1")):
            await eventually_async(lambda: caplog.records)
            assert "already exists" in caplog.records[0].error
            assert (await api.get(SLICES, FIRST))["spec"]["driver"] == "gpu.example"
            with contextlib.suppress(ApiError):
                await api.delete(SLICES, FIRST)
            await until_slices(f"{FIRST}@1/1[eth1]")


async def test_new_link_appears_in_a_slice(api, node, publishing, host, running, until_slices):
    host.made("outside")
    host.links.add(Veth("eth1", "far", host.namespaces.path("outside"), up=True))
    far = host.opened("outside").links
    far.change("far", up=True)
    host.links.add(Bridge("br0"))
    inventory = host.inventory()
    async with running(inventory), publishing(inventory) as publisher:
        await until_slices(f"{FIRST}@1/1[br0 eth1]")
        await publisher.idle()
        far.change("far", up=False)
        await eventually_async(lambda: not inventory.health()["eth1"].healthy)
        await publisher.idle()
        [found] = await slices(api)
        [taint] = found["spec"]["devices"][1]["taints"]
        assert (taint["key"], taint["effect"]) == ("net.podwire.dev/no-carrier", "NoSchedule")
        assert found["spec"]["devices"][0]["capacity"]["slots"]["value"] == "16"
        host.links.delete("eth1")
        await until_slices(f"{FIRST}@1/1[br0]")
