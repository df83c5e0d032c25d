"""A cluster's names without a cluster: an index, a clock that stands still, servers that answer from a table."""

import asyncio

import dnslib
import pytest

from podwire.dns.forward import Forwarder
from podwire.dns.limits import Limits
from podwire.dns.metrics import Metrics
from podwire.dns.records import Index
from podwire.dns.server import Server, settled
from podwire.dns.zone import Zone


class StoppedClock:
    def __init__(self):
        self.now = 1000.0

    def wall(self):
        return 1_800_000_000.0 + self.now

    def monotonic(self):
        return self.now


class Upstreams:
    """Other servers: a function of the query's bytes for each host; hosts without one do not answer."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def udp(self, host, port, message, seconds, accept):
        self.asked.append(("udp", host, port, message))
        reply = self.answers.get(host)
        if reply is None:
            raise TimeoutError(f"{host} does not answer")
        for data in reply(message) if callable(reply) else reply:
            if isinstance(data, Exception):
                raise data
            if accept(data):
                return data
        await asyncio.sleep(0)
        raise TimeoutError("nothing acceptable")

    async def tcp(self, host, port, message, seconds):
        self.asked.append(("tcp", host, port, message))
        return self.answers[f"tcp {host}"](message)


def service(name="web", namespace="shop", ips=("10.96.0.7",), ports=(("http", "TCP", 80),), **spec):
    rows = [{"name": port, "protocol": protocol, "port": number} for port, protocol, number in ports]
    fields = {"clusterIP": ips[0] if ips else "None", "clusterIPs": list(ips) or ["None"], "ports": rows, **spec}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": fields}


def slice_(name, endpoints, service="db", namespace="shop", ports=(("sql", "TCP", 5432),), family="IPv4"):
    """Endpoints are addresses with a host name and whether they are ready."""
    rows = [
        {"addresses": [address], "conditions": {"ready": ready}, **({"hostname": hostname} if hostname else {})}
        for address, hostname, ready in endpoints
    ]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "endpoints": rows,
        "ports": [{"name": port, "protocol": protocol, "port": number} for port, protocol, number in ports],
    }


def put(index, *objects):
    for object_ in objects:
        key = object_["metadata"]["namespace"], object_["metadata"]["name"]
        index.set_namespace(key[0], exists=True)
        (index.set_slice if "endpoints" in object_ else index.set_service)(key, object_)


@pytest.fixture
def clock():
    return StoppedClock()


@pytest.fixture
def upstreams():
    return Upstreams()


@pytest.fixture
def index():
    index = Index()
    put(
        index,
        service(),
        service("dual", ips=("10.96.0.8", "fd00::8"), ports=(("", "TCP", 80), ("dns", "UDP", 53))),
        service("db", ips=(), ports=(("sql", "TCP", 5432),)),
        slice_("db-1", [("10.1.0.1", "db-0", True), ("10.1.0.2", "db-1", True), ("10.1.0.3", "db-2", False)]),
        slice_("db-2", [("10.1.0.9", "", None), ("10.1.0.2", "db-1", True)]),
        slice_("db-6", [("fd00:1::1", "db-0", True)], family="IPv6"),
        service("empty", ips=(), ports=()),
        service("out", ips=(), type="ExternalName", externalName="www.example.com", clusterIP="", clusterIPs=[]),
        service("near", ips=(), type="ExternalName", externalName="web.shop.svc.cluster.local.", clusterIP=""),
        service("ring", ips=(), type="ExternalName", externalName="gnir.shop.svc.cluster.local", clusterIP=""),
        service("gnir", ips=(), type="ExternalName", externalName="ring.shop.svc.cluster.local", clusterIP=""),
        service("number", ips=(), type="ExternalName", externalName="192.0.2.1", clusterIP=""),
        service("kube-dns", "kube-system", ips=("10.96.0.10",), ports=(("dns", "UDP", 53),)),
        slice_("web-1", [("10.1.0.20", "", True)], service="web"),
    )
    return index


@pytest.fixture
def zone(index):
    return Zone(index, (b"cluster", b"local"), 30, 7)


@pytest.fixture
def metrics():
    return Metrics("dns://:53")


@pytest.fixture
def forwarder(upstreams, clock, metrics):
    return Forwarder(upstreams, clock, metrics, Limits())


@pytest.fixture
def server(zone, forwarder, metrics, clock):
    return Server(zone, forwarder, metrics, clock)


@pytest.fixture
def ask(server):
    """Asks the server, over UDP by default; returns the parsed answer."""

    async def ask(name, type_="A", *, edns=None, tcp=False, client="10.1.0.50", rd=1, raw=False):
        query = dnslib.DNSRecord(q=dnslib.DNSQuestion(name, getattr(dnslib.QTYPE, type_)))
        query.header.rd = rd
        if edns is not None:
            query.add_ar(dnslib.EDNS0(udp_len=edns))
        data = bytes(query.pack())
        reply = await settled((server.tcp if tcp else server.udp)(data, client))
        assert reply is not None
        assert reply[:2] == data[:2]
        return reply if raw else dnslib.DNSRecord.parse(reply)

    return ask
