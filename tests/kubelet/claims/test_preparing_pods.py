"""Pods get what they claim: a whole kubelet, a driver on the wire, a runtime in memory."""

import asyncio

DRIVER = "nic.example.org"


def cdi(world, container="c"):
    return [each.name for each in world.runtime.configs[container].CDI_devices]


async def test_a_pod_gets_what_its_driver_has_prepared_and_gives_it_back(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    made = await claims.make()
    await claims.pod()
    await world.running()
    uid = made["metadata"]["uid"]
    assert cdi(world) == [f"{DRIVER}/nic={uid}"]
    assert driver.prepared == ["mine"]
    await world.delete()
    assert driver.unprepared == ["mine"]
    assert list((world.root / "claims").iterdir()) == []
