"""Requests to the API server over TLS, on 1 and on 16 kept-alive connections."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import beside, scale, wrk
from benchmarks.figures import Figure, Peer
from benchmarks.machine import cpu_seconds
from benchmarks.server import Server, serving
from benchmarks.workload import CONFIG_MAP, CONFIG_MAPS, NAMESPACE, PODS, STATUS_PATCH, STRATEGIC, pod
from benchmarks.wrk import Load
from podwire.linux.proc.processes import memory_of

KUBE = "kube-apiserver 1.36 + etcd"

PEERS = {
    ("CREATE ConfigMap", 16): Peer(KUBE, 1890, 1.0),
    ("CREATE Pod", 16): Peer(KUBE, 1470, 0.7),
    ("GET Pod", 16): Peer(KUBE, 1820, 1.0),
    ("GET Pod, any version", 16): Peer(KUBE, 4100, 1.0),
    ("PATCH Pod status", 16): Peer(KUBE, 480, 1.0),
}
LISTED = 500
COLLECTED = 1000
LIST_PEER = Peer(KUBE, 29.5, 0.5)
MEMORY_PEER = Peer(KUBE, 328, 1 / 3)


def measure(seconds: float) -> Iterator[Figure]:
    with serving() as server:
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        idle = memory_of(server.process.pid)
        _run(server, _create_pods(9), 16, 1)  # whatever is made on first use is made now
        for number, connections in enumerate((1, 16), 1):
            yield from _requests(server, connections, seconds, first=number * 1_000_000)
        yield _collection(server)
        yield _memory("memory, idle", idle, MEMORY_PEER)
        yield _memory("memory, after the load", memory_of(server.process.pid), None)
        yield from beside.measure(server)
    yield from scale.large_lists()


def _requests(server: Server, connections: int, seconds: float, *, first: int) -> Iterator[Figure]:
    """The verbs one after the other, on what the ones before them left."""

    def figure(what: str, load: Load) -> Figure:
        return _figure(server, load, connections, seconds, what)

    maps = Load(method="POST", path=CONFIG_MAPS, body=CONFIG_MAP, first=first)
    yield figure("CREATE ConfigMap", maps)
    made = figure("CREATE Pod", _create_pods(first))
    yield made
    count = int(made.value * round(seconds) * 0.9)  # those that were in flight at the end may be missing
    cycle = min(count, LISTED)
    one = f"{PODS}/pod-%d"
    yield figure("GET Pod", Load(method="GET", path=one, first=first, cycle=cycle))
    yield figure("GET Pod, any version", Load(method="GET", path=f"{one}?resourceVersion=0", first=first, cycle=cycle))
    patch = Load(
        method="PATCH", path=f"{one}/status", body=STATUS_PATCH, content_type=STRATEGIC, first=first, cycle=cycle
    )
    yield figure("PATCH Pod status", patch)
    yield figure("DELETE Pod", Load(method="DELETE", path=one, first=first, limit=count))
    yield _list(server, connections, seconds, first)


def _figure(server: Server, load: Load, connections: int, seconds: float, what: str) -> Figure:
    before = cpu_seconds(server.process.pid)
    loaded = _run(server, load, connections, seconds)
    spent = cpu_seconds(server.process.pid) - before
    return Figure(
        group=f"API over TLS, {connections} connection{'s'[: connections > 1]}",
        what=what,
        value=loaded.rate,
        unit="/s",
        p50_ms=loaded.p50,
        p99_ms=loaded.p99,
        cpu_us=spent / loaded.requests * 1e6,
        peer=PEERS.get((what, connections)),
    )


def _create_pods(first: int) -> Load:
    return Load(method="POST", path=PODS, body=json.dumps(pod("pod-%d")), first=first)


def _list(server: Server, connections: int, seconds: float, first: int) -> Figure:
    """A list of exactly so many pods, in a namespace of their own."""
    namespace = f"list-{first}"
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    path = f"/api/v1/namespaces/{namespace}/pods"
    server.fill(path, (pod(f"pod-{number}") for number in range(LISTED)))
    asked = _figure(server, Load(method="GET", path=path), connections, seconds, f"LIST of {LISTED} Pods")
    took = asked.p50_ms or 0.0  # a list is asked for by somebody who waits: how long, not how many
    return replace(asked, value=took, unit=" ms", peer=LIST_PEER if connections == 1 else None)


def _collection(server: Server) -> Figure:
    """One request that deletes a thousand."""
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "collected"}})
    path = "/api/v1/namespaces/collected/pods"
    server.fill(path, (pod(f"pod-{number}") for number in range(COLLECTED)))
    begin = time.perf_counter()
    server.call("DELETE", path)
    taken = (time.perf_counter() - begin) * 1e3
    return Figure(group="API server", what=f"DELETE a collection of {COLLECTED} Pods", value=taken, unit=" ms")


def _memory(what: str, value: int, peer: Peer | None) -> Figure:
    return Figure(group="API server", what=what, value=value / 1e6, unit=" MB", peer=peer)


def _run(server: Server, load: Load, connections: int, seconds: float) -> wrk.Loaded:
    return wrk.run(load, port=server.port, connections=connections, seconds=seconds)
