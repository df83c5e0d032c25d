"""The DNS server against a real API server, with dig, nslookup and the resolver of libc as its clients."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dnslib
import pytest

from podwire.cluster import dns
from podwire.cluster.apiserver import Options, running
from podwire.dns.config import Upstream
from podwire.dns.publishing import Announcement, Publisher
from podwire.dns.watching import CONFIG_MAPS, SERVICES, SLICES
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.credentials import load
from podwire.transports.dns_sockets import bind, serving
from podwire.transports.http_client import connect
from tests.eventually import eventually_async

pytestmark = pytest.mark.skipif(shutil.which("dig") is None, reason="dig is not installed")

ADDRESS = "127.0.0.1"
ZONE = "cluster.local"
PODWIRE = str(Path(sys.executable).with_name("podwire"))


@pytest.fixture
async def api_server(tmp_path):
    options = Options(data_dir=tmp_path / "api", port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
async def api(api_server):
    async with connect(load(api_server.kubeconfig)) as http:
        yield Client(http)


@pytest.fixture
def listeners():
    bound = bind([ADDRESS], 0)
    yield bound
    bound.close()


def options_for(api_server, tmp_path, **more):
    (tmp_path / "resolv.conf").touch()
    return dns.Options(
        kubeconfig=api_server.kubeconfig,
        addresses=(ADDRESS,),
        metrics_port=0,
        resolv_conf=tmp_path / "resolv.conf",
        **more,
    )


@contextlib.asynccontextmanager
async def other_server(zone):
    """A DNS server of somebody else: an address for each name below its zone. Yields its port."""

    def answer(data, _address):
        query = dnslib.DNSRecord.parse(data)
        reply = query.reply()
        if str(query.q.qname).endswith(f"{zone}."):
            reply.add_answer(dnslib.RR(query.q.qname, rdata=dnslib.A("192.0.2.77"), ttl=9))
        else:
            reply.header.rcode = 3
        return bytes(reply.pack())

    bound = bind([ADDRESS], 0)
    try:
        async with serving(bound, answer, answer):
            yield bound.port
    finally:
        bound.close()


async def out_of(*command):
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode()


async def dig(port, *words):
    text = await out_of("dig", f"@{ADDRESS}", "-p", port, "+short", "+tries=2", "+time=3", *words)
    return [word for line in text.splitlines() if not line.startswith(";") for word in line.split()]


def service(name, **spec):
    meta = {"name": name, "namespace": "default"}
    fields = {"ports": [{"name": "http", "port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": fields}


async def test_names_follow_the_api_server(api_server, api, listeners, tmp_path):
    async with dns.running(options_for(api_server, tmp_path), listeners):
        port = listeners.port
        web = await api.create(service("web"))
        address, name = web["spec"]["clusterIP"], f"web.default.svc.{ZONE}"
        await eventually_async(lambda: _is(dig(port, name), [address]))
        assert await dig(port, "+tcp", name) == [address]
        assert await dig(port, "-x", address) == [f"{name}."]
        assert await dig(port, "SRV", f"_http._tcp.{name}") == ["0", "100", "80", f"{name}."]
        assert address in await out_of("nslookup", f"-port={port}", name, ADDRESS)
        whole = await out_of("dig", f"@{ADDRESS}", "-p", port, "+noall", "+comments", f"no.default.svc.{ZONE}")
        assert "status: NXDOMAIN" in whole
        assert "AUTHORITY: 1" in whole
        await api.delete(SERVICES, "web", "default")
        await eventually_async(lambda: _is(dig(port, name), []))


async def _exists(api, kind, name):
    try:
        return await api.get(kind, name, "kube-system")
    except ApiError:
        return None


async def _is(found, expected):
    return await found == expected


async def test_a_configmap_changes_the_servers_while_it_runs(api_server, api, listeners, tmp_path, caplog):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-dns", "namespace": "kube-system"}}
    async with other_server("corp") as corp, other_server("org") as org:
        (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.250\n")
        async with dns.running(options_for(api_server, tmp_path), listeners):
            stubs = f'{{"corp": ["{ADDRESS}:{corp}"]}}'
            data = {"stubDomains": stubs, "upstreamNameservers": f'["{ADDRESS}:{org}"]', "hosts": "192.0.2.9 printer"}
            await api.create({**config, "data": data})
            port = listeners.port
            await eventually_async(lambda: _is(dig(port, "a.corp"), ["192.0.2.77"]))
            assert await dig(port, "a.org") == ["192.0.2.77"]
            assert await dig(port, "a.net") == []
            assert await dig(port, "printer") == ["192.0.2.9"]
            await api.patch(CONFIG_MAPS, "kube-dns", {"data": {"hosts": "x y"}}, "kube-system")
            await eventually_async(lambda: "DNS setting is ignored" in caplog.text)
            assert await dig(port, "a.corp") == ["192.0.2.77"]
            await api.patch(CONFIG_MAPS, "kube-dns", {"data": {"hosts": "192.0.2.10 printer"}}, "kube-system")
            await eventually_async(lambda: _is(dig(port, "printer"), ["192.0.2.10"]))


async def test_a_server_that_forwards_to_itself_stops_asking(api_server, listeners, tmp_path):
    """Two servers that name each other as upstream would send a query back and forth for ever."""
    second = bind([ADDRESS], 0)
    try:
        one = options_for(api_server, tmp_path, upstreams=(Upstream(ADDRESS, second.port),))
        two = options_for(api_server, tmp_path, upstreams=(Upstream(ADDRESS, listeners.port),))
        async with dns.running(one, listeners), dns.running(two, second):
            command = ("dig", f"@{ADDRESS}", "-p", listeners.port, "+tries=1", "+time=10", "a.org")
            assert "SERVFAIL" in await out_of(*command)
    finally:
        second.close()


@pytest.fixture
def own_address():
    """An address of this machine that is not a loopback address: endpoints cannot have one of those."""
    subprocess.run(["ip", "address", "add", "192.0.2.53/32", "dev", "lo"], check=True)
    yield "192.0.2.53"
    subprocess.run(["ip", "address", "delete", "192.0.2.53/32", "dev", "lo"], check=True)


async def test_the_server_announces_itself_while_it_answers(api_server, api, tmp_path, own_address):
    address = own_address
    listeners = bind([address], 0)
    try:
        options = replace(options_for(api_server, tmp_path, cluster_ip="10.96.0.10"), addresses=(address,))
        async with dns.running(options, listeners):
            found = await eventually_async(lambda: _exists(api, SLICES, "kube-dns-podwire"))
            assert found["endpoints"][0]["addresses"] == [address]
            assert [(row["name"], row["port"]) for row in found["ports"]] == [
                ("dns", listeners.port),
                ("dns-tcp", listeners.port),
            ]
            service = await api.get(SERVICES, "kube-dns", "kube-system")
            assert service["spec"]["clusterIP"] == "10.96.0.10"
            assert [(row["name"], row["port"], row["protocol"]) for row in service["spec"]["ports"]] == [
                ("dns", 53, "UDP"),
                ("dns-tcp", 53, "TCP"),
            ]
        with pytest.raises(ApiError, match="not found"):
            await api.get(SLICES, "kube-dns-podwire", "kube-system")
    finally:
        listeners.close()


async def test_an_announcement_of_another_port_replaces_the_old_one(api):
    about = {"server": "a", "cluster_ip": "10.96.0.10", "address": "192.0.2.1", "metrics_port": 9153}
    for port in (53, 53, 5353):
        await Publisher(api, Announcement(port=port, **about)).publish()
        found = await api.get(SLICES, "kube-dns-a", "kube-system")
        assert {row["port"] for row in found["ports"]} == {port, 9153}


async def test_metrics_and_health_are_served(api_server, listeners, tmp_path):
    free = bind([ADDRESS], 0)
    free.close()
    options = dns.Options(
        kubeconfig=api_server.kubeconfig,
        addresses=(ADDRESS,),
        metrics_port=free.port,
        resolv_conf=tmp_path / "none",
    )
    async with dns.running(options, listeners):
        await dig(listeners.port, f"kubernetes.default.svc.{ZONE}")
        for path, words in (("health", "OK"), ("ready", "OK"), ("metrics", "coredns_dns_requests_total{")):
            assert words in await out_of("curl", "-s", f"http://{ADDRESS}:{free.port}/{path}")
        assert "not found" in await out_of("curl", "-s", f"http://{ADDRESS}:{free.port}/x")


async def test_the_program_serves_another_domain_and_stops_on_a_signal(api_server, tmp_path):
    free = bind([ADDRESS], 0)
    free.close()
    words = ("--port", free.port, "--metrics-port", 0, "--cluster-domain", "Example.Test.")
    process = await asyncio.create_subprocess_exec(
        PODWIRE, "dns", "--kubeconfig", str(api_server.kubeconfig), *map(str, words), stderr=subprocess.DEVNULL
    )
    try:
        name = "kubernetes.default.svc.example.test"
        found = await eventually_async(lambda: dig(free.port, name))
        assert found[0].startswith("10.")
    finally:
        process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kubeconfig", "/nowhere"), "/nowhere"),
        (("--kubeconfig", "x", "--upstream", "a"), "is not the address of a DNS server"),
        (("--kubeconfig", "x", "--cluster-domain", "."), "the root cannot be the domain"),
        (("--kubeconfig", "x", "--listen", "a"), "does not appear to be"),
        (("--kubeconfig", "x", "--allow", "10.0.0.1/8"), "has host bits set"),
        (("--kubeconfig", "x", "--port", "x"), "is not a port"),
    ],
)
async def test_bad_options_are_named(words, message):
    process = await asyncio.create_subprocess_exec(PODWIRE, "dns", *words, stderr=subprocess.PIPE)
    _, output = await process.communicate()
    assert process.returncode in (1, 2)
    assert message in output.decode()
    assert "Traceback" not in output.decode()
