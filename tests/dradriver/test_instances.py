"""Of several instances one works at a time, and one answers."""

import asyncio

from podwire.dradriver.instances import InstanceLock, Voice

PATIENCE = 30.0


async def test_calls_of_one_instance_share_its_lock(tmp_path):
    lock = InstanceLock(tmp_path / "dir/serialize.lock")
    async with asyncio.timeout(PATIENCE), lock.held(), lock.held():
        pass
    async with asyncio.timeout(PATIENCE), lock.held():
        pass


async def test_another_instance_waits_until_the_last_call_has_ended(tmp_path):
    mine, other = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    order = []

    async def follow():
        async with other.held():
            order.append("other")

    async with asyncio.timeout(PATIENCE):
        async with mine.held():
            following = asyncio.ensure_future(follow())
            async with mine.held():
                await asyncio.sleep(0.05)
            order.append("mine")
        await following
    assert order == ["mine", "other"]


async def test_who_gives_up_waiting_leaves_no_lock_behind(tmp_path):
    mine, other, third = (InstanceLock(tmp_path / "lock") for _ in range(3))

    async def follow():
        async with other.held():
            pass

    async with asyncio.timeout(PATIENCE):
        async with mine.held():
            following = asyncio.ensure_future(follow())
            await asyncio.sleep(0.05)
            following.cancel()
            await asyncio.wait([following])
        async with third.held():
            pass


def test_one_instance_speaks_and_another_after_it(tmp_path):
    first, second = Voice(tmp_path / "voice"), Voice(tmp_path / "voice")
    assert (first.mine(), second.mine(), first.mine()) == (True, False, True)
    first.give_up()
    assert (second.mine(), first.mine()) == (True, False)
    second.give_up()
