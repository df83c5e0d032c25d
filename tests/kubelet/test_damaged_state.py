"""Damaged files of the kubelet: each is reported once, repaired, and no concern of other pods."""

import asyncio
import os

import pytest

from podwire.kubelet.server import KubeletMetrics
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.eventually import eventually_async

EVENTS = BUILTIN.of_kind("v1", "Event")
DAMAGES = {"empty": b"", "garbage": b"\x00\xff not a record", "huge": b"[" * 100_000}


async def damage_events(world):
    listed = await world.api.list(EVENTS)
    return [event for event in listed.items if event["reason"] == "DamagedState"]


@pytest.mark.parametrize("directory", ["claims", "devices"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_record_is_reported_once_and_pods_run(world, root, directory, damage):
    await world.make()
    await world.running()
    await world.stop()
    uid = "6a2e1f3c-0000-4000-8000-000000000001"
    (root / directory).mkdir(exist_ok=True)
    (root / directory / uid).write_bytes(DAMAGES[damage])
    counts = []
    object.__setattr__(world.outside, "record_damaged", lambda: counts.append(1))
    for _ in range(2):
        world.start()
        await world.make(f"q{len(counts)}{os.urandom(2).hex()}")
        await eventually_async(lambda: len(world.runtime.sandboxes) >= 2)
        assert "damaged" in await world.event("DamagedState", uid)
        await world.stop()
    world.start()
    assert len(await damage_events(world)) == 1
    assert counts == [1]


async def test_a_directory_in_place_of_a_claim_does_not_stop_the_kubelet(world, root):
    await world.stop()
    (root / "claims/6a2e1f3c-0000-4000-8000-000000000001").mkdir(parents=True)
    world.start()
    await world.make()
    await world.running()


async def test_all_records_may_be_missing(world, root):
    await world.make()
    await world.running()
    await world.stop()
    for directory in ("claims", "devices"):
        if (root / directory).exists():
            await asyncio.to_thread((root / directory).rename, root / f"{directory}-lost")
    world.start()
    await world.make("q")
    await world.running("q")
    await world.delete("p")
    await world.delete("q")
    assert world.runtime.sandboxes == {}


def test_damaged_records_are_counted():
    metrics = KubeletMetrics()
    metrics.record_damaged()
    assert "podwire_kubelet_damaged_records_total 1" in metrics.text([])
