"""Events of controllers, as a real API server stores them."""

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.event_recorder import EventRecorder
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.events import CORE_V1, NORMAL, WARNING
from podwire.protocols.k8sapi.server_side import Certificate

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}}
LOST = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "nowhere", "uid": "u2"}}


class Time:
    """Stands still."""

    def wall(self):
        return 1_800_000_000.0

    def monotonic(self):
        return 0.0


@pytest.fixture
async def api(tmp_path):
    async with running(Options(data_dir=tmp_path, port=0, store_url="memory://")) as server:
        yield Client(LoopbackHttp(server.assembled.server.handle, Certificate("admin", ("system:masters",))))


async def test_each_recorded_event_is_created_with_a_unique_name(api):
    teller = EventRecorder(api, Time(), "node-controller")
    for reason in ("RegisteredNode", "NodeNotReady"):
        await teller.record(NODE, NORMAL, reason, "so it is")
    first, second = (await api.list(CORE_V1.kind)).items
    assert sorted([first["reason"], second["reason"]]) == ["NodeNotReady", "RegisteredNode"]
    del first["metadata"], first["reason"]
    assert {key: value for key, value in first.items() if value is not None} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"},
        "message": "so it is",
        "type": "Normal",
        "source": {"component": "node-controller"},
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
        "reportingComponent": "node-controller",
        "reportingInstance": "",
    }


async def test_a_rejected_event_fails_no_caller(api, caplog):
    with caplog.at_level("INFO"):
        await EventRecorder(api, Time(), "c").record(LOST, WARNING, "NodeNotReady", "Node is not ready")
    assert "cannot write an event" in caplog.text
