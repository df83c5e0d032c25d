"""What the kernel tells is heard in beats, and all of it."""

import asyncio
import socket

import pytest

from podwire.dradriver.hearing import heard

BEAT = 0.05


@pytest.fixture
def pair():
    tells, listens = socket.socketpair()
    with tells, listens:
        listens.setblocking(False)
        yield tells, listens


class Beats:
    """Timers of the loop that end when a test says so, whatever the clock says."""

    def __init__(self, loop, monkeypatch):
        self.due = []
        self._later = loop.call_later
        monkeypatch.setattr(loop, "call_later", self._set)

    def _set(self, seconds, work):
        handle = self._later(3600.0, work)
        self.due.append((seconds, handle, work))
        return handle

    def pass_(self):
        (_, handle, work), self.due = self.due[0], self.due[1:]
        handle.cancel()
        work()


@pytest.fixture
async def beats(monkeypatch):
    return Beats(asyncio.get_running_loop(), monkeypatch)


async def noticed():
    """The loop has seen what came."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_comes_within_a_beat_is_heard_at_once(pair, beats):
    tells, listens = pair
    words = []
    with heard(listens.fileno(), BEAT, lambda: words.append(listens.recv(100))):
        for each in (b"one ", b"two ", b"three"):
            tells.send(each)
            await noticed()
        assert words == [], "nobody is disturbed meanwhile"
        assert [seconds for seconds, *_ in beats.due] == [BEAT]
        beats.pass_()
        assert words == [b"one two three"]
        tells.send(b"more")
        await noticed()
        beats.pass_()
        assert words == [b"one two three", b"more"]


async def test_nobody_hears_any_more_when_it_is_over(pair, beats):
    tells, listens = pair
    with heard(listens.fileno(), BEAT, lambda: pytest.fail("it was heard")):
        tells.send(b"too late")
        await noticed()
        assert len(beats.due) == 1
    await noticed()
    [(_, timer, _)] = beats.due
    assert timer.cancelled()
    assert listens.recv(100) == b"too late"
