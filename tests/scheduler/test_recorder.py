"""Events are told in the background, once, and counted."""

import asyncio
import contextlib

import pytest

from podwire.protocols.k8sapi.client_side import Interrupted
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.scheduler import recorder as recorders
from podwire.scheduler.recorder import Note, Recorder


class Clock:
    def wall(self):
        return 1.0

    def monotonic(self):
        return 1.0


class Api:
    """Takes what it is told, and refuses what the test says."""

    def __init__(self):
        self.told = asyncio.Queue()
        self.refusals = []

    async def create(self, event):
        await self._take("create", event)

    async def patch(self, kind, name, patch, namespace):
        await self._take("patch", {"name": name, **patch})

    async def _take(self, verb, what):
        if self.refusals:
            raise self.refusals.pop(0)
        self.told.put_nowait((verb, what))

    async def next(self):
        async with asyncio.timeout(20):
            return await self.told.get()


@pytest.fixture
def api():
    return Api()


@pytest.fixture
async def recorder(api):
    made = Recorder(api, Clock(), "default-scheduler", "default-scheduler-host")
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
def note(make_pod):
    return lambda text="no room", name="web": Note(
        make_pod(name).pod, "Warning", "FailedScheduling", "Scheduling", text
    )


async def test_an_event_is_about_its_pod(recorder, api, note):
    recorder.tell(note())
    verb, event = await api.next()
    assert verb == "create"
    assert event["regarding"]["uid"] == "uid-default-web"
    assert event["metadata"] == {"name": "web.3b9aca00", "namespace": "default"}
    assert (event["reportingController"], event["reportingInstance"]) == ("default-scheduler", "default-scheduler-host")
    assert "series" not in event


async def test_what_is_told_again_is_counted(recorder, api, note):
    for _ in range(3):
        recorder.tell(note())
        last = await api.next()
    assert last[0] == "patch"
    assert last[1]["series"]["count"] == 3


async def test_what_is_told_again_before_it_was_sent_is_counted_at_once(recorder, api, note):
    for _ in range(5):
        recorder.tell(note())
    _verb, event = await api.next()
    assert event["series"]["count"] == 5


async def test_other_words_and_other_pods_are_other_events(recorder, api, note):
    for each in (note(), note("other"), note(name="other")):
        recorder.tell(each)
        assert (await api.next())[0] == "create"


async def test_an_event_that_expired_is_told_anew(recorder, api, note):
    recorder.tell(note())
    await api.next()
    api.refusals = [ApiError(Reason.NOT_FOUND, "gone")]
    recorder.tell(note())
    assert (await api.next())[0] == "create"


@pytest.mark.parametrize("error", [ApiError(Reason.FORBIDDEN, "no"), Interrupted("reset"), ValueError("what?")])
async def test_an_event_that_is_not_taken_is_forgotten_and_the_next_is_told(recorder, api, note, error):
    api.refusals = [error]
    recorder.tell(note())
    recorder.tell(note("next"))
    assert (await api.next())[1]["note"] == "next"


async def test_words_without_end_are_cut(recorder, api, note):
    recorder.tell(note("x" * 5000))
    assert len((await api.next())[1]["note"]) == 1024


async def test_there_is_an_end_to_what_is_kept(api, note, monkeypatch):
    monkeypatch.setattr(recorders, "MOST_WAITING", 2)
    recorder = Recorder(api, Clock(), "c", "i")
    for number in range(5):
        recorder.tell(note(str(number)))
    assert [each[0].text for each in recorder._waiting.values()] == ["0", "1"]


async def test_there_is_an_end_to_what_is_remembered(recorder, api, note, monkeypatch):
    monkeypatch.setattr(recorders, "MOST_KNOWN", 2)
    for number in range(5):
        recorder.tell(note(str(number)))
        await api.next()
    recorder.tell(note("0"))
    assert (await api.next())[0] == "create"
