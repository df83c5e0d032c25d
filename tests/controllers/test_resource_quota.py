"""The quota controller on a real API server: hard limits and usage follow what exists."""

import asyncio
import contextlib

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import IDENTITY, StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import CONFIG_MAPS, PODS, QUOTAS
from podwire.controllers.limits import Limits
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
SOON = Limits(quota_delay=0.02, quota_settle=0.02)


@pytest.fixture
async def api(tmp_path):
    """A client of a server whose controllers run, with the rights that they have in a cluster."""
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        handler = server.assembled.server.handle
        client, worker = Client(LoopbackHttp(handler, ADMIN)), Client(LoopbackHttp(handler, IDENTITY))
        feed = StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)
        task = asyncio.create_task(controllers.run(worker, feed, SystemClock(), root_ca="PEM", limits=SOON))
        await eventually_async(lambda: exists(client, CONFIG_MAPS, "kube-root-ca.crt"))
        try:
            yield client
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def exists(api, kind, name):
    try:
        return await api.get(kind, name, "default")
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def create_quota(api, hard, **spec):
    metadata = {"name": "quota", "namespace": "default"}
    await api.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}
    )


def config(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def pod(name, cpu="100m"):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def becomes(api, used):
    async def status():
        found = (await api.get(QUOTAS, "quota", "default")).get("status") or {}
        assert found.get("used") == used, found
        return found

    return await eventually_async(status)


async def test_a_new_quota_gets_its_status(api):
    await api.create(config("a"))
    await create_quota(api, {"count/configmaps": "5", "pods": "3", "count/nothing.example.com": "1"})

    status = await becomes(api, {"count/configmaps": "2", "pods": "0"})

    assert status["hard"] == {"count/configmaps": "5", "pods": "3", "count/nothing.example.com": "1"}


async def test_deleted_objects_are_given_back(api):
    await create_quota(api, {"count/configmaps": "2"})
    await becomes(api, {"count/configmaps": "1"})
    await api.create(config("a"))
    await becomes(api, {"count/configmaps": "2"})
    with pytest.raises(ApiError, match="exceeded quota"):
        await api.create(config("b"))

    await api.delete(CONFIG_MAPS, "a", "default")

    await becomes(api, {"count/configmaps": "1"})
    await api.create(config("b"))


async def test_a_finished_pod_is_given_back(api):
    await create_quota(api, {"pods": "1", "requests.cpu": "1"})
    await becomes(api, {"pods": "0", "requests.cpu": "0"})
    await api.create(pod("web"))
    await becomes(api, {"pods": "1", "requests.cpu": "100m"})

    finished = await api.get(PODS, "web", "default")
    await api.replace({**finished, "status": {"phase": "Succeeded"}}, subresource="status")

    await becomes(api, {"pods": "0", "requests.cpu": "0"})


async def test_a_changed_limit_is_taken_over(api):
    await create_quota(api, {"pods": "1"})
    await becomes(api, {"pods": "0"})
    quota = await api.get(QUOTAS, "quota", "default")

    await api.replace({**quota, "spec": {"hard": {"pods": "2", "secrets": "3"}}})

    status = await becomes(api, {"pods": "0", "secrets": "0"})
    assert status["hard"] == {"pods": "2", "secrets": "3"}


async def test_wrong_usage_is_corrected(api):
    await create_quota(api, {"count/configmaps": "9"})
    await becomes(api, {"count/configmaps": "1"})
    quota = await api.get(QUOTAS, "quota", "default")

    status = {"hard": {"count/configmaps": "9"}, "used": {"count/configmaps": "7"}}
    await api.replace({**quota, "status": status}, subresource="status")

    await becomes(api, {"count/configmaps": "1"})


async def test_scopes_decide_which_pods_count(api):
    await create_quota(api, {"pods": "5"}, scopes=["Terminating"])
    await becomes(api, {"pods": "0"})

    await api.create(pod("long"))
    ending = pod("ending")
    ending["spec"]["activeDeadlineSeconds"] = 60
    await api.create(ending)

    await becomes(api, {"pods": "1"})
