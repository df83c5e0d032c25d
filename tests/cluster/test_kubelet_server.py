"""A kubelet's server and an API server, over TLS: whom each lets in, and how one reaches the other."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from podwire.apiserver.ports import Kubelet
from podwire.cluster.apiserver import Options, running
from podwire.cluster.kubelet_proxy import KubeletProxy
from podwire.cluster.kubelet_server import Serving, serving
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.server import KubeletMetrics
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Request, Upgrade
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client, http_server
from podwire.transports.http_forward import forwarder
from podwire.transports.http_relay import relays
from podwire.transports.tls import client_context

V5 = "v5.channel.k8s.io"
PATH = "/api/v1/namespaces/default/pods/web"
POD = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "busybox:1"}]},
}


class Book:
    """One pod, whose container writes a log."""

    def __init__(self, log):
        container = ObservedContainer(
            id="c1", name="main", sandbox="s1", state=pb.CONTAINER_RUNNING, log_path=str(log), attempt=0
        )
        self.pod, self.observed = pods.read(POD), ObservedPod(containers=(container,))

    def find(self, namespace, name):
        return (self.pod, self.observed) if (namespace, name) == ("default", "web") else None

    def all(self):
        return [(self.pod, POD)]


class Runtime:
    """Has one conversation to offer, at a URL."""

    url = ""

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own word
        if method.name.endswith("ContainerStatus"):
            return pb.ContainerStatusResponse(status=pb.ContainerStatus(id="c1", state=pb.CONTAINER_EXITED))
        if method.name.endswith("Version"):
            return pb.VersionResponse(runtime_name="podwire")
        return method.response(url=self.url)

    def stream(self, method, request, *, timeout=None):
        raise NotImplementedError


@dataclass
class Cluster:
    server: object
    http: http_client.HttpClient
    access: object
    runtime: Runtime
    log: Path
    port: int = 0

    async def get(self, path, query=()):
        reply = await self.http.request("GET", path, query=query)
        return reply.status, reply.body.decode()


@pytest.fixture
async def cluster(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        options = Options(data_dir=tmp_path / "api", port=0, store_url="memory://", controllers=frozenset())
        server = await stack.enter_async_context(running(options))
        access = credentials.load(server.kubeconfig)
        http = await stack.enter_async_context(http_client.connect(access))
        made = Cluster(server, http, access, Runtime(), tmp_path / "0.log")
        how = Serving(node="n1", root=tmp_path / "kubelet", address="127.0.0.1", port=0, client_ca=access.ca)
        made.port = await stack.enter_async_context(
            serving(how, Book(made.log), made.runtime, Client(http), KubeletMetrics())
        )
        await stand_up(Client(http), made.port)
        yield made


async def stand_up(api, port):
    """A node at that port, and the pod on it."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    made = await api.create(node)
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    await api.replace({**made, **node, "metadata": made["metadata"], "status": status}, subresource="status")
    await api.create(account)
    await api.create({"apiVersion": "v1", "kind": "Pod", **POD, "metadata": {"name": "web", "namespace": "default"}})


@contextlib.asynccontextmanager
async def direct(cluster, *, certificate=None, **headers):
    """A client of the kubelet itself, which trusts anybody."""
    context = client_context(verify=False, certificate=certificate)
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{cluster.port}", connector=aiohttp.TCPConnector(ssl=context), headers=headers
    ) as session:
        yield session


async def test_a_log_goes_from_the_kubelets_file_through_the_api_server(cluster):
    cluster.log.write_text("2026-11-15T10:00:00Z stdout F hello\n2026-11-15T10:00:01Z stderr F world\n")
    assert await cluster.get(f"{PATH}/log") == (200, "hello\nworld\n")
    assert await cluster.get(f"{PATH}/log", [("tailLines", "1"), ("follow", "true")]) == (200, "world\n")


async def test_a_kubelets_refusal_reaches_the_user(cluster):
    status, body = await cluster.get(f"{PATH}/log", [("previous", "true")])
    assert status == 400
    assert 'previous terminated container \\"main\\" in pod \\"web\\" not found' in body


async def test_a_nodes_figures_through_the_proxy(cluster):
    status, body = await cluster.get("/api/v1/nodes/n1/proxy/metrics")
    assert status == 200
    assert 'kubelet_running_containers{container_state="running"} 1' in body


async def test_a_conversation_goes_through_both_to_the_runtime(cluster):
    async def run(peer):
        await peer.send(b"\1")
        assert await peer.receive() == b"\0input"
        await peer.send(b"\1output")
        assert await peer.receive() == b"\xff\0"
        await peer.send(b'\3{"status":"Success"}')

    async def handler(_request):
        return Upgrade(protocols=(V5,), run=run)

    far = await http_server.serve(handler)
    try:
        cluster.runtime.url = f"http://127.0.0.1:{far.port}/exec/token"
        context = credentials.ssl_context(cluster.access)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.ws_connect(
                f"{cluster.access.server}{PATH}/exec?command=cat&stdin=true&stdout=true", protocols=[V5]
            ) as near,
        ):
            assert await near.receive_bytes() == b"\1"
            await near.send_bytes(b"\0input")
            assert await near.receive_bytes() == b"\1output"
            await near.send_bytes(b"\xff\0")
            assert await near.receive_bytes() == b'\3{"status":"Success"}'
            assert (await near.receive()).type is aiohttp.WSMsgType.CLOSE
            assert near.close_code == 1000
    finally:
        await far.close(0.5)


async def test_a_missing_runtime_is_reported_to_the_user(cluster):
    cluster.runtime.url = "http://127.0.0.1:1/exec/token"
    context = credentials.ssl_context(cluster.access)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": V5}
        url = f"{cluster.access.server}{PATH}/exec?command=cat&stdout=true"
        async with session.get(url, headers={**upgrade, "Sec-WebSocket-Key": "AQIDBAUGBwgJCgsMDQ4PEA=="}) as answer:
            assert answer.status == 503
            body = await answer.json()
    assert "the container runtime of this node is not reachable" in body["message"]


async def test_strangers_are_not_let_in(cluster):
    async with direct(cluster) as session, session.get("/pods") as answer:
        assert (answer.status, await answer.text()) == (401, "Unauthorized\n")
    async with direct(cluster, Authorization="Bearer nonsense") as session, session.get("/pods") as answer:
        assert answer.status == 401


async def test_a_service_account_is_known_and_may_not(cluster):
    token = await Client(cluster.http).token("default", "default", {})
    headers = {"Authorization": f"Bearer {token['status']['token']}"}
    async with direct(cluster, **headers) as session, session.get("/pods") as answer:
        assert answer.status == 403
        assert "user=system:serviceaccount:default:default, verb=get, resource=nodes" in await answer.text()


async def test_a_certificate_of_the_cluster_ca_authenticates(cluster, tmp_path):
    for groups, code in ((["staff"], 403), (["system:masters"], 200)):
        certificate, key = cluster.server.assembled.pki.issue_client("jane", groups)
        both = tmp_path / "jane.pem"
        both.write_bytes(certificate + key)
        async with direct(cluster, certificate=both) as session, session.get("/healthz") as answer:
            assert answer.status == code


async def test_a_kubelet_that_is_gone_is_named(cluster):
    api = Client(cluster.http)
    node = await api.get(api.kind_of({"apiVersion": "v1", "kind": "Node"}), "n1")
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = 1
    await api.replace(node, subresource="status")
    status, body = await cluster.get(f"{PATH}/log")
    assert status == 500
    assert "dial tcp 127.0.0.1:1: connect: connection refused" in body
    assert 'the kubelet of node \\"n1\\"' in body


async def test_an_api_server_that_verifies_takes_no_self_signed_kubelet(cluster, tmp_path):
    options = Options(
        data_dir=tmp_path / "api2",
        port=0,
        store_url="memory://",
        controllers=frozenset(),
        kubelet_authority=cluster.server.assembled.pki.authority_path,
    )
    async with running(options) as second, http_client.connect(credentials.load(second.kubeconfig)) as http:
        await stand_up(Client(http), cluster.port)
        reply = await http.request("GET", f"{PATH}/log")
    assert reply.status == 500
    assert b"tls: failed to verify certificate" in reply.body


async def test_followers_end_when_the_server_does(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("2026-11-15T10:00:00Z stdout F hello\n")
    book = Book(log)

    class Busy(Runtime):
        async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own word
            return pb.ContainerStatusResponse(status=pb.ContainerStatus(id="c1", state=pb.CONTAINER_RUNNING))

    class Anybody:
        async def create(self, object_):
            return {"status": {"authenticated": True, "allowed": True, "user": {"username": "jane"}}}

    how = Serving(node="n1", root=tmp_path, address="127.0.0.1", port=0)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(how, book, Busy(), Anybody(), KubeletMetrics()))
        made = Cluster(None, None, None, Runtime(), log, port)
        async with (
            direct(made, Authorization="Bearer x") as session,
            session.get("/containerLogs/default/web/main", params={"follow": "true"}) as answer,
        ):
            assert await answer.content.readline() == b"hello\n"
            async with asyncio.timeout(20):
                await stack.aclose()
                with contextlib.suppress(aiohttp.ClientError):
                    assert await answer.content.read() == b""


async def point_to(cluster, address, port):
    """Sets the address of the node, as somebody who may write its status can."""
    api = Client(cluster.http)
    node = await api.get(api.kind_of({"apiVersion": "v1", "kind": "Node"}), "n1")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
    await api.replace(node, subresource="status")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.5", "::1", "::ffff:127.0.0.1", "localhost"])
async def test_a_nodes_proxy_does_not_lead_back_to_the_api_server(cluster, address):
    port = int(cluster.server.url.rpartition(":")[2])
    await point_to(cluster, address, port)

    status, body = await cluster.get("/api/v1/nodes/n1/proxy/api/v1/secrets")

    assert status == 400
    assert "address not allowed" in body


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"])
async def test_a_nodes_proxy_reaches_no_metadata_service(cluster, address):
    await point_to(cluster, address, 80)

    status, body = await cluster.get("/api/v1/nodes/n1/proxy/latest/meta-data")

    assert status == 400
    assert "address not allowed" in body


async def test_only_a_server_on_the_loopback_has_kubelets_on_the_loopback():
    for hosts, allowed in ((("127.0.0.1",), True), (("127.0.0.1", "10.0.0.1"), False), (("0.0.0.0",), False)):
        async with relays() as relay, forwarder() as forward:
            proxy = KubeletProxy(relay, hosts, forward, lambda: None)
            kubelet = Kubelet(node="n1", address="127.0.0.1", port=1)
            with pytest.raises(ApiError, match="connection refused" if allowed else "address not allowed"):
                await proxy.connect(kubelet, "/healthz", (), Request(method="GET", path="/"))


async def test_the_servers_certificate_for_kubelets_opens_kubelets_and_not_the_server(cluster, tmp_path):
    certificate, key = cluster.server.assembled.pki.issue_client("kube-apiserver-kubelet-client")
    both = tmp_path / "client.pem"
    both.write_bytes(certificate + key)
    context = client_context(verify=False, certificate=both)

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"{cluster.server.url}/api/v1/secrets") as api,
        session.get(f"https://127.0.0.1:{cluster.port}/pods") as kubelet,
    ):
        assert (api.status, kubelet.status) == (401, 200)
