"""Services: how long the proxy takes to start, how soon a change is in the kernel, and what a connection pays for it.

Everything happens in network namespaces of its own. The same Services as rules of iptables, in the form in which
kube-proxy writes them, are the peer.
"""

import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

from benchmarks.figures import MEASURED, Figure, Peer
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.linux.values import Bridge, Route, Veth
from podwire.proxy.kernel import Kernel
from podwire.proxy.model import Model
from podwire.proxy.program import Settings
from podwire.proxy.topology import Place
from podwire.proxy.values import Slice, read_services, read_slices

SERVICES, ENDPOINTS, PAGE = 10_000, 5, 1_000
FEWER = 1_000
"""Services of the comparison with iptables, which takes seconds to load as many as above."""
START, UPDATE, CONNECT = "Services, start of the proxy", "Services, one endpoint changes", "Services, a connection"
START_BUDGET, MEMORY_BUDGET = Peer("budget", 1_000.0, 1.0, MEASURED), Peer("budget", 60.0, 1.0, MEASURED)
CHANGE_BUDGET = Peer("budget", 10.0, 1.0, MEASURED)
SERVER = "10.1.0.2"
PORT = 8080


def measure(seconds: float) -> Iterator[Figure]:
    yield from _start()
    with _node() as node:
        yield from _change(node, seconds)
        yield from _compare(node, seconds)


def address_of(service: int) -> str:
    return str(ip_address("10.96.0.0") + 1 + service)


def endpoints_of(service: int, count: int = ENDPOINTS) -> list[str]:
    """Returns addresses of pods; the first Service has one that answers."""
    if service == 0:
        return [SERVER]
    return [str(ip_address("10.128.0.0") + service * ENDPOINTS + number) for number in range(count)]


def service_page(numbers: range) -> bytes:
    """Returns a page of a list, as an API server writes it."""
    items = [
        {
            "metadata": {"name": f"service-{number}", "namespace": f"space-{number % 50}", "uid": f"{number:036}"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": address_of(number),
                "clusterIPs": [address_of(number)],
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": PORT}],
                "selector": {"app": f"service-{number}"},
            },
        }
        for number in numbers
    ]
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()


def slice_page(numbers: range) -> bytes:
    items = []
    for number in numbers:
        name = f"service-{number}"
        endpoints = [
            {
                "addresses": [address],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{(number + index) % 100}",
                "targetRef": {"kind": "Pod", "name": f"{name}-{index}", "uid": f"{number:030}{index:06}"},
            }
            for index, address in enumerate(endpoints_of(number))
        ]
        labels = {"kubernetes.io/service-name": name, "app": name}
        meta = {"name": f"{name}-abcde", "namespace": f"space-{number % 50}", "labels": labels}
        ports = [{"name": "", "port": PORT, "protocol": "TCP"}]
        items.append({"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()


def loaded(count: int, pages: Callable[[range], tuple[bytes, bytes]]) -> Model:
    """Returns the model of a node that has read all pages."""
    model = Model(Place("node-1"))
    for start in range(0, count, PAGE):
        services, slices = pages(range(start, min(start + PAGE, count)))
        for service in read_services(services)[0]:
            model.put_service(service.key, service.reduced())
        for slice_ in read_slices(slices)[0]:
            model.put_slice(slice_.key, slice_.reduced())
    return model


def _both(numbers: range) -> tuple[bytes, bytes]:
    return service_page(numbers), slice_page(numbers)


def child() -> None:
    """Starts as a proxy does, from the bytes of the lists to the kernel; prints the seconds, those of the processor,
    and the memory in MB."""
    spent = spent_cpu = 0.0

    def pages(numbers: range) -> tuple[bytes, bytes]:
        nonlocal spent, spent_cpu
        begun, begun_cpu = time.perf_counter(), time.process_time()
        made = _both(numbers)
        spent += time.perf_counter() - begun
        spent_cpu += time.process_time() - begun_cpu
        return made

    begun, begun_cpu = time.perf_counter(), time.process_time()
    model, kernel = loaded(SERVICES, pages), Kernel()
    kernel.replace(model.everything(), Settings((ip_network("10.128.0.0/9"),)))
    took, cpu = time.perf_counter() - begun - spent, time.process_time() - begun_cpu - spent_cpu
    from podwire.linux.syscalls import return_freed_memory  # noqa: PLC0415 - as a daemon does that is up

    return_freed_memory()
    with Path("/proc/self/smaps_rollup").open(encoding="ascii") as file:
        rows = dict(line.split(":", 1) for line in file if line.startswith("Pss:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"seconds": took, "cpu": cpu, "memory": int(rows["Pss"].split()[0]) / 1024, "peak": peak / 1024}
    sys.stdout.write(json.dumps(result))


def _start() -> Iterator[Figure]:
    command = ["/usr/bin/unshare", "--net", sys.executable, "-c", "from benchmarks.services import child; child()"]
    runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
    best = min(runs, key=lambda run: run["seconds"])
    number = f"{SERVICES:,} Services, {SERVICES * ENDPOINTS:,} endpoints".replace(",", " ").replace("s  5", "s, 5")
    yield Figure(
        group=START,
        what=f"{number}: lists → kernel",
        value=best["seconds"] * 1e3,
        unit=" ms",
        cpu_us=best["cpu"] * 1e6,
        peer=START_BUDGET,
    )
    yield Figure(group=START, what=f"{number}: memory", value=best["memory"], unit=" MB", peer=MEMORY_BUDGET)


# Packets.


@dataclass(frozen=True, slots=True)
class _World:
    node: str
    client: str


@contextmanager
def _node() -> Iterator[_World]:
    """Yields a node with a client and a server on its bridge; the server accepts and closes."""
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder:
        namespaces = KernelNamespaces(folder)
        try:
            node = namespaces.create("node").path
            KernelSysctls(node).write("net.ipv4.ip_forward", "1")
            with KernelNetwork(node) as network:
                network.links.change("lo", up=True)
                network.links.add(Bridge("br0", up=True))
                bridge = network.links.get("br0").ifindex
                network.addresses.add(bridge, ip_interface("10.1.0.1/24"))
                network.routes.add(Route(ip_network("10.0.0.0/8"), ip_address("10.1.0.9"), bridge))
                for number, name in ((2, "server"), (3, "client")):
                    path = namespaces.create(name).path
                    network.links.add(Veth(f"h-{name}", "eth0", path, peer_index=2, master=bridge, up=True))
                    with KernelNetwork(path) as inside, inside.batch() as batch:
                        batch.links.change(2, up=True)
                        batch.addresses.add(2, ip_interface(f"10.1.0.{number}/24"))
                        batch.routes.add(Route(ip_network("0.0.0.0/0"), ip_address("10.1.0.1"), 2))
            with _server(f"{folder}/server"):
                yield _World(node, f"{folder}/client")
        finally:
            for namespace in namespaces.list():
                namespaces.remove(namespace.name)


@contextmanager
def _server(path: str) -> Iterator[None]:
    with visit(path):
        listener = socket.create_server((SERVER, PORT), backlog=1024)

    def accept() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _connect(world: _World, address: str, port: int) -> float:
    """Returns the milliseconds until a connection is there."""
    with visit(world.client):
        connection = socket.socket()
    with connection:
        connection.settimeout(5)
        begun = time.perf_counter()
        connection.connect((address, port))
        return (time.perf_counter() - begun) * 1e3


def _change(world: _World, seconds: float) -> Iterator[Figure]:
    """A Service of many gets its only endpoint, and a client connects."""
    model, kernel = loaded(SERVICES, _both), Kernel(world.node)
    rules = Settings((ip_network("10.1.0.0/24"),))
    kernel.replace(model.everything(), rules)
    key = ("space-0", "service-0-abcde")
    slice_ = model.slices[key]
    whole, empty = slice_, Slice(slice_.service, 4, slice_.ports, ())
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 20:
        for state in (empty, whole):
            begun = time.perf_counter()
            model.put_slice(key, state)
            difference = model.difference()
            kernel.change(difference.deleted, difference.added)
        _connect(world, address_of(0), 80)
        times.append((time.perf_counter() - begun) * 1e3)
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    what = f"of {SERVICES:,} Services → first connection".replace(",", " ")
    yield Figure(group=UPDATE, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=CHANGE_BUDGET)
    kernel.remove()
    kernel.close()


def iptables_rules(count: int) -> str:
    """Returns Services as kube-proxy writes them for iptables."""
    chains, rules, jumps = [":KUBE-SERVICES - [0:0]"], [], []
    for number in reversed(range(count)):  # the Service that is measured comes last, as half of all do on average
        address, chain = address_of(number), f"KUBE-SVC-{number:08}"
        chains.append(f":{chain} - [0:0]")
        jumps.append(f"-A KUBE-SERVICES -d {address}/32 -p tcp -m tcp --dport 80 -j {chain}")
        endpoints = endpoints_of(number)
        for index, endpoint in enumerate(endpoints):
            left = len(endpoints) - index
            chance = f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""
            chains.append(f":KUBE-SEP-{number:08}-{index} - [0:0]")
            rules.append(f"-A {chain} {chance}-j KUBE-SEP-{number:08}-{index}")
            rules.append(f"-A KUBE-SEP-{number:08}-{index} -p tcp -m tcp -j DNAT --to-destination {endpoint}:{PORT}")
    hooks = ["-A PREROUTING -j KUBE-SERVICES", "-A OUTPUT -j KUBE-SERVICES"]
    return "\n".join(["*nat", *chains, *hooks, *jumps, *rules, "COMMIT", ""])


def _restore(world: _World, text: str) -> float:
    """Hands rules to iptables-restore; returns milliseconds."""
    with visit(world.node):
        begun = time.perf_counter()
        subprocess.run(
            ["/usr/sbin/iptables-restore", "--noflush"], input=text.encode(), check=True, capture_output=True
        )
        return (time.perf_counter() - begun) * 1e3


def _compare(world: _World, seconds: float) -> Iterator[Figure]:
    """The same Services by our table, and by iptables: connections, and one endpoint more or less."""
    number = f"of {FEWER:,} Services".replace(",", " ")
    model, kernel = loaded(FEWER, _both), Kernel(world.node)
    kernel.replace(model.everything(), Settings((ip_network("10.1.0.0/24"),)))
    ours = _many(world, seconds / 2)
    ours_update = []
    key = ("space-1", "service-1-abcde")
    slice_ = model.slices[key]
    for turn in range(30):
        begun = time.perf_counter()
        model.put_slice(key, slice_._replace(endpoints=slice_.endpoints[: 3 + turn % 2]))
        difference = model.difference()
        kernel.change(difference.deleted, difference.added)
        ours_update.append((time.perf_counter() - begun) * 1e3)
    kernel.remove()
    kernel.close()
    _restore(world, iptables_rules(FEWER))
    theirs = _many(world, seconds / 2)
    chain = "KUBE-SVC-00000001"
    rule = f"*nat\n-F {chain}\n-A {chain} -j KUBE-SEP-00000001-0\nCOMMIT\n"
    theirs_update = [_restore(world, rule) for _ in range(10)]
    peer = Peer("iptables", theirs, 1.0, MEASURED)
    yield Figure(group=CONNECT, what=f"to the last {number}", value=ours, unit=" ms", peer=peer)
    p50 = statistics.median(ours_update)
    peer = Peer("iptables-restore", statistics.median(theirs_update), 1.0, MEASURED)
    yield Figure(group=UPDATE, what=f"{number} → kernel", value=p50, unit=" ms", p50_ms=p50, peer=peer)


def _many(world: _World, seconds: float) -> float:
    """Returns the median of the milliseconds of a connection."""
    times: list[float] = []
    until = time.perf_counter() + max(seconds, 0.3)
    while time.perf_counter() < until:
        times.append(_connect(world, address_of(0), 80))
    return statistics.median(times)
