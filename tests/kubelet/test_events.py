"""Events about objects: against a whole API server, and against one that is away."""

import asyncio
import contextlib
from typing import Any

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet import events
from podwire.kubelet.events import BURST, MESSAGE_BYTES, QUEUED, REFILL_SECONDS, Recorder, Reference
from podwire.objects import names, pods
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope, Unreachable
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.store.memory import MemoryStore

SOON = 30.0
NODE = Reference(kind="Node", name="n1", uid="n1")
EVENTS = BUILTIN.of_kind("v1", "Event")


class Time:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def pod(name: str = "web", uid: str = "u1") -> pods.Pod:
    meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "7"}
    return pods.read({"metadata": meta, "spec": {}})


class Api:
    """Keeps what it is sent; while it is `away` it answers with that error. `heard` is set by every call."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.away: Exception | None = None
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._heard = asyncio.Condition()

    async def _meet(self) -> None:
        await self.gate.wait()
        async with self._heard:
            self.calls += 1
            self._heard.notify_all()
        if self.away is not None:
            raise self.away

    async def create(self, object_: dict[str, Any]) -> dict[str, Any]:
        await self._meet()
        if any(each["metadata"]["name"] == object_["metadata"]["name"] for each in self.created):
            raise ApiError(Reason.ALREADY_EXISTS, "already exists")
        async with self._heard:
            self.created.append(object_)
            self._heard.notify_all()
        return object_

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str = "", **_: Any) -> dict[str, Any]:
        await self._meet()
        if name not in [each["metadata"]["name"] for each in self.created]:
            raise ApiError(Reason.NOT_FOUND, "not found")
        self.patched.append((name, patch))
        return {}

    async def has(self, count: int) -> None:
        """Wait until so many events were created."""
        async with asyncio.timeout(SOON), self._heard:
            await self._heard.wait_for(lambda: len(self.created) >= count)

    async def called(self, times: int) -> None:
        async with asyncio.timeout(SOON), self._heard:
            await self._heard.wait_for(lambda: self.calls >= times)
        for _ in range(10):  # what follows the answer
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(recorder: Recorder):
    task = asyncio.create_task(recorder.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def recorder(api, time) -> Recorder:
    return Recorder(api, time, component="kubelet", host="n1")


@pytest.fixture
async def client(tmp_path, time):
    """A client of a real API server with its store in memory."""
    assembled = assemble(MemoryStore(), Pki.open(tmp_path, names=[], ips=[]), time, Settings())
    await assembled.start()
    work = asyncio.create_task(assembled.run())
    yield Client(LoopbackHttp(assembled.server.handle, Certificate("kubernetes-admin", ("system:masters",))))
    work.cancel()
    await asyncio.wait([work])


async def listed(client: Client, count: int, namespace: str = "default", times: int = 1) -> list[dict[str, Any]]:
    """The events, once there are so many and the last of them was told so often."""
    async with asyncio.timeout(SOON):
        while True:
            found = (await client.list(EVENTS, Scope(namespace=namespace))).items
            if len(found) == count and found[-1]["count"] == times:
                return list(found)
            await asyncio.sleep(0.005)


async def test_an_event_is_what_clients_expect_of_one(client, time):
    recorder = Recorder(client, time, component="kubelet", host="n1")
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Started", "Container started", field_path="spec.containers{app}")
        [event] = await listed(client, 1)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web",
        "namespace": "default",
        "uid": "u1",
        "resourceVersion": "7",
        "fieldPath": "spec.containers{app}",
    }
    name, _, stamp = event["metadata"]["name"].rpartition(".")
    assert (name, int(stamp, 16)) == ("web", 1_800_000_000_000_000_000)
    assert event["source"] == {"component": "kubelet", "host": "n1"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", "n1")
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Started", "Container started")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["count"] == 1


async def test_an_event_that_is_told_again_is_counted(client, time):
    recorder = Recorder(client, time, component="kubelet", host="n1")
    async with running(recorder):
        recorder.tell(pod(), "Warning", "Unhealthy", "Readiness probe failed: ")
        await listed(client, 1)
        time.now += 10
        recorder.tell(pod(), "Warning", "Unhealthy", "Readiness probe failed: ")
        [event] = await listed(client, 1, times=2)
    assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["lastTimestamp"] == "2027-01-15T08:00:10Z"


async def test_an_event_that_the_server_forgot_is_told_anew(client, time):
    recorder = Recorder(client, time, component="kubelet")
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "again")
        [first] = await listed(client, 1)
        await client.delete(EVENTS, first["metadata"]["name"], "default")
        time.now += 10
        recorder.tell(pod(), "Normal", "Pulled", "again")
        [second] = await listed(client, 1)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert (second["count"], second["firstTimestamp"]) == (1, "2027-01-15T08:00:10Z")


async def test_an_event_about_an_object_without_a_namespace_lives_in_the_default_one(client, time):
    recorder = Recorder(client, time, component="kubelet", host="n1")
    async with running(recorder):
        recorder.tell(NODE, "Normal", "NodeReady", "Node n1 status is now: NodeReady")
        [event] = await listed(client, 1)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}


async def test_what_the_server_refuses_keeps_nobody_waiting(client, time, caplog):
    recorder = Recorder(client, time, component="kubelet")
    lost = pods.read({"metadata": {"name": "lost", "namespace": "nowhere", "uid": "u2"}, "spec": {}})
    with caplog.at_level("INFO"):
        async with running(recorder):
            recorder.tell(lost, "Normal", "Pulled", "x")
            recorder.tell(pod(), "Normal", "Pulled", "x")
            await listed(client, 1)
    assert "event refused" in caplog.text


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        pytest.param("a" * 1024, "a" * 1024, id="that fits"),
        pytest.param("a" * 1025, "a" * 1021 + "...", id="that does not"),
        pytest.param("ä" * 600, "ä" * 510 + "...", id="in letters of two bytes"),
        pytest.param("\udc80", "?", id="in letters that are none"),
        pytest.param("", "", id="of nothing"),
    ],
)
async def test_a_message(api, recorder, message, sent):
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", message)
        await api.called(1)
    assert api.created[0]["message"] == sent
    assert len(sent.encode()) <= MESSAGE_BYTES


async def test_events_are_sent_in_the_order_in_which_they_were_told(api, recorder):
    for reason in ("Pulling", "Pulled", "Created", "Started"):
        recorder.tell(pod(), "Normal", reason, "x")
    async with running(recorder):
        await api.called(4)
    assert [each["reason"] for each in api.created] == ["Pulling", "Pulled", "Created", "Started"]
    names = [each["metadata"]["name"] for each in api.created]
    assert len(set(names)) == 4  # though all of them in the same moment
    assert names == sorted(names)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"type_": "Warning"}, id="type"),
        pytest.param({"reason": "Failed"}, id="reason"),
        pytest.param({"message": "y"}, id="message"),
        pytest.param({"field_path": "spec.containers{b}"}, id="container"),
        pytest.param({"about": pod(uid="u2")}, id="object of the same name"),
    ],
)
async def test_an_event_is_another_one_with_another(api, recorder, other):
    told = {"about": pod(), "type_": "Normal", "reason": "Pulled", "message": "x", "field_path": "spec.containers{a}"}
    recorder.tell(**told)
    recorder.tell(**(told | other))
    recorder.tell(**told)
    async with running(recorder):
        await api.called(2)
    assert [each["count"] for each in api.created] == [2, 1]


async def test_one_object_does_not_drown_the_others_and_its_count_stays_true(api, recorder, time):
    async with running(recorder):
        for index in range(BURST + 10):
            recorder.tell(pod(), "Warning", "Unhealthy", f"failed {index}")
        recorder.tell(pod(), "Warning", "Unhealthy", "failed 0")
        recorder.tell(pod("other", "u2"), "Normal", "Pulled", "x")
        await api.called(BURST + 1)
        assert [each["involvedObject"]["name"] for each in api.created] == ["web"] * BURST + ["other"]
        time.now += REFILL_SECONDS
        recorder.tell(pod(), "Warning", "Unhealthy", "failed 1")
        recorder.tell(pod(), "Warning", "Unhealthy", "failed 1")
        await api.called(BURST + 2)
    assert len(api.created) == BURST + 1
    # The second telling was not to be sent by itself, but is in the first one's count.
    assert [patch["count"] for _, patch in api.patched] == [3]


async def test_what_was_told_often_while_nobody_listened_is_sent_once(api, recorder):
    for _ in range(10):
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
    async with running(recorder):
        await api.called(1)
    assert [each["count"] for each in api.created] == [10]
    assert api.patched == []


async def test_what_is_told_while_it_is_being_sent_is_sent_once_more(api, recorder):
    api.gate.clear()
    async with running(recorder):
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        for _ in range(10):
            await asyncio.sleep(0)
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        api.gate.set()
        await api.called(2)
    assert api.created[0]["count"] == 1
    assert [patch["count"] for _, patch in api.patched] == [2]


@pytest.mark.parametrize(
    "error",
    [Unreachable("nobody"), ApiError(Reason.SERVICE_UNAVAILABLE, "later"), ApiError(Reason.TOO_MANY_REQUESTS, "later")],
    ids=["nobody there", "not now", "too many"],
)
async def test_an_api_that_was_away_hears_it_when_it_is_back(api, recorder, error):
    api.away = error
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        recorder.tell(pod(), "Normal", "Started", "x")
        await api.called(1)
        recorder.tell(pod(), "Normal", "Pulled", "x")
        api.away = None
        await api.has(2)
    assert [(each["reason"], each["count"]) for each in api.created] == [("Pulled", 2), ("Started", 1)]


async def test_an_event_that_arrived_though_the_answer_did_not_is_not_sent_twice(api, recorder, monkeypatch):
    sent = api.create

    async def create(object_: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setattr(api, "create", sent)
        await sent(object_)
        raise Unreachable("the line broke")

    monkeypatch.setattr(api, "create", create)
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await api.called(2)
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await api.called(3)
    assert len(api.created) == 1
    assert [patch["count"] for _, patch in api.patched] == [2]


async def test_when_the_api_is_away_for_too_long_events_are_dropped(api, recorder, time, caplog):
    api.away = Unreachable("nobody")
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "old")
        await api.called(1)
        time.now += events.AWAY_SECONDS
        recorder.tell(pod(), "Normal", "Pulled", "new")
        await api.called(2)  # of the new one: the old one is not tried any more
        api.away = None
        await api.has(1)
    assert [each["message"] for each in api.created] == ["new"]
    assert "event dropped, the API is away" in caplog.text


async def test_the_line_of_unsent_events_is_bounded(api, recorder, caplog):
    api.gate.clear()
    async with running(recorder):
        for index in range(QUEUED + 50):
            recorder.tell(pod(f"p{index}", f"u{index}"), "Normal", "Pulled", "x")
        api.gate.set()
        await api.called(QUEUED)
        recorder.tell(pod("last", "last"), "Normal", "Pulled", "x")
        await api.called(QUEUED + 1)
    assert len(api.created) == QUEUED + 1
    assert "events were dropped" in caplog.text


async def test_a_fault_in_one_event_silences_no_other(api, recorder, caplog):
    api.away = ZeroDivisionError("a bug")
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await api.called(1)
        api.away = None
        recorder.tell(pod(), "Normal", "Started", "x")
        await api.called(2)
    assert [each["reason"] for each in api.created] == ["Started"]
    assert "event not sent" in caplog.text


async def test_the_longest_unheard_are_forgotten(api, recorder, monkeypatch):
    monkeypatch.setattr(events, "REMEMBERED", 2)
    async with running(recorder):
        for name in ("a", "b", "c"):
            recorder.tell(pod(name, name), "Normal", "Pulled", "x")
        await api.called(3)
        recorder.tell(pod("c", "c"), "Normal", "Pulled", "x")
        recorder.tell(pod("a", "a"), "Normal", "Pulled", "x")
        await api.called(5)
    assert len(api.patched) == 1
    assert [each["involvedObject"]["name"] for each in api.created] == ["a", "b", "c", "a"]


async def test_the_name_of_an_event_fits_whatever_the_name_of_its_object(api, recorder):
    async with running(recorder):
        recorder.tell(Reference(kind="Node", name="n" * 235 + "-" * 18), "Normal", "NodeReady", "x")
        await api.called(1)
    name = api.created[0]["metadata"]["name"]
    assert len(name) <= 253
    assert names.dns_subdomain(name) == []
