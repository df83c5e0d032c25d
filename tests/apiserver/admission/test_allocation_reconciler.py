"""Side effects of stored objects inside the server: records of addresses and ports of Services are reconciled."""

import pytest

from podwire.apiserver.admission.service_allocations import ADDRESSES, NODE_PORTS, ServiceAllocations
from podwire.apiserver.limits import Limits
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

SERVICES = "/api/v1/namespaces/default/services"
IPS = "/apis/networking.k8s.io/v1/ipaddresses"
WEB = {"metadata": {"namespace": "default", "name": "web"}}


async def keys(api):
    return {item.key for prefix in (ADDRESSES, NODE_PORTS) for item in (await api.store.list(prefix)).items}


@pytest.fixture
def crashed():
    """Leftovers of a server that died between allocation and storage: an address and a port of `default/web`."""

    async def leave(api):
        records = ServiceAllocations(api.store, api.clock)
        for key in (f"{ADDRESSES}10.96.0.10", f"{NODE_PORTS}30080"):
            assert await records.take(key, WEB)

    return leave


async def test_leftovers_of_a_crash_are_removed_when_they_are_orphaned(api, crashed):
    before = await keys(api)
    await crashed(api)

    await api.assembled.addresses.sweep()
    assert len(await keys(api)) == len(before) + 2
    api.clock.move(Limits().allocation_age + 1)
    await api.assembled.addresses.sweep()

    assert await keys(api) == before


async def test_an_allocation_in_use_is_not_removed_however_old(api):
    await api.made(SERVICES, {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    before = await keys(api)
    api.clock.move(100_000)

    await api.assembled.addresses.sweep()

    assert await keys(api) == before


async def test_an_allocation_left_by_a_crash_is_given_to_its_service(api, crashed):
    await crashed(api)
    ports = [{"port": 80, "nodePort": 30080}]
    spec = {"type": "NodePort", "clusterIP": "10.96.0.10", "ports": ports}

    made = await api.made(SERVICES, {"metadata": {"name": "web"}, "spec": spec})

    assert made["spec"]["clusterIP"] == "10.96.0.10"
    api.clock.move(Limits().allocation_age + 1)
    await api.assembled.addresses.sweep()
    assert f"{ADDRESSES}10.96.0.10" in await keys(api)


async def test_a_server_that_died_while_it_made_its_own_service_starts_again(serve):
    store = MemoryStore()
    own = {"metadata": {"namespace": "default", "name": "kubernetes"}}
    await ServiceAllocations(store, SystemClock()).take(f"{ADDRESSES}10.96.0.1", own)

    api = await serve(store)

    assert (await api.get(f"{SERVICES}/kubernetes")).body["spec"]["clusterIP"] == "10.96.0.1"


async def test_a_record_that_was_lost_is_made_again(api):
    made = await api.made(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    address = made["spec"]["clusterIP"]
    await api.delete(f"{IPS}/{address}")
    assert f"{ADDRESSES}{address}" not in await keys(api)

    await api.assembled.addresses.sweep()

    assert f"{ADDRESSES}{address}" in await keys(api)


async def test_a_manually_reserved_address_is_left_alone(api):
    parent = {"resource": "services", "namespace": "default", "name": "later"}
    await api.made(IPS, {"metadata": {"name": "10.96.0.77"}, "spec": {"parentRef": parent}})
    api.clock.move(100_000)

    await api.assembled.addresses.sweep()

    assert (await api.get(f"{IPS}/10.96.0.77")).status == 200
    spec = {"clusterIP": "10.96.0.77", "ports": [{"port": 80}]}
    assert (await api.post(SERVICES, {"metadata": {"name": "web"}, "spec": spec})).status == 422
