"""The worst latency of a small request while the server works on a body of almost the largest size, or compiles a
large object that it has stored.

A server with one event loop answers nothing while it works on something else, so this shows the longest piece of work
that it does at a stretch. What matters is the worst of many, and that the large request itself is answered at all.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.machine import CannotMeasure
from benchmarks.server import JSON, TOKEN, Server
from benchmarks.workload import CONFIG_MAPS

KEYS = 80_000
"""Keys of a ConfigMap; with their values three megabytes of JSON. It is refused in the end, as it must be."""
VALUE = "v" * 20
ROUNDS = 3
AFTER_SECONDS = 0.1
"""Requests go on for this long after the answer: what the server frees then counts, too."""
COMPILE_SECONDS = 3.0
"""The same for an object that takes effect after its answer."""

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VALIDATIONS = 10_000
PROPERTIES = 20_000
ROLE_RULES = 9_000


def measure(server: Server) -> Iterator[Figure]:
    for name, media, body in (
        ("JSON", JSON, _json()),
        ("YAML", "application/yaml", _yaml()),
        ("protobuf", "application/vnd.kubernetes.protobuf", _protobuf()),
    ):
        worst = max(_worst_latency(server, CONFIG_MAPS, media, body) for _ in range(ROUNDS))
        what = f"GET /version beside {len(body) / 1e6:.1f} MB of {name}, worst"
        yield Figure(group="API server", what=what, value=worst * 1e3, unit=" ms")
    for name, path, obj in (
        (f"a policy with {VALIDATIONS} validations", f"{ADMISSION}/validatingadmissionpolicies", _policy()),
        (f"a definition with {PROPERTIES} properties", DEFINITIONS, _definition()),
        (f"a role with {ROLE_RULES} rules", "/apis/rbac.authorization.k8s.io/v1/clusterroles", _role()),
    ):
        worst = _worst_latency(server, path, JSON, json.dumps(obj).encode(), after=COMPILE_SECONDS)
        server.call("DELETE", f"{path}/{obj['metadata']['name']}")
        yield Figure(group="API server", what=f"GET /version beside {name}, worst", value=worst * 1e3, unit=" ms")


def _worst_latency(server: Server, path: str, media: str, body: bytes, *, after: float = AFTER_SECONDS) -> float:
    """Returns the longest time in which a GET was answered, from before the large request until after it."""
    statuses: list[int] = []

    def send() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media}
        with contextlib.closing(server.connect()) as wire:
            wire.request("POST", path, body=body, headers=headers)
            answer = wire.getresponse()
            answer.read()
            statuses.append(answer.status)

    with contextlib.closing(server.connect()) as wire:
        ask = _asker(wire.request, lambda: wire.getresponse().read())
        ask()
        sender = threading.Thread(target=send)
        sender.start()
        latencies = []
        while sender.is_alive():
            latencies.append(ask())
        until = time.perf_counter() + after
        while time.perf_counter() < until:
            latencies.append(ask())
    if not statuses or statuses[0] >= 500:
        raise CannotMeasure(f"a large body was not answered as it should be: {statuses}")
    return max(latencies)


def _asker(request: Callable[[str, str], None], read: Callable[[], bytes]) -> Callable[[], float]:
    def ask() -> float:
        begin = time.perf_counter()
        request("GET", "/version")
        read()
        return time.perf_counter() - begin

    return ask


def _policy() -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    validations = [{"expression": f"object.metadata.name != 'n{number}'"} for number in range(VALIDATIONS)]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}
    return {"metadata": {"name": "large"}, "spec": spec}


def _definition() -> dict[str, Any]:
    spec = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(PROPERTIES)}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "larges", "singular": "large", "kind": "Large", "listKind": "LargeList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "larges.example.com"}, "spec": spec}


def _role() -> dict[str, Any]:
    rules = [{"apiGroups": [""], "resources": [f"r{number}"], "verbs": ["get"]} for number in range(ROLE_RULES)]
    return {"metadata": {"name": "large"}, "rules": rules}


def _json() -> bytes:
    data = {f"key-{number}": VALUE for number in range(KEYS)}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": data}).encode()


def _yaml() -> bytes:
    lines = [f"  key-{number}: {VALUE}\n" for number in range(KEYS)]
    return "".join(["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n", *lines]).encode()


def _protobuf() -> bytes:
    """Returns the envelope with apiVersion and kind (1) around the message (2): metadata (1), entries of data (2)."""
    entries = [_field(2, _field(1, b"key-%d" % number) + _field(2, VALUE.encode())) for number in range(KEYS)]
    message = _field(1, _field(1, b"large")) + b"".join(entries)
    return b"k8s\0" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, message)


def _field(number: int, value: bytes) -> bytes:
    """Returns a field with a length, both as varints."""
    size, length = len(value), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + value
