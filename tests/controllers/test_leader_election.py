"""Leader election by a Lease on a real API server."""

import asyncio
import contextlib

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import IDENTITY, StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import CONFIG_MAPS, LEASES, VOLUMES
from podwire.controllers.leader_election import OWN_LEASE, Election, LeaderElector, LostLease, identity_of, taken
from podwire.objects.persistent_volumes import LOCAL_PATH, SELECTED_NODE, STORAGE_PROVISIONERS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.controllers.volumes.objects import claim, storage_class
from tests.eventually import eventually_async

QUICK = {"lease_seconds": 1.0, "renew_deadline": 0.5, "retry_seconds": 0.05}


@pytest.fixture
async def server(tmp_path):
    async with running(Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())) as made:
        yield made.assembled


def client(server, identity=IDENTITY):
    return Client(LoopbackHttp(server.server.handle, identity))


async def lease(api, name="kube-controller-manager"):
    try:
        return (await api.get(LEASES, name, "kube-system"))["spec"]
    except ApiError as error:
        if error.code != 404:
            raise
        return {}


@contextlib.asynccontextmanager
async def candidate(server, name, **times):
    """Controllers that stand for election."""
    feed = StoreFeed(server.engine.store, server.engine.registry)
    election = Election(identity=name, **{**QUICK, **times})
    task = asyncio.create_task(
        controllers.run(client(server), feed, SystemClock(), root_ca=name, election=election), name=name
    )
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await task


async def published(api):
    """Returns the root CA in the namespace default: the name of the candidate that acts."""
    try:
        return (await api.get(CONFIG_MAPS, "kube-root-ca.crt", "default"))["data"]["ca.crt"]
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def test_one_of_two_candidates_acts_and_the_other_follows_its_release(server):
    api = client(server)
    async with candidate(server, "one"):
        await eventually_async(lambda: published(api))
        async with candidate(server, "two") as second:
            await asyncio.sleep(0.3)
            assert await published(api) == "one"
            assert (await lease(api))["holderIdentity"] == "one"
            renewed = (await lease(api))["renewTime"]
            await eventually_async(lambda: _differs(api, renewed))
            assert not second.done()
    async with candidate(server, "three"):

        async def leads():
            return (await lease(api))["holderIdentity"] == "three" and await published(api) == "three"

        await eventually_async(leads)
    assert (await lease(api))["holderIdentity"] == ""


async def _differs(api, renewed):
    return (await lease(api))["renewTime"] != renewed


async def test_the_lease_of_a_silent_holder_is_taken_when_it_ends(server):
    api = client(server)
    stock = taken(None, Election(identity="stock", lease_seconds=1), SystemClock().wall())
    await api.create(stock)
    async with candidate(server, "ours"):
        await asyncio.sleep(0.3)
        assert (await lease(api))["holderIdentity"] == "stock"
        assert await published(api) is None

        async def leads():
            return (await lease(api))["holderIdentity"] == "ours" and await published(api)

        await eventually_async(leads)
    assert (await lease(api))["leaseTransitions"] == 1


async def test_a_leader_whose_lease_is_taken_stops_all_controllers(server):
    api = client(server)
    async with candidate(server, "ours") as ours:
        await eventually_async(lambda: published(api))
        held = await api.get(LEASES, "kube-controller-manager", "kube-system")
        spec = {**held["spec"], "holderIdentity": "stock"}
        await api.patch(LEASES, "kube-controller-manager", {"spec": spec}, "kube-system")
        await eventually_async(ours.done)
        assert ours.exception().subgroup(LostLease) is not None


async def test_controllers_that_only_we_have_act_beside_a_stock_leader(server):
    api = client(server, Certificate("admin", ("system:masters",)))
    await api.create(taken(None, Election(identity="stock", lease_seconds=3600), SystemClock().wall()))
    await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    await api.create(storage_class("local", LOCAL_PATH, volumeBindingMode="WaitForFirstConsumer"))
    asked = {STORAGE_PROVISIONERS[1]: LOCAL_PATH, SELECTED_NODE: "n"}  # as the stock binder and the scheduler ask
    await api.create(claim(storageClassName="local", annotations=asked))
    async with candidate(server, "ours"):

        async def provisioned():
            volumes = (await api.list(VOLUMES)).items
            return [volume["spec"]["claimRef"]["name"] for volume in volumes] == ["data"]

        assert await eventually_async(provisioned)
        assert await published(api) is None
        assert (await lease(api))["holderIdentity"] == "stock"
        assert (await lease(api, OWN_LEASE))["holderIdentity"] == "ours"
    assert (await lease(api, OWN_LEASE))["holderIdentity"] == ""


async def test_a_restarted_process_takes_its_own_lease_at_once(server):
    api = client(server)
    election = Election(identity=identity_of("host", "/var/lib/podwire"), lease_seconds=3600)
    await LeaderElector(api, SystemClock(), election).acquire()
    async with asyncio.timeout(5):
        await LeaderElector(api, SystemClock(), election).acquire()
    assert (await lease(api))["leaseTransitions"] == 0


async def test_a_leader_that_cannot_renew_gives_up_in_time():
    class Unreachable:
        async def get(self, *_args, **_more):
            raise ApiError("InternalError", "away")

        create = replace = get

    elector = LeaderElector(Unreachable(), SystemClock(), Election(identity="ours", **QUICK))
    elector._lease = taken(None, Election(identity="ours"), 0.0)
    with pytest.raises(LostLease, match="could not be renewed in time"):
        await elector.hold()
