"""Certificates are renewed while the servers and their clients run."""

import asyncio
import contextlib
import ssl
import time
from datetime import timedelta

import pytest
from cryptography import x509

from podwire.apiserver.identity.users import NODE_PREFIX, NODES
from podwire.cluster.apiserver import Identity, Options, Serving, running
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.transports import credentials, http_client, tls

LIFETIME = timedelta(seconds=6)
NAMESPACES = Kind(group="", version="v1", resource="namespaces", kind="Namespace", namespaced=False)


def end_of(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


@pytest.fixture
async def cluster(tmp_path):
    identity = Identity(user=f"{NODE_PREFIX}n1", groups=(NODES,), kubeconfig=tmp_path / "n1.kubeconfig")
    serving = Serving(name="n1", ips=("127.0.0.1",), certificate=tmp_path / "n1.crt", key=tmp_path / "n1.key")
    options = Options(
        data_dir=tmp_path / "api",
        port=0,
        store_url="memory://",
        controllers=frozenset(),
        identities=(identity,),
        servings=(serving,),
        certificate_lifetime=LIFETIME,
    )
    async with running(options) as server:
        yield server, identity, serving


async def ask(reader, writer) -> str:
    """Sends one request on a connection; returns the status line."""
    writer.write(b"GET /api/v1/namespaces HTTP/1.1\r\nHost: here\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.decode().split("\r\n") if line.lower().startswith("content-length"))
    await reader.readexactly(int(length.partition(":")[2]))
    return head.decode().split("\r\n")[0]


async def test_clients_and_servers_work_past_the_end_of_their_first_certificates(cluster):
    server, identity, serving = cluster
    first = credentials.load(server.kubeconfig)
    old_context = credentials.ssl_context(first)
    address = first.server.rpartition("/")[2].split(":")
    kubelet = tls.ServingContext(serving.certificate, serving.key)
    kubelet_context, kubelet_end = kubelet.current(), end_of(serving.certificate.read_bytes())
    async with contextlib.AsyncExitStack() as stack:
        admin = Client(await stack.enter_async_context(http_client.connect(first)))
        reader, writer = await asyncio.open_connection(*address, ssl=old_context)
        stack.callback(writer.close)
        assert await ask(reader, writer) == "HTTP/1.1 200 OK"
        end = max(end_of(first.certificate.text.encode()), kubelet_end)
        while time.time() < end + 1.5:
            assert (await admin.list(NAMESPACES)).items is not None
            await asyncio.sleep(0.3)

        assert await ask(reader, writer) == "HTTP/1.1 401 Unauthorized", "the first certificate has expired"
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask(*await asyncio.open_connection(*address, ssl=old_context))
        for path in (server.kubeconfig, identity.kubeconfig):
            assert end_of(credentials.load(path).certificate.text.encode()) > time.time()
        assert end_of(serving.certificate.read_bytes()) > time.time()
        assert kubelet.current() is not kubelet_context
        peer = await asyncio.to_thread(ssl.get_server_certificate, (address[0], int(address[1])))
        assert end_of(peer.encode()) > time.time(), "the server's own certificate"


async def test_a_key_without_its_certificate_is_not_used(cluster):
    _, _, serving = cluster
    context = tls.ServingContext(serving.certificate, serving.key)
    before = context.current()
    other = serving.key.with_name("other.key")
    other.write_bytes(credentials.load(cluster[0].kubeconfig).key.text.encode())
    other.replace(serving.key)
    await asyncio.sleep(1.1)
    assert context.current() is before
