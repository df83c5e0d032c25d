"""What the kernel tells is heard in beats, and all of it."""

import asyncio
import socket

import pytest

from podwire.dradriver.hearing import heard

SOON = 10.0


class Ear:
    def __init__(self, listens):
        self._listens = listens
        self.words = []
        self.came = asyncio.Event()

    def listen(self):
        self.words.append(self._listens.recv(100))
        self.came.set()

    async def next(self):
        async with asyncio.timeout(SOON):
            await self.came.wait()
        self.came.clear()
        return self.words[-1]


@pytest.fixture
def pair():
    tells, listens = socket.socketpair()
    with tells, listens:
        listens.setblocking(False)
        yield tells, listens


async def test_what_comes_within_a_beat_is_heard_at_once(pair):
    tells, listens = pair
    ear = Ear(listens)
    with heard(listens.fileno(), 0.05, ear.listen):
        for each in (b"one ", b"two ", b"three"):
            tells.send(each)
            await asyncio.sleep(0.005)
        assert ear.words == [], "nobody is disturbed meanwhile"
        assert await ear.next() == b"one two three"
        tells.send(b"more")
        assert await ear.next() == b"more"


async def test_nobody_hears_any_more_when_it_is_over(pair):
    tells, listens = pair
    ear = Ear(listens)
    with heard(listens.fileno(), 0.01, ear.listen):
        tells.send(b"too late")
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert ear.words == []
    assert listens.recv(100) == b"too late"
