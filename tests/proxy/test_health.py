"""The proxy's health, and that of Services for their load balancers."""

import asyncio
import json
import socket

import pytest

from podwire.cluster import proxy
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.proxy.health import LATE, Health, HealthPorts
from podwire.proxy.metrics import ProxyMetrics
from tests.eventually import eventually_async


class Clock:
    now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def get(handler, path: str):
    answer = asyncio.run(handler(Request(method="GET", path=path)))
    return answer.status, answer


def made() -> tuple[Clock, Health, ProxyMetrics]:
    clock, metrics = Clock(), ProxyMetrics()
    return clock, Health(clock, metrics), metrics


def test_a_node_that_is_leaving_is_unhealthy_for_load_balancers_and_alive():
    _, health, metrics = made()
    assert (get(health.answer, "/healthz")[0], get(health.answer, "/livez")[0]) == (503, 200)
    health.eligible = True
    status, answer = get(health.answer, "/healthz")
    body = json.loads(answer.body)
    assert (status, body["nodeEligible"], body["healthy"]) == (200, True, True)
    assert metrics.healthz.value("503") == metrics.healthz.value("200") == 1


def test_a_change_that_the_kernel_does_not_get_to_know_is_unhealthy():
    clock, health, _ = made()
    health.queued()
    assert get(health.answer, "/livez")[0] == 200
    clock.now += LATE + 1
    assert get(health.answer, "/livez")[0] == 503
    health.updated()
    assert get(health.answer, "/livez")[0] == 200


def test_metrics_have_the_names_of_kube_proxy():
    _, health, metrics = made()
    metrics.sync.observe(0.002, "IPv4")
    text = get(health.answer_metrics, "/metrics")[1].body.decode()
    assert 'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1' in text
    assert get(health.answer_metrics, "/proxyMode")[1].body == b"nftables"


class Server:
    def __init__(self) -> None:
        self.closed = False

    async def close(self, grace: float = 0) -> None:
        self.closed = True


def test_each_health_check_port_has_a_server_that_counts_endpoints_of_this_node():
    _, health, _ = made()
    servers, handlers = {}, {}

    async def listen(port, handler):
        if port == 1:
            raise OSError("in use")
        servers[port], handlers[port] = Server(), handler
        return servers[port]

    ports, web, shop = HealthPorts(listen, health), ("default", "web"), ("default", "shop")

    async def play() -> None:
        await ports.sync({30001: (web, 2), 30002: (shop, 0), 1: (("default", "taken"), 1)})
        full = await handlers[30001](Request(method="GET", path="/"))
        empty = await handlers[30002](Request(method="GET", path="/"))
        assert (full.status, empty.status) == (200, 503)
        assert json.loads(full.body)["localEndpoints"] == 2
        assert ("X-Load-Balancing-Endpoint-Weight", "2") in full.headers
        await ports.sync({30001: (web, 0)})
        assert servers[30002].closed
        assert not servers[30001].closed
        assert (await handlers[30001](Request(method="GET", path="/"))).status == 503
        await ports.close()
        assert servers[30001].closed

    asyncio.run(play())


def test_a_health_check_port_that_others_had_is_opened_when_it_is_free():
    _, health, _ = made()
    taken, tried = {30001}, []

    async def listen(port, _handler):
        tried.append(port)
        if port in taken:
            raise OSError("in use")
        return Server()

    async def play() -> None:
        ports = HealthPorts(listen, health)
        await ports.sync({30001: (("default", "web"), 1)})
        trying = asyncio.create_task(ports.keep_trying(0.001))
        await eventually_async(lambda: len(tried) > 3)
        taken.clear()
        await eventually_async(lambda: 30001 in ports._servers)
        count = len(tried)
        await asyncio.sleep(0.02)
        assert len(tried) == count
        trying.cancel()
        await ports.close()

    asyncio.run(play())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_health_check_ports_answer_in_both_families(address):
    async def answer(_request) -> Response:
        return Response(status=200, body=b"fine")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers = await proxy.listen(port, answer)
    try:
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"fine" in await reader.read()
        writer.close()
        with pytest.raises(OSError, match="in use"):
            await proxy.listen(port, answer)
    finally:
        await servers.close(0)
