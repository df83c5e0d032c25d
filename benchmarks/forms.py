"""Measures the other forms of the API: protobuf beside JSON, creation through a webhook, and the OpenAPI document."""

import contextlib
import http.client
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure, cpu_seconds
from benchmarks.server import DEADLINE, JSON, TOKEN, Server, serving
from benchmarks.webhook import Webhook, running
from benchmarks.workload import CONFIG_MAP, NAMESPACE, PODS, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"
OPENAPI = "/openapi/v2"
OPENAPI_FORMS = {"JSON": JSON, "protobuf": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
LISTED = 500
LEAST = 5
"""Requests of a short run."""
OVERHEAD = Peer("budget", 1.0, 1.0, MEASURED)
COLD = Peer("budget", 300.0, 1.0, MEASURED)
HOOKED = f"{NAMESPACE}-hooked"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

Call = Callable[[], object]


def measure(seconds: float, *, listed: int = LISTED) -> Iterator[Figure]:
    for name, media in OPENAPI_FORMS.items():
        yield from _openapi(name, media, seconds)
    with serving() as server, contextlib.closing(server.connect()) as wire:
        client = _Client(wire)
        for name in (NAMESPACE, HOOKED):
            server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield _list(server, client, seconds, listed)
        with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder, running(Path(folder)) as webhook:
            yield _webhook(server, client, webhook, seconds)


class _Client:
    """One kept-alive connection."""

    def __init__(self, wire: http.client.HTTPSConnection) -> None:
        self._wire = wire

    def send(
        self, method: str, path: str, body: bytes | None = None, *, status: int = 200, **headers: str
    ) -> http.client.HTTPResponse:
        """Reads the whole answer. Raises CannotMeasure when its status is another one."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._wire.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", "Content-Type": JSON, **named})
        answer = self._wire.getresponse()
        text = answer.read()
        if answer.status != status:
            raise CannotMeasure(f"{method} {path}: {answer.status} {text[:200].decode('utf-8', 'replace')}")
        return answer


def _list(server: Server, client: _Client, seconds: float, listed: int) -> Figure:
    server.fill(PODS, (pod(f"pod-{number}") for number in range(listed)))
    protobuf, as_json = _alternate(
        seconds,
        lambda: client.send("GET", PODS, Accept=PROTOBUF),
        lambda: client.send("GET", PODS, Accept=JSON),
    )
    peer = Peer("JSON", statistics.median(as_json), 1.0, MEASURED)
    return _figure("API, other forms", f"LIST of {listed} Pods, protobuf beside JSON", protobuf, peer)


def _webhook(server: Server, client: _Client, webhook: Webhook, seconds: float) -> Figure:
    """Creation with a webhook, less creation without it, less the time that the webhook itself takes."""
    server.call("POST", WEBHOOKS, _configuration(webhook))
    numbers = iter(range(10_000_000))

    def create(namespace: str) -> None:
        body = (CONFIG_MAP % next(numbers)).encode()
        client.send("POST", f"/api/v1/namespaces/{namespace}/configmaps", body, status=201)

    deadline = time.monotonic() + DEADLINE
    while not webhook.times:  # the configuration takes effect shortly after it is stored
        if time.monotonic() > deadline:
            raise CannotMeasure("the API server does not call the webhook")
        create(HOOKED)
    webhook.times.clear()
    hooked, plain = _alternate(seconds, lambda: create(HOOKED), lambda: create(NAMESPACE))
    if len(webhook.times) != len(hooked):
        raise CannotMeasure(f"the webhook was called {len(webhook.times)} times for {len(hooked)} objects")
    # Both are lists of the same calls in the same order.
    less = statistics.median(plain)
    overhead = [took - own * 1e3 - less for took, own in zip(hooked, webhook.times, strict=True)]
    return _figure("API, other forms", "CREATE ConfigMap with a webhook, beside its own time", overhead, OVERHEAD)


def _configuration(webhook: Webhook) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    hook = {
        "name": "bench.example.com",
        "clientConfig": {"url": webhook.url, "caBundle": webhook.authority},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOOKED}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    return {"metadata": {"name": "bench"}, "webhooks": [hook]}


def _openapi(name: str, media: str, seconds: float) -> Iterator[Figure]:
    """The first request of a server that has just started, and those of clients that have the document."""
    with serving() as server, contextlib.closing(server.connect()) as wire:
        client = _Client(wire)
        client.send("GET", "/version")  # connects
        before, begin = cpu_seconds(server.process.pid), time.perf_counter()
        etag = client.send("GET", OPENAPI, Accept=media).headers.get("ETag")
        cold, spent = time.perf_counter() - begin, cpu_seconds(server.process.pid) - before
        if not etag:
            raise CannotMeasure(f"{OPENAPI} as {name} has no ETag")
        again = partial(client.send, "GET", OPENAPI, Accept=media)
        whole, known = _alternate(seconds, again, partial(again, status=304, If_None_Match=etag))
    what = f"{name}, the first request"
    yield Figure(group="OpenAPI v2", what=what, value=cold * 1e3, unit=" ms", cpu_us=spent * 1e6, peer=COLD)
    yield _figure("OpenAPI v2", f"{name}, again", whole, None)
    yield _figure("OpenAPI v2", f"{name}, with its ETag: 304", known, None)


def _alternate(seconds: float, first: Call, second: Call) -> tuple[list[float], list[float]]:
    """Returns the milliseconds of two calls that take turns, so that both see the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while len(times[0]) < LEAST or time.perf_counter() < end:
        for call, taken in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            call()
            taken.append((time.perf_counter() - begin) * 1e3)
    return times


def _figure(group: str, what: str, times: list[float], peer: Peer | None) -> Figure:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100, method="inclusive")[98]
    return Figure(group=group, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=peer)
