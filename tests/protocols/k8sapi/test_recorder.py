"""Events on their way: to a whole API server, and to one that is away."""

import asyncio
import contextlib
from typing import Any

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.objects import pods
from podwire.protocols.k8sapi.client_side import Client, Interrupted, Scope, Unreachable
from podwire.protocols.k8sapi.client_side.events import BURST, CORE_V1, EVENTS_V1, REFILL_SECONDS
from podwire.protocols.k8sapi.client_side.recorder import AWAY_SECONDS, BATCH_SECONDS, QUEUED, Recorder
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.store.memory import MemoryStore

SOON = 30.0
EIGHT, TEN_LATER = "2027-01-15T08:00:00Z", "2027-01-15T08:00:10Z"


class Time:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Pauses:
    """Stands in for sleeping: what the recorder asks for, and until a test ends it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.held = True
        self._begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        if self.held:
            over = asyncio.get_running_loop().create_future()
            self._begun.put_nowait(over)
            await over

    async def next(self) -> asyncio.Future[None]:
        async with asyncio.timeout(SOON):
            return await self._begun.get()


def pod(name: str = "web", uid: str = "u1", namespace: str = "default") -> pods.Pod:
    meta = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "7"}
    return pods.read({"metadata": meta, "spec": {}})


class Api:
    """Keeps what it is sent; while it is `away` it answers with that error, while its `gate` is shut not at all."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.away: Exception | None = None
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._heard = asyncio.Condition()

    async def _meet(self) -> None:
        async with self._heard:
            self.calls += 1
            self._heard.notify_all()
        await self.gate.wait()
        if self.away is not None:
            raise self.away

    async def create(self, object_: dict[str, Any]) -> dict[str, Any]:
        await self._meet()
        if any(item["metadata"]["name"] == object_["metadata"]["name"] for item in self.created):
            raise ApiError(Reason.ALREADY_EXISTS, "already exists")
        self.created.append(object_)
        return object_

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str = "") -> dict[str, Any]:
        await self._meet()
        if name not in [item["metadata"]["name"] for item in self.created]:
            raise ApiError(Reason.NOT_FOUND, "not found")
        self.patched.append((name, patch))
        return {}

    async def called(self, times: int) -> None:
        async with asyncio.timeout(SOON), self._heard:
            await self._heard.wait_for(lambda: self.calls >= times)


async def settled(recorder: Recorder) -> None:
    async with asyncio.timeout(SOON):
        await recorder.idle()


@contextlib.asynccontextmanager
async def running(recorder: Recorder):
    """It works until all is sent that the test tells it."""
    task = asyncio.create_task(recorder.run())
    try:
        yield
        await settled(recorder)
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
def recorder(api, time, request) -> Recorder:
    """A test that asks for `pauses` ends them itself."""
    if "pauses" in request.fixturenames:
        pauses = request.getfixturevalue("pauses")
        return Recorder(api, time, component="kubelet", host="n1", pause=lambda seconds, _event: pauses.sleep(seconds))
    return Recorder(api, time, component="kubelet", host="n1", batch_seconds=0.001)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def client(tmp_path, time):
    """A client of a real API server with its store in memory."""
    assembled = assemble(MemoryStore(), Pki.open(tmp_path, names=[], ips=[]), time, Settings())
    await assembled.start()
    work = asyncio.create_task(assembled.run())
    yield Client(LoopbackHttp(assembled.server.handle, Certificate("kubernetes-admin", ("system:masters",))))
    work.cancel()
    await asyncio.wait([work])


@pytest.fixture(params=[CORE_V1, EVENTS_V1], ids=["core", "events.k8s.io"])
def real(request, client, time) -> Recorder:
    """One that tells the real server, by either API."""
    return Recorder(client, time, component="trial", host="n1", shape=request.param)


async def kept(client: Client, recorder: Recorder, shape=CORE_V1) -> list[dict[str, Any]]:
    """The server's state when all is sent."""
    await settled(recorder)
    return list((await client.list(shape.kind, Scope(namespace="default"))).items)


async def test_a_repeated_event_patches_its_count(client, time):
    recorder = Recorder(client, time, component="trial", host="n1")
    async with running(recorder):
        recorder.tell(pod(), "Warning", "Unhealthy", "Readiness probe failed: ")
        [event] = await kept(client, recorder)
        assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (1, EIGHT, EIGHT)
        time.now += 10
        recorder.tell(pod(), "Warning", "Unhealthy", "Readiness probe failed: ")
        [event] = await kept(client, recorder)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (2, EIGHT, TEN_LATER)


async def test_a_series_is_counted_by_the_server(client, time):
    recorder = Recorder(client, time, component="trial", host="n1", shape=EVENTS_V1)
    async with running(recorder):
        for count in (1, 2, 3):
            recorder.tell(pod(), "Warning", "FailedScheduling", "no space", action="Scheduling")
            [event] = await kept(client, recorder, EVENTS_V1)
            assert event.get("series", {}).get("count", 1) == count
            time.now += 10
    assert event["eventTime"] == "2027-01-15T08:00:00.000000Z"
    assert event["series"]["lastObservedTime"] == "2027-01-15T08:00:20.000000Z"


async def test_an_expired_event_is_created_again(client, time, real):
    async with running(real):
        for _ in range(2):
            real.tell(pod(), "Normal", "Pulled", "again", action="Pulling")
        [first] = await kept(client, real)
        await client.delete(CORE_V1.kind, first["metadata"]["name"], "default")
        time.now += 10
        real.tell(pod(), "Normal", "Pulled", "again", action="Pulling")
        [second] = await kept(client, real, EVENTS_V1)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert "series" not in second
    assert second.get("deprecatedCount", 1) == 1
    assert (second.get("eventTime") or second["deprecatedFirstTimestamp"]).startswith("2027-01-15T08:00:10")


async def test_a_rejected_event_does_not_block_others(client, real, caplog):
    with caplog.at_level("INFO"):
        async with running(real):
            real.tell(pod("lost", namespace="nowhere"), "Normal", "Pulled", "x", action="Pulling")
            real.tell(pod(), "Normal", "Pulled", "x", action="Pulling")
            assert len(await kept(client, real)) == 1
    assert "API server rejected event" in caplog.text


async def test_events_wait_and_then_come_with_the_time_when_they_happened(api, recorder, time, pauses):
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        manners = await pauses.next()
        assert pauses.asked == [BATCH_SECONDS]
        time.now += 10
        recorder.tell(pod(), "Normal", "Started", "x")
        time.now += 10
        assert api.calls == 0
        manners.set_result(None)
    assert [item["lastTimestamp"] for item in api.created] == [EIGHT, TEN_LATER]


async def test_a_warning_flushes_the_queue_at_once(api, time):
    recorder = Recorder(api, time, component="kubelet", host="n1", batch_seconds=2 * SOON)
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await asyncio.sleep(0)
        recorder.tell(pod(), "Warning", "Failed", "x")
        await settled(recorder)
        assert [event["reason"] for event in api.created] == ["Pulled", "Failed"]


async def test_a_burst_is_sent_without_further_pauses(api, recorder, pauses):
    pauses.held = False
    api.gate.clear()
    async with running(recorder):
        for reason in map(str, range(BURST - 1)):
            recorder.tell(pod(), "Normal", reason, "x")
        await api.called(1)
        recorder.tell(pod(), "Normal", "recorded while others are sent", "x")
        api.gate.set()
    assert (len(api.created), pauses.asked) == (BURST, [BATCH_SECONDS])


async def test_nothing_is_left_when_it_is_idle(api, recorder):
    api.gate.clear()
    async with running(recorder):
        await settled(recorder)  # before anything is recorded
        recorder.tell(pod(), "Normal", "Pulled", "x")
        recorder.tell(pod(), "Normal", "Started", "x")
        waiting = asyncio.create_task(recorder.idle())
        await api.called(1)
        assert not waiting.done()
        api.away = Unreachable("nobody")
        api.gate.set()
        await api.called(2)
        assert not waiting.done()  # although none is in line but the one that is tried again
        api.away = None
        async with asyncio.timeout(SOON):
            await waiting
        assert [item["reason"] for item in api.created] == ["Pulled", "Started"]


async def test_events_are_sent_in_order(api, recorder):
    for reason in ("Pulling", "Pulled", "Created", "Started"):
        recorder.tell(pod(), "Normal", reason, "x")
    async with running(recorder):
        pass
    assert [item["reason"] for item in api.created] == ["Pulling", "Pulled", "Created", "Started"]
    names = [item["metadata"]["name"] for item in api.created]
    assert len(set(names)) == 4  # though all of them in the same moment
    assert names == sorted(names)


async def test_words_without_end_are_cut(api, recorder):
    recorder.tell(pod(), "Normal", "Pulled", "x" * 5000)
    async with running(recorder):
        pass
    assert len(api.created[0]["message"]) == 1024


async def test_rate_limited_events_count_in_the_next_one(api, recorder, time):
    async with running(recorder):
        for index in range(BURST + 10):
            recorder.tell(pod(), "Warning", "Unhealthy", f"failed {index}")
        recorder.tell(pod("other", "u2"), "Normal", "Pulled", "x")
        await settled(recorder)
        assert [item["involvedObject"]["name"] for item in api.created] == ["web"] * BURST + ["other"]
        time.now += REFILL_SECONDS
        recorder.tell(pod(), "Warning", "Unhealthy", "failed 1")
        recorder.tell(pod(), "Warning", "Unhealthy", "failed 1")
    assert len(api.created) == BURST + 1
    assert [patch["count"] for _, patch in api.patched] == [3]


async def test_repeats_during_an_outage_are_sent_once(api, recorder):
    for _ in range(10):
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
    async with running(recorder):
        pass
    assert [item["count"] for item in api.created] == [10]
    assert api.patched == []


async def test_a_repeat_during_a_send_is_sent_afterwards(api, recorder):
    api.gate.clear()
    async with running(recorder):
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        await api.called(1)
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        api.gate.set()
    assert api.created[0]["count"] == 1
    assert [patch["count"] for _, patch in api.patched] == [2]


async def test_a_repeat_during_a_failed_send_goes_with_the_retry(api, recorder, pauses):
    api.gate.clear()
    async with running(recorder):
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        (await pauses.next()).set_result(None)
        await api.called(1)
        recorder.tell(pod(), "Warning", "Unhealthy", "failed")
        api.away = Unreachable("nobody")
        api.gate.set()
        until_the_next_try = await pauses.next()
        api.away = None
        until_the_next_try.set_result(None)
    assert [item["count"] for item in api.created] == [2]
    assert api.patched == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("nobody"), id="nobody there"),
        pytest.param(Interrupted("reset"), id="the line broke"),
        pytest.param(ApiError(Reason.SERVICE_UNAVAILABLE, "later"), id="not now"),
        pytest.param(ApiError(Reason.TOO_MANY_REQUESTS, "later"), id="too many"),
    ],
)
async def test_events_are_sent_after_an_outage(api, recorder, pauses, error):
    api.away = error
    recorder.tell(pod(), "Normal", "Pulled", "x")
    recorder.tell(pod(), "Normal", "Started", "x")
    async with running(recorder):
        (await pauses.next()).set_result(None)
        until_the_next_try = await pauses.next()
        recorder.tell(pod(), "Normal", "Pulled", "x")
        api.away = None
        until_the_next_try.set_result(None)
    assert [(item["reason"], item["count"]) for item in api.created] == [("Pulled", 2), ("Started", 1)]
    assert api.patched == []


async def test_an_event_that_arrived_though_the_answer_did_not_is_not_sent_twice(api, recorder, monkeypatch):
    sent = api.create

    async def create(object_: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setattr(api, "create", sent)
        await sent(object_)
        raise Unreachable("the line broke")

    monkeypatch.setattr(api, "create", create)
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await settled(recorder)
        recorder.tell(pod(), "Normal", "Pulled", "x")
    assert len(api.created) == 1
    assert [patch["count"] for _, patch in api.patched] == [2]


async def test_when_the_api_is_away_for_too_long_events_are_dropped(api, recorder, time, pauses, caplog):
    api.away = Unreachable("nobody")
    recorder.tell(pod(), "Normal", "Pulled", "old")
    async with running(recorder):
        (await pauses.next()).set_result(None)
        until_the_next_try = await pauses.next()
        time.now += AWAY_SECONDS
        recorder.tell(pod(), "Normal", "Pulled", "new")
        api.away = None
        until_the_next_try.set_result(None)
    assert [item["message"] for item in api.created] == ["new"]
    assert "event dropped, the API is away" in caplog.text


async def test_the_line_of_unsent_events_is_bounded(api, recorder, caplog):
    for index in range(QUEUED + 50):
        recorder.tell(pod(f"p{index}", f"u{index}"), "Normal", "Pulled", "x")
    async with running(recorder):
        await settled(recorder)
        recorder.tell(pod("last", "last"), "Normal", "Pulled", "x")
    assert len(api.created) == QUEUED + 1
    assert "events were dropped" in caplog.text


async def test_a_fault_in_one_event_silences_no_other(api, recorder, caplog):
    api.away = ZeroDivisionError("a bug")
    async with running(recorder):
        recorder.tell(pod(), "Normal", "Pulled", "x")
        await settled(recorder)
        api.away = None
        recorder.tell(pod(), "Normal", "Started", "x")
    assert [item["reason"] for item in api.created] == ["Started"]
    assert "event not sent" in caplog.text
