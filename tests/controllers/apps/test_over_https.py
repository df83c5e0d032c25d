"""Workload controllers over HTTPS, as `podwire controllers` runs them, and some of them switched off."""

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.controllers.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from podwire.controllers.registry import ALL, choose
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.transports.clock import SystemClock
from podwire.transports.credentials import load
from podwire.transports.http_client import connect
from tests.controllers.apps.conftest import Nodes, background, workload
from tests.eventually import eventually_async


@pytest.fixture
async def api(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server, connect(load(server.kubeconfig)) as http:
        yield Client(http)


def work(api, names):
    return controllers.run(api, controllers.MetadataInformer(api), SystemClock(), root_ca="PEM", names=names)


async def test_a_deployment_rolls_out_over_https(api):
    async with background(work(api, ALL), Nodes(api).run()):
        await api.create(workload("Deployment", replicas=3))

        async def available():
            found = await api.get(DEPLOYMENTS, "web", "default")
            return (found.get("status") or {}).get("availableReplicas") == 3

        await eventually_async(available)


async def test_a_controller_that_is_switched_off_does_nothing(api):
    async with background(work(api, choose("*,-replicaset-controller")), Nodes(api).run()):
        await api.create(workload("Deployment", replicas=3))

        async def has_set():
            return (await api.list(REPLICA_SETS, Scope(namespace="default"))).items

        await eventually_async(has_set)
        assert (await api.list(PODS, Scope(namespace="default"))).items == []
