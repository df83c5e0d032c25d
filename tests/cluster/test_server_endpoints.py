"""The endpoints of the Service `kubernetes`, where several API servers share a store."""

import asyncio
import contextlib

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.cluster.server_endpoints import (
    ENDPOINTS,
    LEASE_SECONDS,
    LEASES,
    SLICES,
    ServerEndpoints,
    server_of,
    slices,
    subsets,
)
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
ONE, TWO, OTHER = ("192.0.2.1", 6443), ("192.0.2.2", 6443), ("2001:db8::1", 7443)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def wall(self):
        return 1_800_000_000.0 + self.now

    def monotonic(self):
        return self.now


@pytest.fixture
async def api(tmp_path):
    async with running(Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())) as server:
        yield Client(LoopbackHttp(server.assembled.server.handle, ADMIN))


async def published(api):
    endpoints = await api.get(ENDPOINTS, "kubernetes", "default")
    subsets_ = endpoints.get("subsets") or ()
    listed = {(row["ip"], part["ports"][0]["port"]) for part in subsets_ for row in part["addresses"]}
    items = (await api.list(SLICES, Scope(namespace="default"))).items
    sliced = {(row["addresses"][0], item["ports"][0]["port"]) for item in items for row in item["endpoints"]}
    assert listed == sliced
    return listed


def test_servers_are_grouped_by_port_and_family():
    assert [len(row["addresses"]) for row in subsets([TWO, ONE, OTHER, ONE])] == [2, 1]
    rows = slices([ONE, TWO, OTHER])
    assert [(row["metadata"]["name"], row["addressType"], len(row["endpoints"])) for row in rows] == [
        ("kubernetes", "IPv4", 2),
        ("kubernetes-7443-ipv6", "IPv6", 1),
    ]


@pytest.mark.parametrize("text", ["", "192.0.2.1", "192.0.2.1 x", "host 1"])
def test_a_damaged_address_is_ignored(text):
    assert server_of(text) is None


async def test_a_server_that_was_killed_is_not_an_endpoint_for_long(api):
    clock = Clock()
    first, second, third = (
        ServerEndpoints(api, clock, f"server {number}", server) for number, server in enumerate((ONE, TWO, OTHER))
    )
    for server in (first, second, third):
        await server.renew()
        await server.publish()
    assert await published(api) == {ONE, TWO, OTHER}
    await first.publish()
    clock.now += LEASE_SECONDS + 1
    await first.renew()
    await second.renew()
    await first.publish()
    assert await published(api) == {ONE, TWO}
    scope = Scope(namespace="kube-system", label_selector="podwire.dev/apiserver=true")
    assert len((await api.list(LEASES, scope)).items) == 2


async def test_a_server_that_stops_is_gone_at_once(api):
    clock = Clock()
    first, second = ServerEndpoints(api, clock, "one", ONE), ServerEndpoints(api, clock, "two", TWO)
    await first.renew()
    task = asyncio.create_task(second.keep())

    async def both():
        with contextlib.suppress(Exception):
            return await published(api) == {ONE, TWO}

    await eventually_async(both)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert await published(api) == {ONE}
