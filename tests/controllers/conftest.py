"""A server with its controllers, without nodes: tests play the kubelet."""

import asyncio
import contextlib

import pytest

from podwire import controllers
from podwire.apiserver.identity.legacy_tokens import LegacyTokenSigner
from podwire.apiserver.identity.request_signing import RequestSigner
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import IDENTITY, StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import PODS, SERVICE_ACCOUNTS
from podwire.controllers.limits import Limits
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.controllers.leases import hold_lease
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))


def signers(pki):
    return {"signer": RequestSigner(pki), "token_signer": LegacyTokenSigner(pki.account_key)}


class CountingHttp:
    """Counts the requests of the controllers by method and path."""

    def __init__(self, http):
        self.http, self.requests = http, []

    async def request(self, method, path, **more):
        self.requests.append((method, path))
        return await self.http.request(method, path, **more)

    async def stream(self, method, path, **more):
        return await self.http.stream(method, path, **more)


class Cluster:
    """A client, the requests of the controllers, and a kubelet that is played."""

    def __init__(self, api, worker, authority, handler):
        self.api, self.worker, self.authority, self.handler = api, worker, authority, handler

    def client_of(self, user, *groups):
        """Returns a client with the certificate of a user."""
        return Client(LoopbackHttp(self.handler, Certificate(user, groups)))

    def requests(self):
        return [row for row in self.worker.requests if "/events" not in row[1]]

    async def pods(self, **labels):
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return (await self.api.list(PODS, Scope(namespace="default", label_selector=selector))).items

    async def wait_for_pods(self, count, phase="Pending"):
        async def look():
            found = [pod for pod in await self.pods() if pod["status"].get("phase") == phase]
            assert len(found) == count, [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in found]
            return found

        return await eventually_async(look)

    async def end(self, pod, code=0, *, conditions=()):
        """Ends a pod with an exit code."""
        terminated = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": "2026-01-01T00:00:00Z",
        }
        row = {"name": "c", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
               "state": {"terminated": terminated}}  # fmt: skip
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [row],
            "conditions": list(conditions),
        }
        await self.api.patch(PODS, pod["metadata"]["name"], {"status": status}, "default", subresource="status")

    async def status(self, kind, name, **expected):
        """Waits until a status has these fields."""

        async def look():
            status = (await self.api.get(kind, name, "default")).get("status") or {}
            shown = {field: status.get(field) for field in expected}
            assert shown == expected, status
            return status

        return await eventually_async(look)

    async def gone(self, kind, name):
        async def look():
            try:
                await self.api.get(kind, name, "default")
            except ApiError as error:
                return error.code == 404
            return False

        await eventually_async(look)


@pytest.fixture
def limits():
    return Limits(job_backoff=0.2, job_max_backoff=0.4, job_batch=0.1, cidr_deletion_grace=0.1, attach_timeout=0.2)


class AdvancedClock(SystemClock):
    """The controllers' clock, which tests put forward."""

    ahead = 0.0

    def wall(self):
        return super().wall() + self.ahead


@pytest.fixture
def clock():
    return AdvancedClock()


@pytest.fixture
def balancer_pool():
    """Addresses for Services of type LoadBalancer."""
    return ()


@pytest.fixture
def pod_networks():
    """Networks of pods, of which each node gets a part."""
    return ()


@pytest.fixture
async def cluster(tmp_path, limits, clock, balancer_pool, pod_networks):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        handler = server.assembled.server.handle
        client, worker = Client(LoopbackHttp(handler, ADMIN)), CountingHttp(LoopbackHttp(handler, IDENTITY))
        feed = StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)
        pki = server.assembled.pki
        work = controllers.run(
            Client(worker),
            feed,
            clock,
            root_ca="PEM",
            limits=limits,
            balancer_pool=balancer_pool,
            pod_networks=pod_networks,
            **signers(pki),
        )
        task = asyncio.create_task(work)
        await eventually_async(lambda: _exists(client))
        await hold_lease(client)
        try:
            yield Cluster(client, worker, pki.authority, handler)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _exists(api):
    try:
        return await api.get(SERVICE_ACCOUNTS, "default", "default")
    except ApiError as error:
        if error.code != 404:
            raise
        return None
