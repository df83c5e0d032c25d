"""Failures and kills at any step: no pod starts without its claims, none loses them while it runs, nobody
works on a claim while another does, and in the end drivers have let go of everything."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.durable.files import Durability
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint, NotWritten
from podwire.kubelet.claims.claim_info import ClaimUser, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.preparation import ClaimPreparation
from podwire.kubelet.claims.responses import DriverResults
from podwire.objects import claims

DRIVERS = {"1": ("d",), "2": ("d", "e"), "3": ("e",)}
"""Claims, and whose devices they have."""
PODS = {"p": ("1",), "q": ("1", "2"), "r": ("3", "2"), "s": ("3",)}


def claim(uid):
    results = [{"request": "r", "driver": driver, "pool": "n", "device": uid} for driver in DRIVERS[uid]]
    reserved = [{"resource": "pods", "name": each, "uid": each} for each, used in PODS.items() if uid in used]
    return claims.read(
        {
            "metadata": {"name": f"c{uid}", "namespace": "ns", "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
        }
    )


class Drivers:
    """Prepared claims outlive a kubelet; the drivers fail, hesitate and forget to answer on demand."""

    def __init__(self, moods):
        self.moods, self.prepared, self.busy, self.running = iter(moods), set(), set(), set()

    async def prepare(self, name, records):
        return await self._asked(name, records, self.prepared.add, (PreparedDevice(pool="n", name="x"),))

    async def unprepare(self, name, records):
        for record in records:
            assert not any(record.uid in PODS[pod] for pod in self.running), "taken from a pod that runs"
        return await self._asked(name, records, self.prepared.discard, None)

    async def _asked(self, name, records, effect, done):
        keys = {(name, record.uid) for record in records}
        assert not keys & self.busy, "two at the same claim"
        self.busy |= keys
        judged = DriverResults()
        try:
            for record in records:
                mood = next(self.moods, "well")
                await hesitates(mood)
                if mood == "fails":
                    judged.failures.append("no")
                    continue
                effect((name, record.uid))
                if mood == "forgets":  # it has done it, and nobody learns that
                    judged.failures.append("no answer")
                else:
                    judged.done[record.uid] = done
        finally:
            self.busy -= keys
        return judged


async def hesitates(mood):
    for _ in range(4 if mood == "slow" else 1):
        await asyncio.sleep(0)


class Disk(ClaimCheckpoint):
    """One that is full now and then."""

    def __init__(self, directory, full):
        super().__init__(directory)
        self._full = iter(full)

    async def put(self, claim, durability=Durability.POWER_LOSS):
        if next(self._full, False):
            raise NotWritten("no space left on device")
        await super().put(claim, durability)


async def lives(pod, kubelet, drivers, ended):
    """As its worker has it live, from where the kubelet before has left it."""
    if pod not in drivers.running:
        while True:
            try:
                await kubelet.prepare(ClaimUser(uid=pod, name=pod), [claim(item) for item in PODS[pod]])
                break
            except ClaimsNotReady:
                await asyncio.sleep(0)
        wanted = {(driver, item) for item in PODS[pod] for driver in DRIVERS[item]}
        assert wanted <= drivers.prepared, "started without its claims"
        drivers.running.add(pod)
    await hesitates("slow")
    drivers.running.discard(pod)
    ended.add(pod)
    await ends(pod, kubelet)


async def ends(pod, kubelet):
    while True:
        try:
            await kubelet.unprepare(pod)
        except NotUnprepared:
            await asyncio.sleep(0)
        else:
            return


async def history(directory, moods, full, deaths):
    drivers, ended = Drivers(moods), set()
    for steps in (*deaths, None):
        checkpoint = Disk(directory, full if steps is not None else ())
        checkpoint.load()
        kubelet = ClaimPreparation(checkpoint, drivers, "boot")
        works = [
            asyncio.ensure_future(ends(pod, kubelet) if pod in ended else lives(pod, kubelet, drivers, ended))
            for pod in PODS
        ]
        await asyncio.wait(works, timeout=None if steps is None else steps / 1000)
        for work in works:
            work.cancel()
        for item in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(item, Exception):
                raise item
        await kubelet.close()
        for _ in range(3):
            await asyncio.sleep(0)
    assert drivers.prepared == set()
    assert checkpoint.claims == {}
    assert list(directory.iterdir()) == []


@given(
    moods=st.lists(st.sampled_from(["well", "slow", "fails", "forgets"]), max_size=24),
    full=st.lists(st.booleans(), max_size=6),
    deaths=st.lists(st.integers(0, 12), max_size=3),
)
def test_no_history_runs_a_pod_without_its_claims(moods, full, deaths):
    with tempfile.TemporaryDirectory(prefix="pw-") as directory:
        asyncio.run(asyncio.wait_for(history(Path(directory), moods, full, deaths), 60))


@pytest.mark.parametrize("damage", [b"", b"nonsense"], ids=["empty", "nonsense"])
def test_a_damaged_file_is_quarantined(tmp_path, damage):
    (tmp_path / "1").write_bytes(damage)
    for _ in range(2):
        checkpoint = ClaimCheckpoint(tmp_path)
        checkpoint.load()
        assert checkpoint.claims == {}
        assert [path.name for path in tmp_path.iterdir()] == ["1.damaged"]
        assert list(checkpoint.damaged) == ["1"]
