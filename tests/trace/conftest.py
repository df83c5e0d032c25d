"""The story of a pod as records: what a cluster of ours tells when a pod is started with kubectl."""

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from podwire.trace.pod_trace import PodTrace, PodTraces
from podwire.trace.record import Record
from tests.eventually import eventually_async

UID = "3bba3e288f2d47ce8c5bf9d5d263d9fc"
BEGIN = 1_800_000_000.0
PODS = "/api/v1/namespaces/default/pods"
KEY = "/registry/pods/default/web"
WEB = {"namespace": "default", "name": "web"}
KUBECTL = {"kubectl_command": "kubectl apply", "kubectl_session": "a932fdc4"}
PENDING, BOUND, RUNNING = (
    {"phase": "Pending"},
    {"phase": "Pending", "nodeName": "n1"},
    {"phase": "Running", "nodeName": "n1"},
)
ALL, OWN = "GET /api/v1/pods?watch=true", "GET /api/v1/pods?fieldSelector=spec.nodeName=n1&watch=true"


class Tape:
    """Records one after the other, a millisecond apart."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._numbers: dict[str, Iterable[int]] = {}

    def add(self, sender: str, call: str, way: tuple[str, str], method: str, **more: Any) -> None:
        numbers = self._numbers.setdefault(sender, count(1))
        self.records.append(
            Record(
                id=f"{sender}-1.{call}",
                seq=next(numbers),
                time=more.pop("time", BEGIN + len(self.records) / 1000),
                caller=way[0],
                callee=way[1],
                method=method,
                **more,
            )
        )

    def begin(self, sender: str, call: str, way: tuple[str, str], method: str, **more: Any) -> None:
        self.add(sender, call, way, method, **more)

    def end(self, sender: str, call: str, way: tuple[str, str], method: str, outcome: str, **more: Any) -> None:
        self.add(sender, call, (way[1], way[0]), method, outcome=outcome, **more)


def recorded() -> list[Record]:
    tape = Tape()
    scheduler, kubelet, kubectl = ("Scheduler", "APIServer"), ("Kubelet", "APIServer"), ("KubeCtl", "APIServer")
    etcd, cri, cni = ("APIServer", "etcd"), ("Kubelet", "ContainerRuntime"), ("ContainerRuntime", "CNIPlugin")
    oneself = ("ContainerRuntime", "ContainerRuntime")
    tape.begin("APIServer", "1", scheduler, ALL, time=BEGIN - 60)
    tape.begin("APIServer", "2", kubelet, OWN, time=BEGIN - 50)
    tape.begin("APIServer", "3", kubectl, f"GET {PODS}/web", detail=WEB | KUBECTL)
    tape.end("APIServer", "3", kubectl, f"GET {PODS}/web", "404", detail=WEB)
    tape.begin("APIServer", "4", kubectl, f"POST {PODS}?fieldManager=kubectl", detail=KUBECTL)
    tape.begin("etcd", "5", etcd, f"create {KEY}", pod=UID, detail=WEB | PENDING)
    tape.end("etcd", "5", etcd, f"create {KEY}", "OK", pod=UID, detail=WEB)
    tape.end("APIServer", "4", kubectl, f"POST {PODS}?fieldManager=kubectl", "201", pod=UID, detail=WEB | PENDING)
    tape.end("APIServer", "1", scheduler, ALL, "EVENT", pod=UID, detail=WEB | PENDING | {"type": "ADDED"})
    tape.begin("APIServer", "6", scheduler, f"POST {PODS}/web/binding", pod=UID, detail=WEB)
    tape.begin("etcd", "7", etcd, f"update {KEY}", pod=UID, detail=WEB | BOUND)
    tape.end("etcd", "7", etcd, f"update {KEY}", "OK", pod=UID, detail=WEB)
    tape.end("APIServer", "6", scheduler, f"POST {PODS}/web/binding", "201", pod=UID, detail=WEB)
    tape.end("APIServer", "2", kubelet, OWN, "EVENT", pod=UID, detail=WEB | BOUND | {"type": "ADDED"})
    tape.begin("Kubelet", "1", cri, "RunPodSandbox", pod=UID)
    tape.begin("Runtime", "1", cni, "ADD bridge", pod=UID)
    tape.end("Runtime", "1", cni, "ADD bridge", "OK", pod=UID, detail={"stdout": {"ips": [{"address": "10.1.0.2/24"}]}})
    tape.end("Kubelet", "1", cri, "RunPodSandbox", "OK", pod=UID, detail={"response": {"pod_sandbox_id": "s1"}})
    tape.begin("Kubelet", "2", cri, "CreateContainer", pod=UID)
    tape.end("Kubelet", "2", cri, "CreateContainer", "OK", pod=UID)
    tape.begin("Kubelet", "3", cri, "StartContainer", pod=UID)
    tape.begin("Runtime", "2", oneself, "crun run", pod=UID)
    tape.end("Runtime", "2", oneself, "crun run", "OK", pod=UID)
    tape.end("Kubelet", "3", cri, "StartContainer", "OK", pod=UID)
    tape.begin("APIServer", "8", kubelet, f"PATCH {PODS}/web/status", pod=UID, detail=WEB)
    tape.begin("etcd", "9", etcd, f"update {KEY}", pod=UID, detail=WEB | RUNNING)
    tape.end("etcd", "9", etcd, f"update {KEY}", "OK", pod=UID, detail=WEB)
    tape.end("APIServer", "8", kubelet, f"PATCH {PODS}/web/status", "200", pod=UID, detail=WEB | RUNNING)
    return tape.records


def reported(records: Iterable[Record], name: str = "web") -> PodTrace:
    traces = PodTraces()
    traces.learn(records)
    trace = traces.find("default", name)
    assert trace is not None
    return trace


@pytest.fixture
def records() -> list[Record]:
    return recorded()


@pytest.fixture
def trace(records) -> PodTrace:
    return reported(records)


@pytest.fixture
def tell():
    """The story of the pod default/web, or of another name, that some records tell."""
    return reported


@pytest.fixture
def appeared():
    """Waits for a file."""

    async def wait(path: Path) -> None:
        await eventually_async(path.exists)

    return wait
