"""Answers of the DNS server by the processor time that they take: names of the cluster, and names of another server."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import uvloop

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure, cpu_seconds, program
from podwire.dns import Limits, Server
from podwire.dns.config import Upstream
from podwire.dns.forward import Forwarder
from podwire.dns.metrics import Metrics
from podwire.dns.records import Index
from podwire.dns.zone import Zone
from podwire.protocols.dns.answers import question
from podwire.protocols.dns.queries import name_of
from podwire.transports.clock import SystemClock
from podwire.transports.dns_sockets import Listeners, UpstreamSockets, bind, serving

GROUP = "DNS, answers per second of processor time"
SERVICES = 1_000
ADDRESS = "127.0.0.1"
IN_FLIGHT = 64
BUDGET = Peer("budget", 20_000.0, 1.0, MEASURED)
CLUSTER_DOMAIN = "svc.cluster.local"
DOMAINS = {"a name of the cluster": CLUSTER_DOMAIN, "a cached name of another server": "example.test"}


def measure(seconds: float) -> Iterator[Figure]:
    """The same names of dnsmasq and of ours; dnsmasq is also the server that ours asks for the second kind."""
    with _dnsmasq() as (theirs, their_port), _ours(their_port) as (ours, our_port):
        for what, domain in DOMAINS.items():
            if not theirs and domain != CLUSTER_DOMAIN:
                return
            own = _load(our_port, domain, ours, seconds)
            peer = _load(their_port, domain, theirs, seconds) if theirs else None
            yield Figure(group=GROUP, what=what, value=1 / own, unit="/s", cpu_us=own * 1e6, peer=BUDGET)
            if peer is not None:
                beside = Peer("dnsmasq", 1 / peer, None, MEASURED)
                yield Figure(group=GROUP, what=f"{what}, beside dnsmasq", value=1 / own, unit="/s", peer=beside)


def _name(number: int, domain: str) -> str:
    return f"web-{number}.shop.{domain}"


@contextlib.contextmanager
def _ours(upstream: int) -> Iterator[tuple[int, int]]:
    listeners = bind([ADDRESS], 0)
    with _child(lambda: _serve(listeners, upstream)) as pid:
        yield pid, listeners.port
    listeners.close()


def _serve(listeners: Listeners, upstream: int) -> None:
    index, clock, limits, metrics = Index(), SystemClock(), Limits(cache_ttl=3600), Metrics("dns")
    index.set_namespace("shop", exists=True)
    for number in range(SERVICES):
        address = f"10.96.{number >> 8}.{number & 255}"
        spec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"name": "http", "port": 80}]}
        index.set_service(("shop", f"web-{number}"), {"spec": spec})

    async def work() -> None:
        forwarder = Forwarder(UpstreamSockets(), clock, metrics, limits)
        forwarder.configure([Upstream(ADDRESS, upstream)], {})
        server = Server(Zone(index, name_of("cluster.local"), 30), forwarder, metrics, clock)
        async with serving(listeners, server.udp, server.tcp):
            await asyncio.Event().wait()

    uvloop.run(work())


@contextlib.contextmanager
def _child(work: Callable[[], None]) -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def _dnsmasq() -> Iterator[tuple[int, int]]:
    """Yields its process and port; 0 without it: then only cluster names are measured."""
    try:
        path = program("dnsmasq")
    except CannotMeasure:
        yield 0, 9
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((ADDRESS, 0))
        port = free.getsockname()[1]
    words = [path, "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--user=root"]
    words += [f"--listen-address={ADDRESS}", "--bind-interfaces", f"--port={port}", "--pid-file=", "--local-ttl=3600"]
    words += [
        f"--host-record={_name(number, domain)},10.97.{number >> 8}.{number & 255}"
        for domain in DOMAINS.values()
        for number in range(SERVICES)
    ]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid, port
        finally:
            process.kill()


def _load(port: int, domain: str, pid: int, seconds: float) -> float:
    """Asks with so many queries in flight; returns the processor time of the server for one answer."""
    queries = [question(0, name_of(_name(number, domain)), 1)[2:-11] for number in range(SERVICES)]
    queries = [query[:9] + b"\0" + query[10:] for query in queries]  # without OPT, as libc asks
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((ADDRESS, port))
        client.settimeout(2.0)
        deadline = time.monotonic() + 20
        for number in range(SERVICES):  # each name once, so that caches have it
            while not _answered(client, queries[number], number):
                if time.monotonic() > deadline:
                    raise CannotMeasure(f"the DNS server at port {port} does not answer")
        sent = answers = 0
        for _ in range(IN_FLIGHT):
            client.send(sent.to_bytes(2, "big") + queries[sent % SERVICES])
            sent = sent + 1 & 0xFFFF
        begun, end = cpu_seconds(pid), time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(100):
                with contextlib.suppress(TimeoutError):
                    client.recv(2048)
                    answers += 1
                client.send(sent.to_bytes(2, "big") + queries[sent % SERVICES])
                sent = sent + 1 & 0xFFFF
        return max(cpu_seconds(pid) - begun, 0.01) / answers


def _answered(client: socket.socket, query: bytes, number: int) -> bool:
    try:
        client.send(number.to_bytes(2, "big") + query)
        reply = client.recv(2048)
    except (TimeoutError, ConnectionRefusedError):
        time.sleep(0.05)
        return False
    return reply[3] & 0xF == 0 and reply[7] > 0
